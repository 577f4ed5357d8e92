"""How a grant's files are opened: mapped, copied, or put in their place; and the C helper behind them.

Everything here knows the compiled header, and nothing of what the fields mean: that is abi's.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import mmap
import os
import platform
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interposer import _abi

ffi: Any = _abi.ffi


class AbiError(Exception):
    """A file that can't be used, or a value that no file can hold."""


class LeasedError(AbiError):
    """A file that a process has a lease on, and that can't be opened until the kernel takes it away."""


def _build() -> Path:
    return Path(__file__).resolve().parent / "build" / platform.machine()


def library_path() -> Path:
    """The library that is preloaded into containers, for this machine."""
    return _build() / "libtessera.so"


def shim_paths() -> dict[str, Path]:
    """What is mounted in the place of the driver's libraries, by the soname of each; for this machine."""
    return {
        "libcuda.so.1": _build() / "libtessera-shim.so",
        "libnvidia-ml.so.1": _build() / "libtessera-shim-nvml.so",
    }


def access_library_path() -> Path:
    """The helper behind this module, for this machine."""
    return _build() / "libtessera-access.so"


@functools.cache
def access() -> Any:
    path = access_library_path()
    try:
        return ffi.dlopen(str(path))
    except OSError as error:
        raise AbiError(f"{path}: {error}; `make -C interposer` builds it") from error


@contextmanager
def opened(path: Path, flags: int) -> Iterator[int]:
    """A descriptor; AbiError where there is none.

    Never waits: root in a container owns the grant's files, and with a lease (fcntl's F_SETLEASE) he would
    keep whoever opens them for 45 seconds, again and again.
    """
    try:
        descriptor = os.open(path, os.O_CLOEXEC | os.O_NONBLOCK | flags)
    except BlockingIOError as error:
        raise LeasedError(f"{path}: a process has a lease on it") from error
    except OSError as error:
        raise AbiError(f"{path}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def mapped(path: Path, size: int, *, writable: bool, whole: int = 0) -> Iterator[tuple[Any, int, int]]:
    """The file's address, its size in bytes and its descriptor; AbiError where it is shorter than `size`.

    `whole`: so much is mapped where the file has it.
    """
    with opened(path, os.O_RDWR if writable else os.O_RDONLY) as descriptor:
        length = os.fstat(descriptor).st_size
        if length < size:
            raise AbiError(f"{path}: {length} bytes, expected {size}")
        how = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with mmap.mmap(descriptor, min(length, whole or size), access=how) as mapping:
            buffer = ffi.from_buffer(mapping)
            try:
                yield ffi.cast("void *", buffer), length, descriptor
            finally:
                ffi.release(buffer)


_threads = threading.Lock()
_PATIENCE = 1.0  # seconds; a writer is done in microseconds


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Alone among the writers of this grant's limits: threads, and an agent that takes over from another.

    The lock is on the directory of the claim, which no container sees: who can open a file can lock it, and
    a tenant can open his limits. It ends with its holder. AbiError where a writer doesn't come to an end.
    """
    with opened(path.parent.parent, os.O_RDONLY | os.O_DIRECTORY) as descriptor, _threads:
        deadline = time.monotonic() + _PATIENCE
        while not _locked(descriptor):
            if time.monotonic() > deadline:
                raise AbiError(f"{path}: another process has been writing here for {_PATIENCE:.0f} s")
            time.sleep(0.001)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


_GLANCES = 100  # a tenant may write faster than anybody reads


class Copy:
    """Parts of a file at their places; what was not brought, or is behind the file's end, is zero."""

    def __init__(self, descriptor: int, size: int) -> None:
        self.descriptor = descriptor
        self.length = min(os.fstat(descriptor).st_size, size)
        self._bytes = bytearray(size)
        self.buffer = ffi.from_buffer(self._bytes)
        self.address = ffi.cast("void *", self.buffer)

    def bring(self, start: int, size: int) -> None:
        if size > 0:
            os.preadv(self.descriptor, [memoryview(self._bytes)[start : start + size]], start)

    def bring_as_one(self, start: int, size: int) -> None:
        """All of one moment, of what never comes back to what it was: until it is the same twice."""
        for _ in range(_GLANCES):
            before = self._bytes[start : start + size]
            self.bring(start, size)
            if self._bytes[start : start + size] == before:
                return


@contextmanager
def copied(path: Path, least: int, whole: int, *, head: int) -> Iterator[Copy]:
    """A copy, of which the first `head` bytes are there; AbiError where the file is shorter than `least`.

    Not mapped: a tenant may shorten his file, and whoever reads a mapping dies of that.
    """
    with opened(path, os.O_RDONLY) as descriptor:
        copy = Copy(descriptor, whole)
        try:
            if copy.length < least:
                raise AbiError(f"{path}: {copy.length} bytes, expected {least}")
            copy.bring(0, head)
            yield copy
        finally:
            ffi.release(copy.buffer)


def text(value: Any) -> str:
    return bytes(ffi.buffer(value)).split(b"\0", 1)[0].decode("utf-8", "replace")


def constant(name: str) -> int:
    return int(ffi.integer_const(name))


def check_header(path: Path, struct: Any, kind: str, size: int) -> None:
    """Names the first field of a header that this code can't go by. `kind`: LIMITS or USAGE."""
    magic, version = constant(f"TESSERA_{kind}_MAGIC"), constant(f"TESSERA_{kind}_VERSION")
    if struct.magic != magic:
        raise AbiError(f"{path}: magic is {struct.magic:#010x}, expected {magic:#010x}")
    if struct.version != version:
        raise AbiError(f"{path}: version is {struct.version}, expected {version}")
    if struct.size < size:
        raise AbiError(f"{path}: size is {struct.size}, expected at least {size}")


def is_left_by_another_release(path: Path, header: int) -> bool:
    """Whether a usage file's processes counted in another way, and are gone. AbiError: they aren't.

    `header`: bytes before the slots.
    """
    with copied(path, 0, header, head=header) as copy:
        if not access().tessera_usage_foreign(copy.address):
            return False
        found = ffi.cast("struct tessera_usage *", copy.address).version
        version = constant("TESSERA_USAGE_VERSION")
        if access().tessera_usage_in_use(copy.descriptor):
            raise AbiError(
                f"{path}: version is {found}, expected {version}: the claim's pods run with another "
                "release's library; delete these pods, so that they are made anew"
            )
    return True


def grow(path: Path, size: int) -> None:
    """To so many bytes, unless it has more. AbiError: it can't be opened."""
    with opened(path, os.O_WRONLY) as descriptor:
        if os.fstat(descriptor).st_size < size:
            os.ftruncate(descriptor, size)


def install(path: Path, mode: int, content: bytes, length: int) -> None:
    """The file appears whole, or not at all. Bytes behind the content are a hole."""
    temporary = f"{path.parent}/.{path.name}.{os.urandom(8).hex()}"
    try:
        with open(temporary, "xb", buffering=0) as file:  # noqa: PTH123 - a third of pathlib's time
            os.fchmod(file.fileno(), mode)
            rest = content
            while rest:  # twice only on a disk that is getting full
                rest = rest[file.write(rest) :]
            file.truncate(length)
        os.rename(temporary, path)  # noqa: PTH104
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        # A full disk, as write tells it.
        if isinstance(error, OSError) and error.errno and error.filename is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
