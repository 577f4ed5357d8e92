"""The webhooks that a benchmark compares: ours and HAMi-DRA's, as processes beside one API server."""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

from claim_mutator import certificates
from kube.client import Client
from tests.bench.reviews import BadAnswer, Bodies, send
from tests.conformance.control_plane import HOST, ControlPlane, die_with_parent, free_port
from tests.conformance.host import Host, in_cluster, make

PEER = "PEER_HAMI_DRA"
_START = 30.0  # seconds
_PEER_CONFIGURATION = {
    "nvidia": {
        "resourceCountName": "nvidia.com/gpu",
        "resourceMemoryName": "nvidia.com/gpumem",
        "resourceCoreName": "nvidia.com/gpucores",
        "resourceMemoryPercentageName": "nvidia.com/gpumem-percentage",
        "resourcePriorityName": "nvidia.com/priority",
    }
}


class NotReady(Exception):  # noqa: N818 - what it is
    """A webhook that does not start; the message has the end of its log."""


class Webhook:
    """One process that listens on `port`. Use `end` when done."""

    def __init__(self, name: str, plane: ControlPlane, root: Path) -> None:
        self.name = name
        self.port = free_port()
        self.http = 0
        """Of /metrics, where there are any."""
        self.directory = root / name
        self.directory.mkdir()
        self._log = self.directory / "log"
        held = certificates.renewed(None, ["localhost"], dt.datetime.now(dt.UTC))
        self.ca_bundle = base64.b64encode(held.ca_bundle).decode()
        (self.directory / "tls.crt").write_bytes(held.certificate)
        (self.directory / "tls.key").write_bytes(held.key)
        self._plane = plane
        self._host = asyncio.run(_host(plane, name, self.directory / "host"))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        """As in a Pod: with a service account's token."""
        argv, variables = in_cluster(self._plane, self._host, command)
        own = {key: value for key, value in os.environ.items() if not key.startswith("TESSERA_")}
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                die_with_parent(*argv),
                env=own | variables,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + _START
        bodies = Bodies({})
        while True:
            with suppress(OSError, BadAnswer):
                send(self.port, bodies, 1, count=1)
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise NotReady(f"{self.name} does not answer:\n{self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def resident(self) -> float:
        """MiB."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def own_seconds(self) -> tuple[float, float]:
        """Reviews converted, and the time that they took inside."""
        with urllib.request.urlopen(f"http://{HOST}:{self.http}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        name = "tessera_mutator_admission_duration_seconds"
        count, total = (
            float(re.findall(rf'^{name}_{part}{{result="converted"}} (\S+)$', text, re.MULTILINE)[0])
            for part in ("count", "sum")
        )
        return count, total

    def end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def ours(plane: ControlPlane, root: Path) -> Webhook:
    """Ready: it knows what there is in the cluster."""
    found = Webhook("ours", plane, root)
    found.http = http = free_port()
    found.start(
        sys.executable, "-m", "claim_mutator.main",
        "--listen", f"{HOST}:{found.port}", "--http-address", f"{HOST}:{http}",
        "--namespace", "default",
        "--tls-directory", str(found.directory),
    )  # fmt: skip
    deadline = time.monotonic() + _START
    while time.monotonic() < deadline:
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{http}/readyz", timeout=5) as answer:
            if answer.status == 200:
                return found
        time.sleep(0.05)
    found.end()
    raise NotReady("ours is not ready")


def peer(plane: ControlPlane, root: Path) -> Webhook | None:
    """The one that PEER_HAMI_DRA names, if it does, its client's limits raised. Raises FileNotFoundError."""
    named = os.environ.get(PEER)
    if not named:
        return None
    binary = Path(named).absolute()
    if not os.access(binary, os.X_OK):
        raise FileNotFoundError(f"{PEER}={named} is no program")
    found = Webhook("peer", plane, root)
    configuration = found.directory / "device-config.yaml"
    configuration.write_text(json.dumps(_PEER_CONFIGURATION))
    found.start(
        str(binary),
        f"--bind-address={HOST}", f"--secure-port={found.port}", f"--cert-dir={found.directory}",
        "--kube-api-qps=100000", "--kube-api-burst=100000",
        "--metrics-bind-address=0", "--health-probe-bind-address=0",
        f"--device-config-file={configuration}",
    )  # fmt: skip
    return found


async def _host(plane: ControlPlane, name: str, root: Path) -> Host:
    async with Client(plane.connection, user_agent="bench") as client:
        return await make(plane, client, f"node-{name}", root)
