"""Runs of the cluster on this checkout: `.cluster/runs/<id>/`, what remains of a run, and finding runs that
were cut off.

| path | what | how long |
| --- | --- | --- |
| .cluster/runs/<id>/logs/ | every component's log, and Pods' logs | the last runs are kept |
| .cluster/runs/<id>/run.json | what is needed to end it from another process | with the logs |
| <temporary directory>/tessera-<id>/ | sockets, keys, configuration, mount points | removed with the run |
| /tessera-<id> in each cgroup hierarchy | Pods' cgroups | removed with the run |
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.cluster import namespaces, supervisor
from tests.cluster.errors import ClusterError, StartError
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".cluster"
CURRENT = FOLDER / "current"
KEPT = 10  # runs whose logs stay
START = 60.0  # seconds that the supervisor may take to start
END = 120.0  # seconds that the end of a cluster may take


@dataclass(frozen=True)
class Process:
    """A process that can't be mistaken for a later one with its number: `started` is in clock ticks since
    boot.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, _start_time(pid))

    def alive(self) -> bool:
        """A zombie isn't: it waits for its parent, which may be a PID 1 that never asks."""
        with contextlib.suppress(OSError):
            return namespaces.alive(self.pid) and _start_time(self.pid) == self.started
        return False


@dataclass(frozen=True)
class Run:
    """Names and places of one run."""

    id: str
    work: Path

    @property
    def directory(self) -> Path:
        return FOLDER / "runs" / self.id

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    @property
    def cgroup(self) -> str:
        return supervisor.PREFIX + self.id

    @classmethod
    def create(cls) -> Run:
        """A new run with its directories; `work` is short, because it holds sockets (107 bytes at most)."""
        run_id = time.strftime("%m%d-%H%M%S-") + secrets.token_hex(2)
        run = cls(run_id, Path(tempfile.gettempdir()) / f"{supervisor.PREFIX}{run_id}")
        run.work.mkdir(mode=0o700)
        run.logs.mkdir(parents=True)
        return run

    def save(self, process: Process) -> None:
        document = {"id": self.id, "work": str(self.work), "supervisor": asdict(process)}
        (self.directory / "run.json").write_text(json.dumps(document, indent=2) + "\n")


def start_supervisor(run: Run) -> tuple[subprocess.Popen[bytes], Process]:
    """Starts the run's supervisor; returns when its init answers. Raises StartError with what it said."""
    log = run.logs / "supervisor.log"
    module = [sys.executable, "-m", "tests.cluster.supervisor"]
    with log.open("ab") as output:
        # A session of its own: Ctrl-C ends the harness, and the supervisor then clears up after it.
        started = subprocess.Popen(
            [*module, str(run.work), run.cgroup, str(os.getpid())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    process = Process.of(started.pid)
    run.save(process)
    socket = run.work / supervisor.SOCKET

    def look() -> bool:
        if started.poll() is not None:
            raise StartError(f"the cluster's supervisor ended:\n{log.read_text()}")
        return socket.exists()

    try:
        wait_for(look, "the namespaces' init", START, 0.02)
    except BaseException:
        end(run, process)
        raise
    return started, process


def load(directory: Path) -> tuple[Run, Process]:
    """Raises ClusterError where the directory holds no run."""
    try:
        document = json.loads((directory / "run.json").read_text())
        return Run(document["id"], Path(document["work"])), Process(**document["supervisor"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ClusterError(f"{directory} holds no run of a cluster: {error}") from error


def current() -> tuple[Run, Process] | None:
    """The run that `cluster-up` left running, if it still runs."""
    if not CURRENT.exists():
        return None
    run, process = load(CURRENT.resolve())
    return (run, process) if process.alive() else None


def end(run: Run, process: Process) -> None:
    """Ends a run and waits until nothing is left of it. Raises ClusterError with the supervisor's
    complaint.
    """
    if process.alive():
        descriptor = os.pidfd_open(process.pid)
        try:
            os.kill(process.pid, signal.SIGTERM)
            if not select.select([descriptor], [], [], END)[0]:
                raise ClusterError(
                    f"the cluster's supervisor (process {process.pid}) didn't end within {END:.0f} s"
                )
        finally:
            os.close(descriptor)
    if left := supervisor.remove_traces(run.work, run.cgroup):
        raise ClusterError(f"left of run {run.id}: {', '.join(map(str, left))}")


def sweep() -> None:
    """Removes what runs left whose supervisor was killed, and the logs of old runs."""
    ended = []
    for directory in _by_age():
        try:
            run, process = load(directory)
        except ClusterError:  # just being made, or cut off before it had anything
            if time.time() - _made(directory) > 3600:
                ended.append(directory)
            continue
        if not process.alive():
            supervisor.remove_traces(run.work, run.cgroup)
            ended.append(directory)
    for directory in ended[:-KEPT]:
        shutil.rmtree(directory, ignore_errors=True)


def _by_age() -> list[Path]:
    """The runs' directories, oldest first. Other processes may be removing some of them."""
    return sorted((FOLDER / "runs").glob("*/"), key=_made)


def _made(directory: Path) -> float:
    with contextlib.suppress(FileNotFoundError):
        return directory.stat().st_mtime
    return time.time()


def _start_time(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
