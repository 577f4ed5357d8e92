"""What a cluster has on this machine, and what of it is there later: for tests that nothing stays behind."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cgroups
from tests.cluster.runs import Process, Run

NAMESPACES = ("mnt", "net", "pid", "uts", "ipc")
# Places of a real node that the machine's own Kubernetes or container engine would use.
PLACES = (
    "/etc/cdi",
    "/etc/cni",
    "/opt/cni",
    "/opt/containerd",
    "/opt/tessera",
    "/run/cdi",
    "/run/containerd",
    "/run/fakegpu",
    "/run/netns",
    "/run/nvidia",
    "/run/tessera",
    "/usr/libexec/kubernetes",
    "/usr/local/bin",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/tessera",
    "/var/log/containers",
    "/var/log/pods",
    "/var/run/cdi",
)
SYSCTLS = (
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "net/ipv4/ip_forward",
)


@dataclass(frozen=True)
class Host:
    """The machine's own state, apart from processes: equal before, while and after a cluster runs."""

    mounts: tuple[str, ...]
    places: tuple[tuple[str, tuple[str, ...] | None], ...]
    sysctls: tuple[str, ...]
    interfaces: tuple[str, ...]

    @classmethod
    def look(cls) -> Host:
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        return cls(
            mounts=tuple(mounts),
            places=tuple((place, _listing(Path(place))) for place in PLACES),
            sysctls=tuple((Path("/proc/sys") / name).read_text() for name in SYSCTLS),
            interfaces=tuple(sorted(os.listdir("/sys/class/net"))),  # noqa: PTH208 - names are enough
        )


@dataclass(frozen=True)
class Footprint:
    """A running cluster: its processes (pid, start time) and their namespaces ("net:[4026532…]").

    `held` are descriptors of these: while one is open, no other cluster's namespace is given its number.
    """

    run: Run
    processes: frozenset[tuple[int, int]]
    namespaces: frozenset[str]
    held: tuple[int, ...]

    @classmethod
    def of(cls, run: Run, supervisor: int) -> Footprint:
        own = {_link(os.getpid(), kind) for kind in NAMESPACES}
        processes: set[tuple[int, int]] = set()
        held: dict[str, int] = {}
        for pid in _descendants(supervisor):
            with contextlib.suppress(OSError):  # it may end meanwhile
                processes.add((pid, Process.of(pid).started))
                for kind in NAMESPACES:
                    descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                    name = f"{kind}:[{os.fstat(descriptor).st_ino}]"
                    if name in own or held.setdefault(name, descriptor) != descriptor:
                        os.close(descriptor)
        return cls(run, frozenset(processes), frozenset(held), tuple(held.values()))

    def __del__(self) -> None:
        for descriptor in self.held:
            os.close(descriptor)

    def left(self) -> list[str]:
        """Every trace that is there now, in words; empty where the cluster is gone without a trace."""
        traces = [f"process {pid}" for pid, started in self.processes if Process(pid, started).alive()]
        for pid in _pids():
            kept = self.namespaces & {_link(pid, kind) for kind in NAMESPACES}
            traces += [f"namespace {name} (process {pid})" for name in kept]
            if self.run.cgroup in _text(Path(f"/proc/{pid}/cgroup")):
                traces.append(f"process {pid} in a cgroup of the cluster")
        for hierarchy in cgroups.hierarchies():
            # Not rglob: what it looks at is being removed meanwhile, and os.walk passes over what is gone.
            found = (Path(top) for top, names, _ in os.walk(hierarchy.mount) if self.run.cgroup in names)
            traces += [f"cgroup {parent / self.run.cgroup}" for parent in found]
        for file in ("/proc/self/mountinfo", "/proc/net/unix"):
            traces += [line for line in _text(Path(file)).splitlines() if self.run.work.name in line]
        return traces + ([f"directory {self.run.work}"] if self.run.work.exists() else [])


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _descendants(pid: int) -> set[int]:
    found = {pid}
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(task).split():
            found |= _descendants(int(child))
    return found


def _link(pid: int, kind: str) -> str:
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/{kind}").readlink())
    return ""


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _listing(directory: Path) -> tuple[str, ...] | None:
    return tuple(sorted(path.name for path in directory.iterdir())) if directory.is_dir() else None
