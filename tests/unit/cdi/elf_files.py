"""The smallest ELF files that have a machine and a soname."""

from __future__ import annotations

import struct
from pathlib import Path

X86_64 = 62
AARCH64 = 183
I386 = 3
_HEADER, _PROGRAM_HEADER = 64, 56


def shared_object(soname: str | None, *, machine: int = X86_64, elf_class: int = 2) -> bytes:
    """ELF header, one PT_LOAD over everything at 0x1000, one PT_DYNAMIC with DT_STRTAB and DT_SONAME."""
    strings = b"\0" + (soname or "").encode() + b"\0"
    dynamic_at = _HEADER + 2 * _PROGRAM_HEADER
    entries = [(5, 0), (0, 0)] if soname is None else [(5, 0), (14, 1), (0, 0)]
    strings_at = dynamic_at + 16 * len(entries)
    size = strings_at + len(strings)
    address = 0x1000
    entries[0] = (5, address + strings_at)
    header = struct.pack(
        "<4sBBBBQHHIQQQIHHHHHH",
        *(
            b"\x7fELF",
            elf_class,
            1,
            1,
            0,
            0,
            3,
            machine,
            1,
            0,
            _HEADER,
            0,
            0,
            _HEADER,
            _PROGRAM_HEADER,
            2,
            0,
            0,
            0,
        ),
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 0x1000)
    dynamic = struct.pack(
        "<IIQQQQQQ",
        2,
        6,
        dynamic_at,
        address + dynamic_at,
        address + dynamic_at,
        *(16 * len(entries),) * 2,
        8,
    )
    table = b"".join(struct.pack("<qQ", *entry) for entry in entries)
    return header + load + dynamic + table + strings


def write(path: Path, soname: str | None, *, machine: int = X86_64) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(shared_object(soname, machine=machine))
