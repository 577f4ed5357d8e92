"""The NVIDIA driver's libraries below a driver root: where they are, of which version, and by which names.

As nvidia-ctk finds them: the file behind libcuda.so.* carries the driver's version, and every
`*.so.<version>` beside it belongs to the driver. Looked for in the directories in which distributions,
NVIDIA's installer and driver containers put them; then where the root's own loader would find them. Only
libraries for this machine's own kind of processor count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdi import elf, ld_cache
from cdi.driver_root import DriverRoot

_VERSIONED = re.compile(r"\.so\.(?P<version>\d+\.\d+(?:\.\d+)*)$", re.ASCII)
# Compilers of device code that carry a number of their own instead of the driver's (since driver 575).
_NUMBERED = "libnvidia-nvvm70.so.*"


@dataclass(frozen=True)
class Library:
    """`inside`: its path below the driver root. `name`: what programs load it by, mostly its soname."""

    inside: PurePosixPath
    name: str


class DriverLibraries:
    """One driver root, seen as a machine (`platform.machine()`) sees it."""

    def __init__(self, root: DriverRoot, machine: str) -> None:
        self._root = root
        self._machine = machine

    def libcuda(self) -> tuple[PurePosixPath, str] | None:
        """The file, and the driver's version; None where there is none."""
        for directory in self.directories():
            for path in sorted(self._root.local(directory).glob("libcuda.so.*")):
                found = self._root.resolve(directory / path.name)
                version = _VERSIONED.search(found.name) if found is not None else None
                if found is not None and version is not None and self._is_ours(found):
                    return found, version["version"]
        return None

    def beside(self, libcuda: PurePosixPath, version: str) -> tuple[Library, ...]:
        """The driver's libraries, in the order of their file names. Of two with one name it is the one whose
        file is called after it."""
        directory = self._root.local(libcuda.parent)
        files = {path.name for pattern in (f"*.so.{version}", _NUMBERED) for path in directory.glob(pattern)}
        found: dict[str, Library] = {}
        for file in sorted(files):
            inside = self._root.resolve(libcuda.parent / file)
            library = elf.read(self._root.local(inside)) if inside is not None else None
            if inside is None or library is None or library.machine != self._machine:
                continue
            # Without a soname the loader knows it by the name it is asked for, which is the file's.
            name = library.soname or file
            if name not in found or _stem(file) == _stem(name):
                found[name] = Library(inside, name)
        return tuple(found.values())

    def named(self, soname: str) -> Path | None:
        """Where we see one of the driver's libraries, found by its soname; None where it is not."""
        for directory in self.directories():
            found = self._root.resolve(directory / soname)
            if found is not None and self._is_ours(found):
                return self._root.local(found)
        return None

    def directories(self) -> Iterator[PurePosixPath]:
        """All directories that may have a driver's libraries, the likely ones first."""
        triple = f"{self._machine}-linux-gnu"
        bases = ("/", "/usr/lib64", f"/usr/lib/{triple}", "/lib64", f"/lib/{triple}", "/usr/lib")
        # Immutable systems: Talos puts its extensions below /usr/local, NixOS links what the system uses.
        others = ("/usr/local/glibc/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/run/opengl-driver/lib")
        seen = set()
        for base in (*bases, *(f"{base}/nvidia/current" for base in bases[1:5]), *others):
            found = self._root.resolve(base)
            if found is not None and found not in seen and self._root.local(found).is_dir():
                seen.add(found)
                yield found
        for path in self._cached():
            found = self._root.resolve(path.parent)
            if found is not None and found not in seen:
                seen.add(found)
                yield found

    def _cached(self) -> Iterator[PurePosixPath]:
        """What the root's loader would take for the driver's main libraries."""
        cache = self._root.resolve("/etc/ld.so.cache")
        if cache is not None:
            for path in ld_cache.libraries(self._root.local(cache).read_bytes()):
                if path.name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                    yield path

    def _is_ours(self, inside: PurePosixPath) -> bool:
        library = elf.read(self._root.local(inside))
        return library is not None and library.machine == self._machine


def _stem(name: str) -> str:
    return name.partition(".so")[0]
