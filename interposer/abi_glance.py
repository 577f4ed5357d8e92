"""Whether anything has happened in a usage file since the last look, for a few microseconds.

An agent with hundreds of grants looks at each of them all the time, and nearly all of them are idle.
"""

from __future__ import annotations

import os

from interposer.abi_files import AbiError, constant, ffi

_SLOTS = constant("TESSERA_SLOTS")
_SLOTS_AT = ffi.offsetof("struct tessera_usage", "process")
_SLOT = ffi.sizeof("struct tessera_process")
_HIGH_AT = ffi.offsetof("struct tessera_usage", "slots_high")
_GLANCED = 16  # slots that are read at once: few grants have more processes


def glance(path: str) -> int:
    """A number for what processes have noted, but for spans: the same again, and none has done anything.

    It is for comparing only, and in this process: nothing is checked. AbiError: the file can't be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # see abi_files.opened
        try:
            seen = os.pread(descriptor, _SLOTS_AT + _GLANCED * _SLOT, 0)
            high = int.from_bytes(seen[_HIGH_AT : _HIGH_AT + 4], "little")
            if high > _GLANCED:
                seen = os.pread(descriptor, _SLOTS_AT + min(high, _SLOTS) * _SLOT, 0)
            return hash(seen)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise AbiError(f"{path}: {error.strerror}") from error
