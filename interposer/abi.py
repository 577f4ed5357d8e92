"""The files of a grant, read and written through the C header of the library in the container.

`limits` is written by the agent only; a mapped file stays valid while it changes (sequence lock).
`usage` belongs to the tenant once it is there: nothing in it is believed beyond what its struct allows.
Sizes are bytes, times are nanoseconds of CLOCK_MONOTONIC. A refusal is an AbiError: file, field, value.

Crash points: a new file appears whole (renamed) or not at all; a change in place that is cut short leaves the
sequence odd, and readers see old and new fields mixed until the next write_limits, which repairs it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import mmap
import os
import platform
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interposer import _abi

_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_U32 = 2**32 - 1
_U64 = 2**64 - 1

_ffi: Any = _abi.ffi
_writing = threading.Lock()  # one writer of a file at a time


class AbiError(Exception):
    """A file that can't be used, or a value that no file can hold."""


class Policy(enum.IntEnum):
    """What is enforced of the compute share."""

    DEFAULT = 0
    """effective_cores: the agent may lend what is idle."""
    FORCE = 1
    """guaranteed_cores, always."""
    DISABLE = 2
    """Nothing."""


@dataclass(frozen=True)
class Cap:
    """A container's own, smaller limits; 0: the grant's."""

    container: str
    memory_bytes: int
    cores: int


@dataclass(frozen=True)
class Limits:
    """What a grant allows on one card."""

    uuid: str
    """Of the card or MIG instance."""
    claim: str
    """UID of the ResourceClaim."""
    memory_bytes: int
    card_memory_bytes: int
    guaranteed_cores: int
    """Percent of the card; 0: no cap."""
    effective_cores: int
    """Percent in force while the lease lasts; 0: no cap."""
    policy: Policy
    priority: int
    """0 before 1."""
    spill: bool
    """May go on in managed memory where the card is full."""
    caps: tuple[Cap, ...]
    lease_until_ns: int = 0
    """effective_cores and stretch count until then."""
    stretch: int = 0
    """Thousandths: how much longer kernels take than alone, since other grants' run too."""

    def cores_at(self, now_ns: int) -> int:
        """Percent in force at a moment of CLOCK_MONOTONIC; 0: no cap."""
        if self.policy is Policy.DISABLE:
            return 0
        is_lent = self.policy is Policy.DEFAULT and now_ns < self.lease_until_ns
        return self.effective_cores if is_lent else self.guaranteed_cores


@dataclass(frozen=True)
class Process:
    """One living process of a grant."""

    slot: int
    pid: int
    """In the reader's PID namespace; 0: not visible from it."""
    memory_bytes: int
    context_bytes: int
    module_bytes: int
    launches: int
    busy_ns: int
    waited_ns: int
    last_launch_ns: int
    refused: int
    waiting: int = 0
    """Threads held back by the compute limit right now."""
    resident_ns: int = 0
    """Since when it has long kernels on the card; 0: it has none."""
    resident_until: int = 0
    short_ns: int = 0
    """Of busy_ns, for kernels that no span tells of."""


@dataclass(frozen=True)
class Span:
    """From when to when a process had kernels on the card: those that take 0.2 ms and more."""

    slot: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True)
class Usage:
    """What a grant's living processes hold and have done."""

    memory_bytes: int
    peak_memory_bytes: int
    processes: tuple[Process, ...]
    spans: tuple[Span, ...] = ()


def _build() -> Path:
    return Path(__file__).resolve().parent / "build" / platform.machine()


def library_path() -> Path:
    """The library that is preloaded into containers, for this machine."""
    return _build() / "libtessera.so"


def access_library_path() -> Path:
    """The helper behind this module, for this machine."""
    return _build() / "libtessera-access.so"


@functools.cache
def _access() -> Any:
    path = access_library_path()
    try:
        return _ffi.dlopen(str(path))
    except OSError as error:
        raise AbiError(f"{path}: {error}; `make -C interposer` builds it") from error


@contextmanager
def _mapped(path: Path, size: int, *, writable: bool, whole: int = 0) -> Iterator[tuple[Any, int, int]]:
    """The file's address, its size in bytes and its descriptor; AbiError where it is shorter than `size`.

    `whole`: so much is mapped where the file has it.
    """
    try:
        descriptor = os.open(path, os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY))
    except OSError as error:
        raise AbiError(f"{path}: {error.strerror}") from error
    try:
        length = os.fstat(descriptor).st_size
        if length < size:
            raise AbiError(f"{path}: {length} bytes, expected {size}")
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        with mmap.mmap(descriptor, min(length, whole or size), access=access) as mapping:
            buffer = _ffi.from_buffer(mapping)
            try:
                yield _ffi.cast("void *", buffer), length, descriptor
            finally:
                _ffi.release(buffer)
    finally:
        os.close(descriptor)


@contextmanager
def _copied(path: Path, least: int, whole: int) -> Iterator[tuple[Any, int, int]]:
    """As `_mapped`, but a copy: a tenant may shorten his file, and who reads a mapping dies of that (SIGBUS)."""
    try:
        descriptor = os.open(path, os.O_CLOEXEC | os.O_RDONLY)
    except OSError as error:
        raise AbiError(f"{path}: {error.strerror}") from error
    try:
        copy = bytearray(whole)
        length = os.preadv(descriptor, [copy], 0)
        if length < least:
            raise AbiError(f"{path}: {length} bytes, expected {least}")
        buffer = _ffi.from_buffer(copy)
        try:
            yield _ffi.cast("void *", buffer), length, descriptor
        finally:
            _ffi.release(buffer)
    finally:
        os.close(descriptor)


def _text(value: Any) -> str:
    return bytes(_ffi.buffer(value)).split(b"\0", 1)[0].decode("utf-8", "replace")


def _constant(name: str) -> int:
    return int(_ffi.integer_const(name))


def _check_header(path: Path, struct: Any, magic: int, size: int) -> None:
    """Names the first field of a file's header that this code can't go by."""
    version = _constant("TESSERA_ABI_VERSION")
    if struct.magic != magic:
        raise AbiError(f"{path}: magic is {struct.magic:#010x}, expected {magic:#010x}")
    if not 1 <= struct.version <= version:
        raise AbiError(f"{path}: version is {struct.version}, expected 1 to {version}")
    if struct.size < size:
        raise AbiError(f"{path}: size is {struct.size}, expected at least {size}")


def _install(path: Path, mode: int, content: bytes, length: int) -> None:
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


# --- limits ------------------------------------------------------------------------------------------------


def _check(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise AbiError(f"{field} is {value}, expected {least} to {most}")


def _encoded(field: str, value: str, size: int) -> bytes:
    encoded = value.encode()
    if len(encoded) >= size or b"\0" in encoded:
        raise AbiError(f"{field} is {value!r}, expected at most {size - 1} bytes without NUL")
    return encoded


def _validate(limits: Limits) -> None:
    if not _UUID.fullmatch(limits.uuid):
        raise AbiError(f"uuid is {limits.uuid!r}, expected GPU- or MIG- and a UUID")
    _check("memory_bytes", limits.memory_bytes, 1, _U64)
    _check("card_memory_bytes", limits.card_memory_bytes, 0, _U64)
    _check("guaranteed_cores", limits.guaranteed_cores, 0, _U32)
    _check("effective_cores", limits.effective_cores, 0, _U32)
    _check("priority", limits.priority, 0, 1)
    _check("lease_until_ns", limits.lease_until_ns, 0, _U64)
    _check("stretch", limits.stretch, 0, _U32)
    _check("number of caps", len(limits.caps), 0, _constant("TESSERA_CAPS"))
    for index, cap in enumerate(limits.caps):
        _check(f"caps[{index}].memory_bytes", cap.memory_bytes, 0, _U64)
        _check(f"caps[{index}].cores", cap.cores, 0, _U32)


def _packed(limits: Limits) -> Any:
    """A struct tessera_limits; AbiError names the field that doesn't fit it."""
    _validate(limits)
    struct = _ffi.new("struct tessera_limits *")
    struct.magic = _constant("TESSERA_LIMITS_MAGIC")
    struct.version = _constant("TESSERA_ABI_VERSION")
    struct.size = _ffi.sizeof("struct tessera_limits")
    struct.uuid = _encoded("uuid", limits.uuid, _constant("TESSERA_UUID_SIZE"))
    struct.claim = _encoded("claim", limits.claim, _constant("TESSERA_CLAIM_SIZE"))
    struct.memory_bytes = limits.memory_bytes
    struct.card_memory_bytes = limits.card_memory_bytes
    struct.guaranteed_cores = limits.guaranteed_cores
    struct.effective_cores = limits.effective_cores
    struct.policy = Policy(limits.policy)
    struct.priority = limits.priority
    struct.flags = _constant("TESSERA_FLAG_SPILL") if limits.spill else 0
    struct.cap_count = len(limits.caps)
    struct.lease_until_ns = limits.lease_until_ns
    struct.stretch = limits.stretch
    for index, cap in enumerate(limits.caps):
        name = f"caps[{index}].container"
        struct.caps[index].container = _encoded(name, cap.container, _constant("TESSERA_CONTAINER_SIZE"))
        struct.caps[index].memory_bytes = cap.memory_bytes
        struct.caps[index].cores = cap.cores
    return struct


def _unpacked(path: Path, struct: Any) -> Limits:
    try:
        policy = Policy(struct.policy)
    except ValueError as error:
        raise AbiError(f"{path}: policy is {struct.policy}, expected 0 to {max(Policy)}") from error
    caps = tuple(
        Cap(container=_text(cap.container), memory_bytes=cap.memory_bytes, cores=cap.cores)
        for cap in struct.caps[0 : min(struct.cap_count, _constant("TESSERA_CAPS"))]
    )
    limits = Limits(
        uuid=_text(struct.uuid),
        claim=_text(struct.claim),
        memory_bytes=struct.memory_bytes,
        card_memory_bytes=struct.card_memory_bytes,
        guaranteed_cores=struct.guaranteed_cores,
        effective_cores=struct.effective_cores,
        policy=policy,
        priority=struct.priority,
        spill=bool(struct.flags & _constant("TESSERA_FLAG_SPILL")),
        caps=caps,
        lease_until_ns=struct.lease_until_ns,
        stretch=struct.stretch,
    )
    try:
        _validate(limits)
        _check("number of caps", struct.cap_count, 0, _constant("TESSERA_CAPS"))
    except AbiError as error:
        raise AbiError(f"{path}: {error}") from error
    return limits


@contextmanager
def _mapped_limits(path: Path) -> Iterator[Any]:
    """The file's address. The pages behind an older, shorter file read as zeros, as its missing fields do."""
    least, whole = _constant("TESSERA_LIMITS_SIZE_0"), _ffi.sizeof("struct tessera_limits")
    with _mapped(path, least, writable=False, whole=whole) as (address, _, _):
        struct = _ffi.cast("struct tessera_limits *", address)
        _check_header(path, struct, _constant("TESSERA_LIMITS_MAGIC"), least)
        yield address


def read_limits(path: Path) -> Limits:
    """What the file says, all of one moment. AbiError: it can't be read or isn't valid."""
    with _mapped_limits(path) as address:
        copy = _ffi.new("struct tessera_limits *")
        if _access().tessera_limits_read(address, copy) != 0:
            raise AbiError(f"{path}: sequence is {copy.sequence}: a write was not finished")
        return _unpacked(path, copy)


def _may_change_in_place(path: Path, limits: Limits) -> bool:
    """Whether the file is there, valid, and about the same card and claim: then its readers follow it."""
    try:
        with _mapped_limits(path) as address:
            struct = _ffi.cast("struct tessera_limits *", address)
            return (_text(struct.uuid), _text(struct.claim)) == (limits.uuid, limits.claim)
    except AbiError:
        return False


def write_limits(path: Path, limits: Limits) -> None:
    """Creates the file (0444), or changes a valid one in place so that whoever has it mapped follows.

    AbiError names the field and value that no file can hold; OSError where the directory can't be written.
    """
    struct = _packed(limits)
    size = _ffi.sizeof("struct tessera_limits")
    if not _may_change_in_place(path, limits):
        _install(path, 0o444, bytes(_ffi.buffer(struct)), size)
        return
    if os.stat(path).st_size < size:  # noqa: PTH116 - of an older release: readers don't mind that it grows
        os.truncate(path, size)
    with _writing, _mapped(path, size, writable=True) as (address, _, _):
        _access().tessera_limits_write(address, struct)


def lend(path: Path, cores: int, stretch: int, until_ns: int) -> bool:
    """Says what is in force until then: percent of the card, thousandths of stretch.

    False: an older release's file, whose readers know no end of it. AbiError: it can't be written, or read.
    """
    size = _ffi.sizeof("struct tessera_limits")
    with _mapped_limits(path) as address:
        if _ffi.cast("struct tessera_limits *", address).size < size:
            return False
    with _writing, _mapped(path, size, writable=True) as (address, _, _):
        _access().tessera_limits_lend(address, cores, stretch, until_ns)
    return True


# --- usage -------------------------------------------------------------------------------------------------


def _usage_valid(path: Path) -> bool:
    least, whole = _constant("TESSERA_USAGE_SIZE_0"), _ffi.sizeof("struct tessera_usage")
    with _copied(path, least, whole) as (address, length, _):
        return bool(_access().tessera_usage_valid(address, length))


@functools.cache
def _new_usage() -> bytes:
    """What stands before the processes in a new file; the whole struct has half a mebibyte."""
    usage = _ffi.new("struct tessera_usage *")
    _access().tessera_usage_init(usage)
    return bytes(_ffi.buffer(usage, _ffi.offsetof("struct tessera_usage", "process")))


def create_usage(path: Path) -> None:
    """Creates the file (0666, sparse). A valid one is left alone, whoever has it mapped.

    A damaged one is repaired where it lies, since processes may have it mapped: it is never shortened, and
    the living enter themselves again. OSError where the directory can't be written.
    """
    size = _ffi.sizeof("struct tessera_usage")
    if not path.exists():
        _install(path, 0o666, _new_usage(), size)
        return
    if path.stat().st_size >= _constant("TESSERA_USAGE_SIZE_0") and _usage_valid(path):
        return
    if path.stat().st_size < size:
        os.truncate(path, size)
    usage = _ffi.new("struct tessera_usage *")
    _access().tessera_usage_init(usage)
    descriptor = os.open(path, os.O_CLOEXEC | os.O_WRONLY)
    try:
        os.pwrite(descriptor, _ffi.buffer(usage), 0)
    finally:
        os.close(descriptor)


def read_usage(path: Path, since_ns: int | None = None) -> Usage:
    """The living processes and what they hold. AbiError: the file can't be read or isn't valid.

    `since_ns`: the spans that end later are read too.
    """
    least, whole = _constant("TESSERA_USAGE_SIZE_0"), _ffi.sizeof("struct tessera_usage")
    with _copied(path, least, whole) as (address, length, descriptor):
        usage = _ffi.cast("struct tessera_usage *", address)
        _check_header(path, usage, _constant("TESSERA_USAGE_MAGIC"), least)
        if not _access().tessera_usage_valid(address, length):
            raise AbiError(f"{path}: slots is {usage.slots}, expected {_constant('TESSERA_SLOTS')}")
        capacity = min(usage.slots_high, _constant("TESSERA_SLOTS"))
        living = _ffi.new("struct tessera_living[]", max(capacity, 1))
        count = _access().tessera_usage_living(address, descriptor, living, capacity)
        peak = _access().tessera_usage_peak(address)
        processes = tuple(_process(living[index]) for index in range(count))
        spans = () if since_ns is None else _spans(address, length, since_ns)
    held = sum(each.memory_bytes + each.context_bytes + each.module_bytes for each in processes)
    return Usage(memory_bytes=held, peak_memory_bytes=peak, processes=processes, spans=spans)


def _spans(address: Any, length: int, since_ns: int) -> tuple[Span, ...]:
    most = _constant("TESSERA_SPANS")
    found = _ffi.new("struct tessera_span[]", most)
    count = _access().tessera_usage_spans(address, length, since_ns, found, most)
    return tuple(
        Span(each.slot, each.start_ns, each.start_ns + each.length_us * 1000) for each in found[0:count]
    )


def _process(living: Any) -> Process:
    counters = living.process
    return Process(
        slot=living.slot,
        pid=living.pid,
        memory_bytes=counters.memory_bytes,
        context_bytes=counters.context_bytes,
        module_bytes=counters.module_bytes,
        launches=counters.launches,
        busy_ns=counters.busy_ns,
        waited_ns=counters.waited_ns,
        last_launch_ns=counters.last_launch_ns,
        refused=counters.refused,
        waiting=counters.waiting,
        resident_ns=counters.resident_ns,
        resident_until=counters.resident_until,
        short_ns=counters.short_ns,
    )
