"""The loader's cache, /etc/ld.so.cache: where libraries are that lie in no directory known to us.

Only the format that glibc has written since 2.2 is read, alone or behind the old one; its entries point into
a table of strings. A file that is damaged, or of another byte order, has no answer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import PurePosixPath

_MAGIC = b"glibc-ld.so.cache1.1"
_OLD_MAGIC = b"ld.so-1.7.0\0"
_OLD_ENTRY, _ENTRY = 12, 24
_HEADER = 48


def libraries(content: bytes) -> tuple[PurePosixPath, ...]:
    """The paths of all libraries, in the cache's order, without repetition; empty for what can't be read."""
    try:
        return tuple(dict.fromkeys(_paths(content)))
    except (struct.error, ValueError):
        return ()


def _paths(content: bytes) -> Iterator[PurePosixPath]:
    start = _start(content)
    (count,) = struct.unpack_from("<I", content, start + len(_MAGIC))
    if count > len(content) // _ENTRY:
        raise ValueError("more entries than the file has room for")
    for number in range(count):
        # flags, key, value, then what processors it is for: of no matter to who looks for a driver
        _flags, _key, value = struct.unpack_from("<iII", content, start + _HEADER + number * _ENTRY)
        text = content[start + value : content.index(b"\0", start + value)]
        path = PurePosixPath(text.decode())
        if path.is_absolute():
            yield path


def _start(content: bytes) -> int:
    if content.startswith(_MAGIC):
        return 0
    if content.startswith(_OLD_MAGIC):
        (count,) = struct.unpack_from("<I", content, len(_OLD_MAGIC))
        end = len(_OLD_MAGIC) + 4 + count * _OLD_ENTRY
        start: int = (end + 7) // 8 * 8  # the new format is aligned as its entries are
        if content[start : start + len(_MAGIC)] == _MAGIC:
            return start
    raise ValueError("not a cache that is known here")
