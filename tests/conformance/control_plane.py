"""etcd and kube-apiserver, real and alone: no kubelet, no scheduler, no controllers; tests play those.

    with ControlPlane("1.37") as plane:
        async with Client(plane.connection, user_agent="test") as client: …

Both listen on free ports of 127.0.0.1 and die with this process. Start and stop it in the main thread: the
kernel ends the children of a thread with it.
"""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from types import TracebackType
from typing import Any, Self

from kube.configuration import Connection
from tests.cluster import binaries, configuration, credentials
from tests.cluster.configuration import Settings
from tests.cluster.errors import StartError
from tests.cluster.waiting import wait_for

HOST = "127.0.0.1"
START = 120.0  # seconds that the API server may take on a busy machine
# Writes only, each once it is answered: reads cost nothing then.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
    "rules": [{"level": "None", "verbs": ["get", "list", "watch"]}, {"level": "Metadata"}],
}


@dataclass(frozen=True)
class Write:
    """A request that changed something, or tried to: who, what, and the HTTP status of the answer."""

    user: str
    verb: str
    resource: str
    name: str
    status: int


def free_port() -> int:
    with socket.create_server((HOST, 0)) as listener:
        return int(listener.getsockname()[1])


def die_with_parent(*command: str) -> list[str]:
    """argv that runs a command which the kernel kills when the thread that started it ends."""
    return ["setpriv", "--pdeathsig", "KILL", *command]


class ControlPlane:
    """Use as a context manager. `feature_gates`: for the API server, beyond those that the version needs."""

    def __init__(self, version: str, *, feature_gates: Mapping[str, bool] | None = None) -> None:
        self.wanted = version
        self._settings = Settings(feature_gates=feature_gates or {})
        self._started = ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._started.close()

    def _start(self) -> None:
        self.binaries = binaries.obtain(self.wanted)
        self._settings = self._settings.on(self.binaries.minor)
        self._directory = Path(tempfile.mkdtemp(prefix="tessera-api-"))
        self._started.callback(shutil.rmtree, self._directory, ignore_errors=True)
        self.credentials = credentials.issue(self._directory / "pki", 0)
        self.port = free_port()
        self._etcd = f"http://{HOST}:{free_port()}"
        data = self._directory / "etcd"
        etcd = configuration.etcd(data, self._etcd, f"http://{HOST}:{free_port()}")
        self._spawn("etcd", *etcd)
        self.start_api()
        self._started.callback(self.stop_api)

    @property
    def version(self) -> str:
        """Exact: "1.37.2"."""
        return self.binaries.kubernetes

    @property
    def connection(self) -> Connection:
        """The administrator's."""
        file = self.credentials.file
        return Connection(
            server=f"https://{HOST}:{self.port}",
            ca_file=file("ca.crt"),
            client_cert=file("admin.crt"),
            client_key=file("admin.key"),
        )

    def start_api(self) -> None:
        """Starts the API server, and waits until it is ready. Raises StartError."""
        policy = self._directory / "audit-policy.json"
        policy.write_text(json.dumps(_AUDIT_POLICY))
        flags = configuration.apiserver(self.credentials, self._settings, etcd=self._etcd, port=self.port)
        self._api = self._spawn(
            "kube-apiserver",
            *flags,
            f"--bind-address={HOST}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._audit_log}",
        )

        def ready() -> bool:
            with suppress(OSError):
                return bool(self.text("/readyz"))
            if self._api.poll() is not None:
                raise StartError(f"kube-apiserver ended with status {self._api.returncode}:\n{self.tail()}")
            return False

        wait_for(ready, "the API server", START, 0.1)

    def text(self, path: str) -> str:
        """What the administrator reads there: /metrics. Raises OSError."""
        context = ssl.create_default_context(cafile=str(self.credentials.file("ca.crt")))
        context.load_cert_chain(self.credentials.file("admin.crt"), self.credentials.file("admin.key"))
        with urllib.request.urlopen(
            f"https://{HOST}:{self.port}{path}", context=context, timeout=5
        ) as answer:
            return str(answer.read().decode())

    def stop_api(self) -> None:
        """Whoever connects is refused from now on."""
        self._api.kill()
        self._api.wait()

    def hang(self) -> None:
        """The API server takes connections and requests, and answers nothing from now on."""
        self._api.send_signal(SIGSTOP)
        wait_for(self._stands_still, "the API server to stand still", START, 0.01)

    def _stands_still(self) -> bool:
        """A signal reaches the threads of a process one by one."""
        threads = Path(f"/proc/{self._api.pid}/task").glob("*/stat")
        try:
            return all(thread.read_text().rpartition(")")[2].split()[0] == "T" for thread in threads)
        except (FileNotFoundError, ProcessLookupError):  # one has just ended
            return False

    def go_on(self) -> None:
        """After `hang`."""
        self._api.send_signal(SIGCONT)

    def writes(self, user: str) -> list[Write]:
        """All that this user has written so far, oldest first."""
        found = []
        lines = self._audit_log.read_bytes().splitlines() if self._audit_log.exists() else []
        for line in lines:
            event: dict[str, Any] = json.loads(line)
            if event["user"]["username"] == user:
                about = event.get("objectRef") or {}
                found.append(
                    Write(
                        user,
                        event["verb"],
                        about.get("resource", ""),
                        about.get("name", ""),
                        (event.get("responseStatus") or {}).get("code", 0),
                    )
                )
        return found

    def tail(self, lines: int = 25) -> str:
        """The ends of both logs."""
        files = (self._directory / f"{name}.log" for name in ("etcd", "kube-apiserver"))
        return "\n".join(
            f"--- {file.name}\n" + "\n".join(file.read_text(errors="replace").splitlines()[-lines:])
            for file in files
            if file.exists()
        )

    @property
    def _audit_log(self) -> Path:
        return self._directory / "audit.log"

    def _spawn(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(
                die_with_parent(str(self.binaries[program]), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self._started.callback(process.wait)
        self._started.callback(process.kill)
        return process
