"""The control socket of an init process (see init.py): one JSON object a line, one line back.

    {"do": "start", "name": "kubelet", "argv": […], "log": "/…", "environment": {…}, "directory": "/…"}
    {"do": "stop", "name": "kubelet", "signal": 15, "timeout": 10.0}
    {"do": "status"}    → {"ok": true, "processes": {"kubelet": {"pid": 12, "status": null}}}

Answers are {"ok": true, …} or {"ok": false, "error": "…"}. `pid` is the number inside the cluster's PID
namespace, `status` the exit status as a shell says it (143: ended by SIGTERM), null while the process runs.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.errors import ClusterError


@dataclass(frozen=True)
class Process:
    """A process that an init started under a name; `status` is None while it runs."""

    name: str
    pid: int
    status: int | None


class Control:
    """Talks to one init; each request is a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def start(
        self, name: str, argv: list[str], *, log: Path, directory: Path, environment: Mapping[str, str]
    ) -> None:
        """Starts a process; its output is appended to `log`. Raises ClusterError where `name` still runs."""
        self._ask(
            do="start",
            name=name,
            argv=argv,
            log=str(log),
            directory=str(directory),
            environment=dict(environment),
        )

    def stop(self, name: str, signal: int, timeout: float = 10.0) -> None:
        """Signals a process and waits for its end; SIGKILL after `timeout` seconds. No error where it doesn't
        run.
        """
        self._ask(do="stop", name=name, signal=int(signal), timeout=timeout)

    def processes(self) -> dict[str, Process]:
        answer = self._ask(do="status")["processes"]
        return {name: Process(name, entry["pid"], entry["status"]) for name, entry in answer.items()}

    def pid(self) -> int:
        """The init's own PID as this process sees it: the kernel translates it between PID namespaces."""
        with self._connect() as connection:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        pid: int = struct.unpack("3i", credentials)[0]
        return pid

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(60.0)
        try:
            connection.connect(str(self._path))
        except OSError:
            connection.close()
            raise
        return connection

    def _ask(self, **request: Any) -> dict[str, Any]:
        try:
            with self._connect() as connection, connection.makefile("rw") as stream:
                stream.write(json.dumps(request) + "\n")
                stream.flush()
                line = stream.readline()
        except OSError as error:
            raise ClusterError(f"{self._path}: {error} (has the cluster ended?)") from error
        answer: dict[str, Any] = json.loads(line) if line else {"ok": False, "error": "it ended"}
        if not answer["ok"]:
            raise ClusterError(f"{request['do']} {request.get('name', '')}: {answer['error']}")
        return answer
