"""Files that are either there, whole, or not there: also after a crash or a power cut.

Written beside their final place (a rename from another directory looks like a create to those who watch) and
synced, then renamed, then the directory is synced. A crash leaves at most a file that starts with
`TEMPORARY`; the next `sweep` removes it.

Syncing is most of the time that a write takes. It does nothing against the death of a process, so what means
nothing after a reboot is written without (`survives_power_cut=False`).
"""

from __future__ import annotations

import contextlib
import itertools
import os
from pathlib import Path

TEMPORARY = ".tessera-tmp-"
# Not the process's id: the agents of two Pods may both have 1.
_PROCESS = os.urandom(8).hex()
_numbers = itertools.count()
_PAGE = 4096


def write(path: Path, content: bytes, *, mode: int = 0o644, survives_power_cut: bool = True) -> None:
    """Replaces `path`. Raises OSError, which names it, and leaves the old file, and nothing else, behind."""
    temporary = f"{path.parent}/{TEMPORARY}{_PROCESS}-{next(_numbers):x}"
    try:
        with open(temporary, "xb", buffering=0) as file:  # noqa: PTH123 - a third of pathlib's time
            os.fchmod(file.fileno(), mode)
            rest = content
            while rest:  # twice only on a disk that is getting full
                rest = rest[file.write(rest) :]
            if survives_power_cut:
                os.fsync(file.fileno())
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)  # noqa: PTH108
        if isinstance(error, OSError) and error.filename is None:  # a full disk, as write and fsync tell it
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    if survives_power_cut:
        sync_directory(path.parent)


def read(path: Path) -> bytes:
    """The content, without ever waiting. Raises OSError.

    Root in a container owns what is mounted there from the host. With a lease on such a file (fcntl's
    F_SETLEASE) it would keep whoever opens it for 45 seconds, again and again.
    """
    with open(path, "rb", opener=_at_once) as file:
        return file.read()


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def overwrite(path: Path, content: bytes) -> bool:
    """Changes a file where it lies, by one write: a process that dies leaves the old content or the new.

    False, and nothing done, for a file of another length, or longer than a page of memory, within which a
    write is not cut short. Not synced; after a rename onto another file ext4 writes at once. Raises OSError.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        if not len(content) == os.fstat(descriptor).st_size <= _PAGE:
            return False
        return os.pwrite(descriptor, content, 0) == len(content)
    finally:
        os.close(descriptor)


def remove(path: Path, *, survives_power_cut: bool = True) -> bool:
    """Removes `path` for good; says whether it was there. Raises OSError where it is and has to stay."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    except OSError:
        # A read-only file system refuses before it looks.
        if path.is_symlink() or path.exists():
            raise
        return False
    if survives_power_cut:
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
