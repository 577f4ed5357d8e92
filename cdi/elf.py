"""The two facts about a shared library that decide where it is mounted: its machine and its soname.

Reads the ELF header, the program headers and the dynamic section, nothing else; a file that is not a 64-bit
little-endian ELF has no answer, and neither has one whose tables point outside of it.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

MACHINES = {62: "x86_64", 183: "aarch64"}  # e_machine of the ELF header
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_STRTAB, _DT_SONAME = 0, 5, 14


@dataclass(frozen=True)
class SharedObject:
    """`machine` as `platform.machine()` has it; `soname` None where the library has none."""

    machine: str
    soname: str | None


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read(path: Path) -> SharedObject | None:
    """None for a file that is no library of a known 64-bit machine. Raises OSError."""
    with path.open("rb") as file:
        try:
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                return _parse(content)
        # Nothing of an empty file can be mapped; offsets are 64 bits of whatever is there.
        except (struct.error, ValueError, OverflowError):
            return None


def _parse(content: mmap.mmap) -> SharedObject | None:
    if content[:6] != b"\x7fELF\x02\x01":
        return None
    (kind_of_machine,) = struct.unpack_from("<H", content, 18)
    machine = MACHINES.get(kind_of_machine)
    if machine is None:
        return None
    segments = list(_segments(content))
    dynamic = next((segment for segment in segments if segment.kind == _PT_DYNAMIC), None)
    if dynamic is None:
        return SharedObject(machine, None)
    tags: dict[int, int] = {}
    for position in range(dynamic.offset, dynamic.offset + dynamic.size, 16):
        tag, value = struct.unpack_from("<qQ", content, position)
        if tag == _DT_NULL:
            break
        tags[tag] = value
    if _DT_SONAME not in tags or _DT_STRTAB not in tags:
        return SharedObject(machine, None)
    start = _offset_of(segments, tags[_DT_STRTAB]) + tags[_DT_SONAME]
    return SharedObject(machine, _text(content, start))


def _segments(content: mmap.mmap) -> list[_Segment]:
    (table,) = struct.unpack_from("<Q", content, 32)
    entry_size, count = struct.unpack_from("<HH", content, 54)
    found = []
    for number in range(count):
        kind, _flags, offset, address, _, size = struct.unpack_from(
            "<IIQQQQ", content, table + number * entry_size
        )
        found.append(_Segment(kind, offset, address, size))
    return found


def _offset_of(segments: list[_Segment], address: int) -> int:
    for segment in segments:
        if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
            return address - segment.address + segment.offset
    raise ValueError("an address outside of all segments")


def _text(content: mmap.mmap, start: int) -> str:
    end = content.find(b"\0", start)
    if end < 0:
        raise ValueError("a string without an end")
    return content[start:end].decode("ascii")


def soname(path: Path, machine: str) -> str | None:
    """The soname of a library for `machine`; None where it is none or has none."""
    found = read(path)
    return found.soname if found is not None and found.machine == machine else None
