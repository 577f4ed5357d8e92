"""The cluster's cgroups: one directory `/<name>` in every hierarchy of the machine, v1 and v2 alike.

kubelet's cgroupRoot is that directory, so every Pod's cgroup lies below it, and removing the tree removes
all. Only directories of that name are ever touched.
"""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.errors import MissingError, StartError

# What kubelet insists on; on v2 they must be handed down from the root first.
CONTROLLERS = ("cpuset", "cpu", "io", "memory", "hugetlb", "pids")
REMOVAL = 30.0  # seconds; a cgroup stays busy for a moment after its last process is gone


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy: `version` 1 or 2, `controllers` that v1 attaches to it."""

    mount: Path
    version: int
    controllers: tuple[str, ...] = ()


def hierarchies(mountinfo: str | None = None) -> list[Hierarchy]:
    """All cgroup mounts of the machine (or of this text), without bind mounts of parts of one."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found: dict[Path, Hierarchy] = {}
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, (kind, _, options, *_) = before.split(), after.split()
        if kind not in ("cgroup", "cgroup2") or fields[3] != "/":
            continue
        mount = Path(re.sub(r"\\(\d{3})", lambda match: chr(int(match.group(1), 8)), fields[4]))
        names = tuple(option for option in options.split(",") if option not in ("rw", "ro"))
        found[mount] = Hierarchy(mount, 2 if kind == "cgroup2" else 1, names if kind == "cgroup" else ())
    return list(found.values())


def unified(found: list[Hierarchy]) -> bool:
    """Whether the machine runs on cgroup v2 alone; an empty cgroup2 beside v1 hierarchies doesn't count."""
    return all(hierarchy.version == 2 for hierarchy in found)


def create(name: str) -> list[Path]:
    """Makes `/<name>` in every hierarchy, parents too; no error where it exists.

    Raises MissingError where there is no hierarchy, StartError where one refuses.
    """
    found = hierarchies()
    if not found:
        raise MissingError("no cgroup hierarchy is mounted on this machine (expected one at /sys/fs/cgroup)")
    for hierarchy in found:
        parent = hierarchy.mount
        for element in name.split("/"):
            directory = parent / element
            try:
                if unified(found):
                    _hand_down(parent)
                directory.mkdir(exist_ok=True)
                if "cpuset" in hierarchy.controllers:
                    # A new v1 cpuset is empty, and no process can enter it.
                    for setting in ("cpuset.cpus", "cpuset.mems"):
                        (directory / setting).write_text((parent / setting).read_text())
            except OSError as error:
                raise StartError(f"can't make the cluster's cgroup {directory}: {error}") from error
            parent = directory
        if unified(found):
            _hand_down(parent)
    return [hierarchy.mount / name for hierarchy in found]


def _hand_down(directory: Path) -> None:
    """Enables for the children of a v2 cgroup what it has itself."""
    available = (directory / "cgroup.controllers").read_text().split()
    wanted = [f"+{controller}" for controller in CONTROLLERS if controller in available]
    (directory / "cgroup.subtree_control").write_text(" ".join(wanted))


def remove(name: str, timeout: float = REMOVAL) -> list[Path]:
    """Removes `/<name>` and all below it, deepest first; returns what couldn't be removed within `timeout`
    seconds.
    """
    end = time.monotonic() + timeout
    while True:
        left = [
            hierarchy.mount / name for hierarchy in hierarchies() if not _remove_tree(hierarchy.mount / name)
        ]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def _remove_tree(directory: Path) -> bool:
    with contextlib.suppress(OSError):
        for child in directory.iterdir():
            if child.is_dir():
                _remove_tree(child)
        directory.rmdir()
    return not directory.exists()
