"""Files that are either there, whole, or not there: also after a crash or a power cut.

Written beside their final place (a rename from another directory looks like a create to those who watch) and
synced, then renamed, then the directory is synced. A crash leaves at most a file that starts with
`TEMPORARY`; the next `sweep` removes it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

TEMPORARY = ".tessera-tmp-"


def write(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Replaces `path`. Raises OSError and leaves the old file, and nothing else, behind."""
    descriptor, name = tempfile.mkstemp(prefix=TEMPORARY, dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove(path: Path) -> bool:
    """Removes `path` for good; says whether it was there."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Makes the entries of a directory survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep(directory: Path) -> int:
    """Removes what a crash left behind; to be called while nobody writes there. Returns how many files.

    What can't be removed stays: it does no harm.
    """
    removed = 0
    for path in directory.glob(f"{TEMPORARY}*"):
        with contextlib.suppress(OSError):
            path.unlink()
            removed += 1
    return removed
