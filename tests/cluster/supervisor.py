"""The process outside the namespaces that outlives the harness, and takes everything away.

    python -m tests.cluster.supervisor WORK NAME HARNESS_PID

It makes the cluster's cgroups (NAME), starts the init that holds the cluster's namespaces (socket
WORK/init.sock), and waits for one of: the end of the harness (SIGKILL included, seen through a pidfd),
SIGTERM, the end of the init. Then it kills the init (the kernel ends every process, mount and interface with
it) and removes cgroups and WORK. While WORK holds the file `detached`, the harness's end is no reason to
stop: that is `make cluster-up`.

Crash points: if this process is killed, the kernel kills the init (PR_SET_PDEATHSIG, twice: unshare's and the
init's); cgroup directories and WORK stay until `sweep` of the next start finds them.
"""

from __future__ import annotations

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.cluster import cgroups, namespaces

ROOT = Path(__file__).resolve().parents[2]
SOCKET = "init.sock"
DETACHED = "detached"
PREFIX = "tessera-"  # of cgroups and working directories
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_LIBC = ctypes.CDLL(None, use_errno=True)


def main(arguments: list[str]) -> int:
    work, name, harness = Path(arguments[0]), arguments[1], int(arguments[2])
    watched = os.pidfd_open(harness)
    if os.getppid() != harness:  # it ended before the line above; the number may be somebody else's
        remove_traces(work, name)
        return 1
    # A killed unshare leaves the init to us, and only its parent can wait for it.
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    stop_read, stop_write = os.pipe()
    os.set_blocking(stop_write, False)
    signal.set_wakeup_fd(stop_write)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    try:
        cgroups.create(name)
        holder = _start_init(work)
        _wait(watched, stop_read, holder, work / DETACHED)
        _end(holder)
    finally:
        left = remove_traces(work, name)
    for path in left:
        print(f"can't remove {path}", flush=True)
    return 1 if left else 0


def _start_init(work: Path) -> subprocess.Popen[bytes]:
    init = [sys.executable, "-m", "tests.cluster.init", str(work / SOCKET)]
    # PLW1509: this process has one thread.
    return subprocess.Popen(
        namespaces.unshare(*init),
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        preexec_fn=_die_with_parent,  # noqa: PLW1509
    )


def _die_with_parent() -> None:
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _wait(watched: int, stop: int, holder: subprocess.Popen[bytes], detached: Path) -> None:
    """Returns when the cluster has to end."""
    ended = os.pidfd_open(holder.pid)
    poll = select.poll()
    for descriptor in (watched, stop, ended):
        poll.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if stop in ready or ended in ready:
            return
        if watched in ready:
            if not detached.exists():
                return
            poll.unregister(watched)


def _end(holder: subprocess.Popen[bytes]) -> None:
    """Kills the holder and waits until its PID namespace, and so every process in it, is gone."""
    children = [int(pid) for pid in _children(holder.pid)]
    waits = [os.pidfd_open(pid) for pid in children if namespaces.alive(pid)]
    for pid in children:
        os.kill(pid, signal.SIGKILL)
    holder.kill()
    holder.wait()
    # An init's pidfd is readable when the kernel has killed and reaped the whole namespace.
    for descriptor in waits:
        select.select([descriptor], [], [], 30.0)
        os.close(descriptor)
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.01)
        except ChildProcessError:
            return


def _children(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []


def remove_traces(work: Path, name: str) -> list[Path]:
    """Removes the cluster's cgroups and working directory; returns what is left of them."""
    if not name.startswith(PREFIX) or not work.name.startswith(PREFIX):
        raise ValueError(f"{name}, {work}: not a cluster of ours")
    left = cgroups.remove(name)
    shutil.rmtree(work, ignore_errors=True)
    return [*left, work] if work.exists() else left


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
