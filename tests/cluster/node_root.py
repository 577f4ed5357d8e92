"""Lays out the file system of one node, inside the node's own mount namespace; run once by its init.

    python -m tests.cluster.node_root STATE NAME LOGS [KEEP…]

STATE becomes a tmpfs that holds all the node writes: it vanishes with the namespace, and nothing has to be
deleted. Overlays over /etc and /var/lib, and tmpfs on /run and /var/log, hide the machine's own (its CDI and
CNI directories, /var/lib/kubelet, sockets). LOGS (Pods' logs) and the KEEP directories stay reachable under
their own names, and writable, even where they lie below something that is covered.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path

OVERLAID = ("/etc", "/var/lib")
EMPTY = ("/run", "/var/log")
# kubelet writes these for the whole machine. It sees the values it wants, and the machine keeps its own.
SYSCTLS = {
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


def mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *arguments], check=True)


def lay_out(state: Path, name: str, logs: Path, keep: list[Path]) -> None:
    # Opened before anything covers them.
    descriptors = {path: os.open(path, os.O_PATH | os.O_DIRECTORY) for path in [*keep, logs]}
    state.mkdir(parents=True, exist_ok=True)
    mount("-t", "tmpfs", "-o", "mode=755", "tessera-node", state)
    mount("-t", "proc", "proc", "/proc")
    state_descriptor = os.open(state, os.O_PATH | os.O_DIRECTORY)
    _show_sysctls(state)
    for path in OVERLAID:
        upper, work = (
            state / "overlay" / path.strip("/").replace("/", "-") / part for part in ("upper", "work")
        )
        upper.mkdir(parents=True)
        work.mkdir()
        mount("-t", "overlay", "-o", f"lowerdir={path},upperdir={upper},workdir={work}", "tessera-node", path)
    for path in EMPTY:
        mount("-t", "tmpfs", "-o", "mode=755", "tessera-node", path)
    for kept, descriptor in {**descriptors, state: state_descriptor}.items():
        _uncover(kept, descriptor)
        os.close(descriptor)
    _fill(state, name, logs)
    # Kubernetes propagates mounts between Pods and the node; nothing of it reaches the machine's own
    # namespace.
    mount("--make-rshared", "/")


def _show_sysctls(state: Path) -> None:
    values = SYSCTLS | {"kernel/random/boot_id": str(uuid.uuid4())}
    for key, value in values.items():
        file = state / "sysctl" / key.replace("/", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_text(value + "\n")
        mount("--bind", file, f"/proc/sys/{key}")


def _uncover(path: Path, descriptor: int) -> None:
    """Where an overlay or tmpfs now covers `path`, puts the directory itself back on top."""
    if not any(path.is_relative_to(covered) for covered in (*OVERLAID, *EMPTY)):
        return
    path.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["mount", "--bind", f"/proc/self/fd/{descriptor}", path], check=True, pass_fds=[descriptor]
    )


def _fill(state: Path, name: str, logs: Path) -> None:
    """Directories and files that programs expect on a node."""
    for directory in ("/run/lock", "/run/netns", "/run/cdi", "/run/fakegpu", "/etc/cdi", "/etc/cni/net.d"):
        Path(directory).mkdir(parents=True, exist_ok=True)
    if not Path("/var/run").is_symlink():  # CDI's directory is /var/run/cdi
        mount("--bind", "/run", "/var/run")
    for part in ("kubelet", "containerd", "cni", "tessera"):
        source, target = state / part, Path("/var/lib", part)
        source.mkdir()
        target.mkdir(exist_ok=True)
        mount("--bind", source, target)
    Path("/var/log/pods").mkdir()
    mount("--bind", logs, "/var/log/pods")
    resolver = Path("/etc/resolv.conf")  # often a link into /run, which is empty now
    resolver.unlink(missing_ok=True)
    resolver.write_text("nameserver 10.96.0.10\n")
    Path("/etc/hostname").write_text(f"{name}\n")
    Path("/etc/hosts").write_text(f"127.0.0.1 localhost {name}\n")
    machine_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{state}{name}").hex
    Path("/etc/machine-id").write_text(machine_id + "\n")
    socket.sethostname(name)


if __name__ == "__main__":
    lay_out(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), [Path(argument) for argument in sys.argv[4:]])
