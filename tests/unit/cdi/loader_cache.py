"""The smallest /etc/ld.so.cache that says where libraries are."""

from __future__ import annotations

import struct

_OLD, _NEW = b"ld.so-1.7.0\0", b"glibc-ld.so.cache1.1"


def ld_cache(*libraries: tuple[str, str], old_entries: int | None = None) -> bytes:
    """Soname and path of each. `old_entries`: behind the format of old, with so many entries."""
    strings, offsets = b"", []
    for pair in libraries:
        for text in pair:
            offsets.append(len(strings))
            strings += text.encode() + b"\0"
    table = 48 + 24 * len(libraries)
    entries = b"".join(
        struct.pack("<iIIIQ", 0x303, table + offsets[2 * n], table + offsets[2 * n + 1], 0, 0)
        for n in range(len(libraries))
    )
    header = _NEW + struct.pack("<II", len(libraries), len(strings)) + bytes(20)
    new = header + entries + strings
    if old_entries is None:
        return new
    old = _OLD + struct.pack("<I", old_entries) + bytes(12 * old_entries)
    return old + bytes(-len(old) % 8) + new
