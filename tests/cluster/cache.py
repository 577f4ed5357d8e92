"""What is slow to build, built once for all checkouts of a machine, outside the repository, keyed by content.

An entry is a directory `<root>/<name>-<key>`. It is made in a temporary directory beside it and renamed when
it is complete, under a lock per name: an entry that exists is whole, and two builds of the same thing don't
collide. A build that is killed leaves a `.partial` directory, which the next holder of the lock removes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from tests.cluster.progress import say

KEY_DIGITS = 16


def root() -> Path:
    """The cache directory of this user: TESSERA_CACHE, else XDG_CACHE_HOME/tessera, else ~/.cache/tessera."""
    if chosen := os.environ.get("TESSERA_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base).absolute() / "tessera"


def key(*parts: str | bytes) -> str:
    """Hex key of these parts; each is framed by its length, so that moving a byte between parts changes the
    key.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()[:KEY_DIGITS]


def key_of_files(base: Path, files: Iterable[Path], *parts: str) -> str:
    """Key of files' names below `base`, permissions to execute, and bytes, in an order of its own, plus
    `parts`.
    """
    framed: list[str | bytes] = [*parts]
    for file in sorted(files):
        executable = "x" if file.stat().st_mode & 0o111 else "-"
        framed += [str(file.relative_to(base)), executable, file.read_bytes()]
    return key(*framed)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Holds the lock `name` of the cache; says so when it has to wait."""
    locks = root() / "locks"
    locks.mkdir(parents=True, exist_ok=True)
    with (locks / f"{name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another build of {name} on this machine")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def entry(name: str, entry_key: str, build: Callable[[Path], None], keep: int | None = None) -> Path:
    """The directory of this entry; `build(directory)` fills it where it isn't there yet.

    With `keep`, a build removes the entries of this name that were used longest ago, beyond that many.
    """
    target = root() / f"{name}-{entry_key}"
    if target.is_dir():
        target.touch()  # lets a person see what is in use
        return target
    with locked(name):
        if target.is_dir():
            return target
        partial = target.with_name(target.name + ".partial")
        remove_tree(partial)
        partial.mkdir(parents=True)
        try:
            build(partial)
            partial.rename(target)
        finally:
            remove_tree(partial)
        if keep is not None:
            for old in _by_use(name)[keep:]:
                remove_tree(old)
    return target


def _by_use(name: str) -> list[Path]:
    """Entries of this name, last used first; a key has no dash, so no other name's are among them."""
    found = [path for path in root().glob(f"{name}-*") if re.fullmatch(r"\w+", path.name[len(name) + 1 :])]
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def remove_tree(path: Path) -> None:
    """Removes a directory tree if it exists, read-only directories (Go's module cache) included."""

    def writable(function: Callable[[str], object], name: str, _: object) -> None:
        Path(name).parent.chmod(0o755)
        function(name)

    if path.is_dir():
        shutil.rmtree(path, onerror=writable)
