"""The init that starts, stops and reaps the processes of a namespace; here as an ordinary process."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.control import Control
from tests.cluster.errors import ClusterError

ROOT = Path(__file__).resolve().parents[3]
PR_SET_CHILD_SUBREAPER = 36
PATH = "/bin:/usr/bin"

Started = tuple[Control, subprocess.Popen[bytes]]


@pytest.fixture
def init(tmp_path: Path) -> Iterator[Started]:
    path = tmp_path / "init.sock"

    def adopt_orphans() -> None:
        # What being PID 1 does; inherited over exec.
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    command = [sys.executable, "-m", "tests.cluster.init", str(path)]
    process = subprocess.Popen(command, cwd=ROOT, preexec_fn=adopt_orphans)  # noqa: PLW1509 - one thread
    until(path.exists)
    control = Control(path)
    control.processes()  # who answers has its signal handlers
    yield control, process
    process.kill()
    process.wait()


def until(look: Callable[[], bool], timeout: float = 60.0) -> None:
    end = time.monotonic() + timeout
    while not look():
        assert time.monotonic() < end
        time.sleep(0.01)


def start(control: Control, name: str, script: str, log: Path, **environment: str) -> None:
    control.start(name, ["sh", "-c", script], log=log, directory=log.parent, environment=environment)


def test_output_directory_and_environment(init: Started, tmp_path: Path) -> None:
    control, _ = init
    log = tmp_path / "log"
    log.write_text("before\n")
    start(
        control,
        "one",
        "echo $GREETING; pwd; echo oops >&2; exit 3",
        log,
        GREETING="hello",
        PATH=PATH,
    )
    until(lambda: control.processes()["one"].status == 3)
    assert log.read_text() == f"before\nhello\n{tmp_path}\noops\n"


def test_program_that_is_not_there(init: Started, tmp_path: Path) -> None:
    control, _ = init
    control.start("none", ["/no/such"], log=tmp_path / "log", directory=Path("/"), environment={})
    until(lambda: control.processes()["none"].status == 127)
    assert "can't start /no/such: [Errno 2] No such file" in (tmp_path / "log").read_text()


@pytest.mark.parametrize(
    ("trap", "number", "status"),
    [
        pytest.param("-", signal.SIGTERM, 143, id="ends at once"),
        pytest.param("'exit 7'", signal.SIGTERM, 7, id="cleans up"),
        pytest.param("''", signal.SIGTERM, 137, id="must be killed"),
        pytest.param("-", signal.SIGKILL, 137, id="is killed"),
    ],
)
def test_stop(init: Started, tmp_path: Path, trap: str, number: int, status: int) -> None:
    control, _ = init
    script = f"trap {trap} TERM; echo up; while :; do sleep 0.05; done"
    start(control, "one", script, tmp_path / "log", PATH=PATH)
    until(lambda: "up" in (tmp_path / "log").read_text())
    control.stop("one", number, timeout=0.5 if trap == "''" else 30)
    assert control.processes()["one"].status == status
    control.stop("one", number)  # no error where it has ended
    control.stop("nobody", number)


def test_name_is_taken_while_it_runs(init: Started, tmp_path: Path) -> None:
    control, _ = init
    start(control, "one", "sleep 60", tmp_path / "log", PATH=PATH)
    with pytest.raises(ClusterError, match="start one: ValueError: one is running"):
        start(control, "one", "sleep 60", tmp_path / "log")
    first = control.processes()["one"].pid
    control.stop("one", signal.SIGKILL)
    start(control, "one", "sleep 60", tmp_path / "log", PATH=PATH)
    assert control.processes()["one"].pid != first
    control.stop("one", signal.SIGKILL)


def test_orphans_are_reaped(init: Started, tmp_path: Path) -> None:
    control, process = init
    start(control, "parent", "(sleep 0.2; exit 5) & echo $!", tmp_path / "log", PATH=PATH)
    until(lambda: control.processes()["parent"].status == 0)
    orphan = int((tmp_path / "log").read_text())
    until(lambda: not Path(f"/proc/{orphan}").exists())
    assert process.poll() is None


def test_signals_and_garbage_do_not_end_it(init: Started) -> None:
    control, process = init
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(process.pid, number)
    with control._connect() as connection:
        connection.sendall(b"not json\n")
        assert b'"ok": false' in connection.recv(1000)
    with control._connect():
        pass  # nothing asked
    with pytest.raises(ClusterError, match="unknown request 'dance'"):
        control._ask(do="dance")
    with pytest.raises(ClusterError, match="KeyError"):
        control._ask(do="start", name="x")
    assert control.processes() == {}


def test_pid_is_seen_from_outside(init: Started) -> None:
    control, process = init
    assert control.pid() == process.pid


def test_no_socket(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="has the cluster ended"):
        Control(tmp_path / "none.sock").processes()
