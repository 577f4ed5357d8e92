"""The library's files on the host, from where containers have them mounted.

`<state>/lib/<version>/` is written once, whole (a directory beside it, synced, renamed), and never changed:
the version has the library's own hash in it, so a running container's library is never swapped under it. Old
versions go when no claim uses them.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from cdi import durable

NAME = "libtessera.so"
PRELOAD_NAME = "ld.so.preload"
CONTAINER_LIBRARY = "/usr/lib/tessera/libtessera.so"
CONTAINER_PRELOAD = "/etc/ld.so.preload"


@dataclass(frozen=True)
class InstalledLibrary:
    """Both paths are the same on the host and in our Pod."""

    version: str
    library: Path
    preload: Path


def install(source: Path, release: str, state_dir: Path) -> InstalledLibrary:
    """Puts the library in its place if it is not there. Raises OSError."""
    content = source.read_bytes()
    version = f"{release}-{hashlib.sha256(content).hexdigest()[:12]}"
    target = state_dir / "lib" / version
    installed = InstalledLibrary(version, target / NAME, target / PRELOAD_NAME)
    if _is_whole(installed, content):
        return installed
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=durable.TEMPORARY, dir=target.parent))
    try:
        durable.write(temporary / NAME, content, mode=0o755)
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


def remove_unused(state_dir: Path, in_use: Collection[str]) -> tuple[str, ...]:
    """Removes versions that nobody uses, and what a crash left; returns their names."""
    removed = []
    for path in sorted((state_dir / "lib").glob("*")):
        if path.is_dir() and path.name not in in_use:
            shutil.rmtree(path, ignore_errors=True)
            removed.append(path.name)
    # glob("*") skips nothing, but the temporary ones start with a dot on purpose: runtimes and people skip
    # them.
    for path in (state_dir / "lib").glob(f"{durable.TEMPORARY}*"):
        shutil.rmtree(path, ignore_errors=True)
    return tuple(removed)


_PRELOAD = f"{CONTAINER_LIBRARY}\n".encode()


def _is_whole(installed: InstalledLibrary, content: bytes) -> bool:
    try:
        return installed.library.read_bytes() == content and installed.preload.read_bytes() == _PRELOAD
    except OSError:
        return False
