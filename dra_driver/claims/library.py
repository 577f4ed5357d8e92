"""The library's files on the host, from where containers have them mounted.

`<state>/lib/<version>/` is written once, whole (a directory beside it, synced, renamed), and never changed:
the version has the library's own hash in it, so a running container's library is never swapped under it. Old
versions go when no claim uses them, and no agent either: each has a lock on the directory of its own, which
the kernel takes back when the process ends. `install` and `remove_unused` are called under the node's lock.

An agent keeps the files of all versions open, too. All containers have the same ones mounted, and root in
each owns them: with a lease (fcntl's F_SETLEASE, which nobody gets on a file that is open elsewhere) one
tenant would hold up every program that starts in any container.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdi import durable
from dra_driver.claims.selinux import Label, leave

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


def install(
    source: Path, shims: Mapping[str, Path], release: str, state_dir: Path, label: Label = leave
) -> InstalledLibrary:
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
    names = (*contents, PRELOAD_NAME)
    if _is_whole(target, contents):
        _label(target, names, label)
        return installed
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=durable.TEMPORARY, dir=target.parent))
    try:
        for name, content in contents.items():
            durable.write(temporary / name, content, mode=0o755)
        durable.write(temporary / PRELOAD_NAME, _PRELOAD, mode=0o644)
        temporary.chmod(0o755)
        _label(temporary, names, label)
        if target.exists():  # not whole: somebody has been at it
            shutil.rmtree(target)
        temporary.replace(target)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    durable.sync_directory(target.parent)
    return installed


def _label(directory: Path, names: Iterable[str], label: Label) -> None:
    for name in names:
        label(directory / name)


def occupy(installed: InstalledLibrary) -> ExitStack:
    """Keeps other agents from removing this version, and tenants from taking leases on the files of any.

    Until it is closed, or our end. Raises OSError.
    """
    with ExitStack() as stack:
        directory = os.open(installed.library.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, directory)
        fcntl.flock(directory, fcntl.LOCK_SH)
        for path in installed.library.parent.parent.glob("[!.]*/*"):
            with suppress(BlockingIOError):  # of one who was faster; he loses it within a minute
                stack.callback(os.close, os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        return stack.pop_all()


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
            durable.read(directory / name) == content
            for name, content in {**contents, PRELOAD_NAME: _PRELOAD}.items()
        )
    except OSError:
        return False
