"""The library's files on the host, from where containers have them mounted.

`<state>/lib/<version>/` is written once, whole (a directory beside it, synced, renamed), and never changed:
the version has the library's own hash in it, so a running container's library is never swapped under it. Old
versions go when no claim uses them, and no agent either: each has a lock on the directory of its own, which
the kernel takes back when the process ends. `install` and `remove_unused` are called under the node's lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdi import durable

NAME = "libtessera.so"
PRELOAD_NAME = "ld.so.preload"
CONTAINER_LIBRARY = "/usr/lib/tessera/libtessera.so"
CONTAINER_PRELOAD = "/etc/ld.so.preload"
CONTAINER_DRIVER = PurePosixPath("/run/tessera/driver")  # as compiled into the shims


@dataclass(frozen=True)
class InstalledLibrary:
    """Paths are the same on the host and in our Pod. `shims`: by the soname of what each stands in for."""

    version: str
    library: Path
    preload: Path
    shims: Mapping[str, Path]


def install(source: Path, shims: Mapping[str, Path], release: str, state_dir: Path) -> InstalledLibrary:
    """Puts the library and its shims (by soname) in their place if they are not there. Raises OSError."""
    contents = {NAME: source.read_bytes(), **{path.name: path.read_bytes() for path in shims.values()}}
    version = f"{release}-{_digest(contents)[:12]}"
    target = state_dir / "lib" / version
    installed = InstalledLibrary(
        version,
        target / NAME,
        target / PRELOAD_NAME,
        {soname: target / path.name for soname, path in shims.items()},
    )
    if _is_whole(target, contents):
        return installed
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=durable.TEMPORARY, dir=target.parent))
    try:
        for name, content in contents.items():
            durable.write(temporary / name, content, mode=0o755)
        durable.write(temporary / PRELOAD_NAME, _PRELOAD, mode=0o644)
        temporary.chmod(0o755)
        if target.exists():  # not whole: somebody has been at it
            shutil.rmtree(target)
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    durable.sync_directory(target.parent)
    return installed


def occupy(installed: InstalledLibrary) -> int:
    """Keeps other agents from removing this version until `release`, or our end. Raises OSError."""
    descriptor = os.open(installed.library.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def release(occupied: int) -> None:
    """What `occupy` gave."""
    os.close(occupied)


def remove_unused(state_dir: Path, in_use: Collection[str]) -> tuple[str, ...]:
    """Removes versions that neither claims (`in_use`) nor agents use, and what a crash left; says which."""
    removed = []
    for path in sorted((state_dir / "lib").glob("[!.]*")):
        if path.is_dir() and path.name not in in_use and not _is_occupied(path):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path.name)
    # The temporary ones start with a dot: runtimes and people skip them.
    for path in (state_dir / "lib").glob(f"{durable.TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
    return tuple(removed)


def _is_occupied(directory: Path) -> bool:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


_PRELOAD = f"{CONTAINER_LIBRARY}\n".encode()


def _digest(contents: Mapping[str, bytes]) -> str:
    digests = (hashlib.sha256(content).digest() for content in contents.values())
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _is_whole(directory: Path, contents: Mapping[str, bytes]) -> bool:
    try:
        return all(
            (directory / name).read_bytes() == content
            for name, content in {**contents, PRELOAD_NAME: _PRELOAD}.items()
        )
    except OSError:
        return False
