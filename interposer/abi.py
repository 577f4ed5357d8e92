"""The files of a grant, read and written through the C header of the library in the container.

`limits` is written by the agent only; a mapped file stays valid while it changes (sequence lock).
`usage` belongs to the tenant once it is there: nothing in it is believed beyond what its struct allows.
Sizes are bytes, times are nanoseconds of CLOCK_MONOTONIC. A refusal is an AbiError: file, field, value.

Crash points: a new file appears whole (renamed) or not at all; a change in place that is cut short leaves the
sequence odd, and readers see old and new fields mixed until the next write_limits, which repairs it.
"""

from __future__ import annotations

import enum
import functools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interposer.abi_files import (
    AbiError,
    Copy,
    LeasedError,
    access,
    access_library_path,
    check_header,
    constant,
    copied,
    ffi,
    grow,
    install,
    is_left_by_another_release,
    library_path,
    mapped,
    opened,
    shim_paths,
    text,
    writing,
)

__all__ = [
    "AbiError",
    "Cap",
    "Limits",
    "Policy",
    "Process",
    "Span",
    "Usage",
    "access_library_path",
    "create_usage",
    "lend",
    "library_path",
    "read_limits",
    "read_usage",
    "shim_paths",
    "write_limits",
]

_UUID = re.compile(r"(GPU|MIG)-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_U32 = 2**32 - 1
_U64 = 2**64 - 1


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
    """effective_cores and stretch count until then; after it, for half a minute, stretch_unlent."""
    stretch: int = 0
    """Thousandths: how much longer kernels take than alone, since other grants' run too."""
    stretch_unlent: int = 0
    """What it comes to when nobody has more than is guaranteed."""

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


# --- limits ------------------------------------------------------------------------------------------------


def _check(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise AbiError(f"{field} is {value}, expected {least} to {most}")


def _encoded(field: str, value: str, size: int) -> bytes:
    encoded = value.encode()
    if len(encoded) >= size or b"\0" in encoded:
        raise AbiError(f"{field} is {value!r}, expected at most {size - 1} bytes without NUL")
    return encoded


_LIMITS_NUMBERS = {
    "memory_bytes": (1, _U64),
    "card_memory_bytes": (0, _U64),
    "guaranteed_cores": (0, _U32),
    "effective_cores": (0, _U32),
    "priority": (0, 1),
    "lease_until_ns": (0, _U64),
    "stretch": (0, _U32),
    "stretch_unlent": (0, _U32),
}
"""Those that have one name here and in the struct: the least and the most that each may be."""


def _validate(limits: Limits) -> None:
    if not _UUID.fullmatch(limits.uuid):
        raise AbiError(f"uuid is {limits.uuid!r}, expected GPU- or MIG- and a UUID")
    for name, (least, most) in _LIMITS_NUMBERS.items():
        _check(name, getattr(limits, name), least, most)
    _check("number of caps", len(limits.caps), 0, constant("TESSERA_CAPS"))
    for index, cap in enumerate(limits.caps):
        _check(f"caps[{index}].memory_bytes", cap.memory_bytes, 0, _U64)
        _check(f"caps[{index}].cores", cap.cores, 0, _U32)


def _packed(limits: Limits) -> Any:
    """A struct tessera_limits; AbiError names the field that doesn't fit it."""
    _validate(limits)
    struct = ffi.new("struct tessera_limits *")
    struct.magic = constant("TESSERA_LIMITS_MAGIC")
    struct.version = constant("TESSERA_LIMITS_VERSION")
    struct.size = ffi.sizeof("struct tessera_limits")
    struct.uuid = _encoded("uuid", limits.uuid, constant("TESSERA_UUID_SIZE"))
    struct.claim = _encoded("claim", limits.claim, constant("TESSERA_CLAIM_SIZE"))
    struct.policy = Policy(limits.policy)
    struct.flags = constant("TESSERA_FLAG_SPILL") if limits.spill else 0
    struct.cap_count = len(limits.caps)
    for name in _LIMITS_NUMBERS:
        setattr(struct, name, getattr(limits, name))
    for index, cap in enumerate(limits.caps):
        field = f"caps[{index}].container"
        struct.caps[index].container = _encoded(field, cap.container, constant("TESSERA_CONTAINER_SIZE"))
        struct.caps[index].memory_bytes = cap.memory_bytes
        struct.caps[index].cores = cap.cores
    return struct


def _unpacked(path: Path, struct: Any) -> Limits:
    try:
        policy = Policy(struct.policy)
    except ValueError as error:
        raise AbiError(f"{path}: policy is {struct.policy}, expected 0 to {max(Policy)}") from error
    caps = tuple(
        Cap(container=text(cap.container), memory_bytes=cap.memory_bytes, cores=cap.cores)
        for cap in struct.caps[0 : min(struct.cap_count, constant("TESSERA_CAPS"))]
    )
    limits = Limits(
        uuid=text(struct.uuid),
        claim=text(struct.claim),
        policy=policy,
        spill=bool(struct.flags & constant("TESSERA_FLAG_SPILL")),
        caps=caps,
        **{name: getattr(struct, name) for name in _LIMITS_NUMBERS},
    )
    try:
        _validate(limits)
        _check("number of caps", struct.cap_count, 0, constant("TESSERA_CAPS"))
    except AbiError as error:
        raise AbiError(f"{path}: {error}") from error
    return limits


@contextmanager
def _mapped_limits(path: Path) -> Iterator[Any]:
    """The file's address. The pages behind an older, shorter file read as zeros, as its missing fields do."""
    least, whole = constant("TESSERA_LIMITS_SIZE_0"), ffi.sizeof("struct tessera_limits")
    with mapped(path, least, writable=False, whole=whole) as (address, _, _):
        struct = ffi.cast("struct tessera_limits *", address)
        check_header(path, struct, "LIMITS", least)
        yield address


def read_limits(path: Path) -> Limits:
    """What the file says, all of one moment. AbiError: it can't be read or isn't valid."""
    with _mapped_limits(path) as address:
        copy = ffi.new("struct tessera_limits *")
        if access().tessera_limits_read(address, copy) != 0:
            raise AbiError(f"{path}: sequence is {copy.sequence}: a write was not finished")
        return _unpacked(path, copy)


def _may_change_in_place(path: Path, limits: Limits) -> bool:
    """Whether the file is there, valid, and about the same card and claim: then its readers follow it."""
    try:
        with _mapped_limits(path) as address:
            struct = ffi.cast("struct tessera_limits *", address)
            return (text(struct.uuid), text(struct.claim)) == (limits.uuid, limits.claim)
    except LeasedError:
        raise
    except AbiError:
        return False


def write_limits(path: Path, limits: Limits) -> None:
    """Creates the file (0444), or changes a valid one in place so that whoever has it mapped follows.

    AbiError names the field and value that no file can hold; OSError where the directory can't be written.
    """
    struct = _packed(limits)
    size = ffi.sizeof("struct tessera_limits")
    with writing(path):
        if not _may_change_in_place(path, limits):
            install(path, 0o444, bytes(ffi.buffer(struct)), size)
            return
        grow(path, size)  # of an older release: readers don't mind
        with mapped(path, size, writable=True) as (address, _, _):
            access().tessera_limits_write(address, struct)


def lend(path: Path, cores: int, stretch: int, stretch_unlent: int, until_ns: int) -> bool:
    """Says what is in force until then: percent of the card, thousandths of stretch; then `stretch_unlent`.

    False: an older release's file, whose readers know no end of it. AbiError: it can't be written, or read.
    """
    size = ffi.sizeof("struct tessera_limits")
    with _mapped_limits(path) as address:
        if ffi.cast("struct tessera_limits *", address).size < size:
            return False
    with writing(path), mapped(path, size, writable=True) as (address, _, _):
        access().tessera_limits_lend(address, cores, stretch, stretch_unlent, until_ns)
    return True


# --- usage -------------------------------------------------------------------------------------------------

_SLOTS_AT = ffi.offsetof("struct tessera_usage", "process")


def _usage_valid(path: Path) -> bool:
    with copied(path, _SLOTS_AT, _SLOTS_AT, head=_SLOTS_AT) as copy:  # each Prepare asks
        return bool(access().tessera_usage_valid(copy.address, os.fstat(copy.descriptor).st_size))


@functools.cache
def _new_usage() -> bytes:
    """What stands before the processes in a new file; the whole struct has half a mebibyte."""
    usage = ffi.new("struct tessera_usage *")
    access().tessera_usage_init(usage)
    return bytes(ffi.buffer(usage, ffi.offsetof("struct tessera_usage", "process")))


def create_usage(path: Path) -> None:
    """Creates the file (0666, sparse). A valid one is left alone, whoever has it mapped.

    A damaged one is repaired where it lies, never shortened, since processes may have it mapped: the living
    enter themselves again. One of another version is replaced, or AbiError: it is in use. OSError: no write.
    """
    size = ffi.sizeof("struct tessera_usage")
    if path.exists() and path.stat().st_size >= constant("TESSERA_USAGE_SIZE_0") and _usage_valid(path):
        return
    if not path.exists() or is_left_by_another_release(path, _SLOTS_AT):
        install(path, 0o666, _new_usage(), size)
        return
    grow(path, size)
    usage = ffi.new("struct tessera_usage *")
    access().tessera_usage_init(usage)
    with opened(path, os.O_WRONLY) as descriptor:
        os.pwrite(descriptor, ffi.buffer(usage), 0)


def read_usage(path: Path, since_ns: int | None = None) -> Usage:
    """The living processes and what they hold. AbiError: the file can't be read or isn't valid.

    `since_ns`: the spans that end later are read too.
    """
    least, whole = constant("TESSERA_USAGE_SIZE_0"), ffi.sizeof("struct tessera_usage")
    with copied(path, least, whole, head=_SLOTS_AT) as copy:
        usage = ffi.cast("struct tessera_usage *", copy.address)
        check_header(path, usage, "USAGE", least)
        if not access().tessera_usage_valid(copy.address, copy.length):
            raise AbiError(f"{path}: slots is {usage.slots}, expected {constant('TESSERA_SLOTS')}")
        copy.bring_as_one(ffi.offsetof("struct tessera_usage", "last_operation"), 16)  # before the slots
        capacity = min(usage.slots_high, constant("TESSERA_SLOTS"))
        copy.bring(_SLOTS_AT, capacity * ffi.sizeof("struct tessera_process"))
        living = ffi.new("struct tessera_living[]", max(capacity, 1))
        count = access().tessera_usage_living(copy.address, copy.descriptor, living, capacity)
        peak = access().tessera_usage_peak(copy.address)
        processes = tuple(_process(living[index]) for index in range(count))
        spans = () if since_ns is None else _spans(copy, since_ns)
        held = sum(living[index].process.bytes for index in range(count))
    return Usage(memory_bytes=held, peak_memory_bytes=peak, processes=processes, spans=spans)


def _spans(copy: Copy, since_ns: int) -> tuple[Span, ...]:
    most = constant("TESSERA_SPANS")
    copy.bring(ffi.offsetof("struct tessera_usage", "spans"), most * ffi.sizeof("struct tessera_span"))
    found = ffi.new("struct tessera_span[]", most)
    count = access().tessera_usage_spans(copy.address, copy.length, since_ns, found, most)
    return tuple(
        Span(each.slot, each.start_ns, each.start_ns + each.length_us * 1000) for each in found[0:count]
    )


def _process(living: Any) -> Process:
    counters = living.process
    return Process(
        slot=living.slot,
        pid=living.pid,
        memory_bytes=max(0, counters.bytes - counters.context_bytes - counters.module_bytes),
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
