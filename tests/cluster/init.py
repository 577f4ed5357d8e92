"""PID 1 of a namespace of the cluster: starts and stops processes by name, reaps every orphan.

Run as `python -m tests.cluster.init SOCKET [-- SETUP…]` by supervisor.py (for the cluster) and by itself (for
nodes); SETUP is a command that must succeed before the socket appears (a node lays out its mounts with it).
Nothing outside the standard library is imported here. It ends by SIGKILL only, and the kernel then ends
everything in the namespace with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class _Entry:
    pid: int
    status: int | None = None


@dataclass
class _Stop:
    """A stop request that waits for its process; `deadline` is when SIGKILL follows."""

    name: str
    deadline: float
    connection: socket.socket


@dataclass
class Init:
    """State and event loop; one thread, so nothing here needs a lock."""

    listener: socket.socket
    entries: dict[str, _Entry] = field(default_factory=dict)
    stops: list[_Stop] = field(default_factory=list)

    def serve(self) -> None:
        """Never returns."""
        wake_read, wake_write = socket.socketpair()
        wake_write.setblocking(False)
        signal.set_wakeup_fd(wake_write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)
        with selectors.DefaultSelector() as selector:
            selector.register(self.listener, selectors.EVENT_READ)
            selector.register(wake_read, selectors.EVENT_READ)
            while True:
                for ready, _ in selector.select(timeout=0.5 if self.stops else None):
                    if ready.fileobj is wake_read:
                        wake_read.recv(4096)
                    else:
                        self._accept()
                self._reap()
                self._settle_stops()

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.settimeout(30.0)
        answered = True
        try:
            line = connection.makefile("r").readline()
            if line:
                answered = self._answer(json.loads(line), connection)
        except (OSError, ValueError, KeyError, TypeError) as error:
            _reply(connection, ok=False, error=f"{type(error).__name__}: {error}")
        finally:
            if answered:
                connection.close()

    def _answer(self, request: dict[str, Any], connection: socket.socket) -> bool:
        """Answers now (True), or leaves the connection open for an answer that comes later (False)."""
        if request["do"] == "start":
            self._start(request)
            _reply(connection, ok=True)
        elif request["do"] == "stop":
            return self._stop(request, connection)
        elif request["do"] == "status":
            self._reap()
            processes = {
                name: {"pid": entry.pid, "status": entry.status} for name, entry in self.entries.items()
            }
            _reply(connection, ok=True, processes=processes)
        else:
            raise ValueError(f"unknown request {request['do']!r}")
        return True

    def _start(self, request: dict[str, Any]) -> None:
        name = request["name"]
        if name in self.entries and self.entries[name].status is None:
            raise ValueError(f"{name} is running")
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            pid = os.fork()
            if pid == 0:
                _exec(request, log)
        finally:
            os.close(log)
        self.entries[name] = _Entry(pid)

    def _stop(self, request: dict[str, Any], connection: socket.socket) -> bool:
        entry = self.entries.get(request["name"])
        if entry is None or entry.status is not None:
            _reply(connection, ok=True)
            return True
        os.kill(entry.pid, request["signal"])
        self.stops.append(_Stop(request["name"], time.monotonic() + request["timeout"], connection))
        return False

    def _reap(self) -> None:
        """Collects every ended child, the orphans that the namespace gave to its PID 1 included."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                code = os.waitstatus_to_exitcode(status)
                for entry in self.entries.values():
                    if entry.pid == pid and entry.status is None:
                        entry.status = code if code >= 0 else 128 - code

    def _settle_stops(self) -> None:
        waiting = []
        for stop in self.stops:
            entry = self.entries[stop.name]
            if entry.status is not None:
                _reply(stop.connection, ok=True)
                stop.connection.close()
                continue
            if time.monotonic() > stop.deadline:
                os.kill(entry.pid, signal.SIGKILL)
            waiting.append(stop)
        self.stops = waiting


def _exec(request: dict[str, Any], log: int) -> None:
    """In the child: a session of its own, output to the log, then the program. Never returns."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(request["directory"])
        os.execvpe(request["argv"][0], request["argv"], request["environment"])  # noqa: S606
    except OSError as error:
        os.write(2, f"can't start {request['argv'][0]}: {error}\n".encode())
    finally:
        os._exit(127)


def _reply(connection: socket.socket, **answer: Any) -> None:
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(answer).encode() + b"\n")


def main(arguments: list[str]) -> None:
    path = Path(arguments[0])
    if setup := arguments[2:]:
        subprocess.run(setup, check=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Bound under another name first: whoever sees the socket can connect.
    hidden = path.with_name("." + path.name)
    listener.bind(str(hidden))
    listener.listen(64)
    hidden.rename(path)
    Init(listener).serve()


if __name__ == "__main__":
    main(sys.argv[1:])
