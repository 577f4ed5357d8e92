"""The driver's libraries, covered by others that stand in for them (`shim`). Pure.

A shim is mounted wherever a container finds one of these libraries, under whatever name and of whatever kind
of processor: what is not covered would be a way past it. A library that a shim can't stand in for, of 32 bits
say, then can't be loaded at all. The driver's own are mounted once more, where only the shims look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from cdi.driver_files import READ_ONLY
from cdi.errors import DriverNotReadyError
from cdi.model import Mount

SONAMES = ("libcuda.so.1", "libnvidia-ml.so.1")


@dataclass(frozen=True)
class Covered:
    """One of the driver's libraries: `own` is its path on the host; `paths` are where containers find it."""

    soname: str
    own: str
    paths: tuple[str, ...]


def covered_by(own: Mapping[str, str], mounts: Iterable[Mount]) -> tuple[Covered, ...]:
    """`own`: path on the host by soname; `mounts`: what brings the driver. Raises DriverNotReadyError."""
    mounts = tuple(mounts)
    found = []
    for soname in SONAMES:
        paths = tuple(
            dict.fromkeys(mount.container_path for mount in mounts if is_named(mount.container_path, soname))
        )
        if soname not in own or not paths:
            where = "the driver has none" if soname not in own else "no document mounts it"
            raise DriverNotReadyError(f"a shim can't take the place of {soname}: {where}")
        found.append(Covered(soname, own[soname], paths))
    return tuple(found)


def is_named(path: str, soname: str) -> bool:
    """Whether a path is that library's, with any version or none at its end."""
    stem = soname.removesuffix(".1")
    name = PurePosixPath(path).name
    return name == stem or name.startswith(f"{stem}.")


def shim_mounts(
    covered: Iterable[Covered], shims: Mapping[str, str], directory: PurePosixPath
) -> Iterator[Mount]:
    """`shims`: path on the host by soname; `directory`: where containers have the driver's own."""
    for library in covered:
        yield Mount(host_path=library.own, container_path=str(directory / library.soname), options=READ_ONLY)
        for path in library.paths:
            yield Mount(host_path=shims[library.soname], container_path=path, options=READ_ONLY)
