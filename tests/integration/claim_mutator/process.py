"""A running tessera-mutator, and an API server's way to call it."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import re
import signal
import socket
import ssl
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from cryptography import x509

from tests.integration.api_server import ApiServer
from tests.unit.claim_mutator.pods import container, manifest

NAMESPACE = "tessera-system"
WEBHOOK = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
SECRETS = "/api/v1/secrets"
ROOT = Path(__file__).parents[3]
POD = manifest(container(gpu="1", gpumem="3000", gpucores="30"))


class Mutator:
    """One process; `webhook` and `endpoints` are its addresses."""

    def __init__(self, process: asyncio.subprocess.Process, api: ApiServer) -> None:
        self.process = process
        self.api = api
        self.log: list[str] = []
        self.webhook = self.endpoints = ""

    async def follow(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.log.append(line.decode())
            if found := re.search(r"taking reviews on (\S+)", self.log[-1]):
                self.webhook = found[1]
            if found := re.search(r"metrics and probes on (\S+)", self.log[-1]):
                self.endpoints = found[1]

    async def until(self, condition: Callable[[], bool | Awaitable[bool]], seconds: float = 60.0) -> None:
        """Waits; fails with the log."""
        end = time.monotonic() + seconds
        while True:
            answer = condition()
            if answer if isinstance(answer, bool) else await answer:
                return
            assert time.monotonic() < end, "".join(self.log)
            await asyncio.sleep(0.05)

    async def ready(self, seconds: float = 60.0) -> None:
        """Waits for /readyz and both addresses; fails with the log."""
        end = time.monotonic() + seconds
        while True:
            assert time.monotonic() < end, "".join(self.log)
            assert self.process.returncode is None, "".join(self.log)
            if self.webhook and self.endpoints and (await self.get("/readyz"))[0] == 200:
                return
            await asyncio.sleep(0.05)

    async def get(self, path: str) -> tuple[int, str]:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://{self.endpoints}{path}") as answer,
        ):
            return answer.status, await answer.text()

    async def metric(self, line: str) -> float:
        """The value of a series."""
        _, text = await self.get("/metrics")
        (found,) = [each for each in text.splitlines() if each.startswith(f"{line} ")]
        return float(found.split()[-1])

    async def until_metric(self, line: str, value: float, seconds: float = 60.0) -> None:
        """Waits until a series has the value; fails with the log."""
        end = time.monotonic() + seconds
        while await self.metric(line) != value:
            assert time.monotonic() < end, "".join(self.log)
            await asyncio.sleep(0.05)

    def serial(self, trust: ssl.SSLContext) -> int:
        """The serial number of the certificate that it shows to a new connection."""
        host, _, port = self.webhook.rpartition(":")
        with (
            socket.create_connection((host, int(port)), 60) as plain,
            trust.wrap_socket(plain, server_hostname=f"tessera-mutator.{NAMESPACE}.svc") as secure,
        ):
            raw = secure.getpeercert(binary_form=True)
        assert raw is not None
        return x509.load_der_x509_certificate(raw).serial_number

    async def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), 60)


def prepare(api: ApiServer) -> None:
    """A cluster with two sizes of cards and our webhook registered."""
    for node, size in (("small", "24Gi"), ("large", "80Gi")):
        device = {"name": "gpu-0", "allowMultipleAllocations": True, "capacity": {"memory": {"value": size}}}
        spec = {"driver": "gpu.tessera.dev", "nodeName": node, "devices": [device]}
        api.put(SLICES, {"metadata": {"name": node}, "spec": spec})
    service = {"name": "tessera-mutator", "namespace": NAMESPACE, "path": "/mutate"}
    foreign = {"name": "other", "namespace": NAMESPACE, "path": "/mutate"}
    webhooks = [
        {"name": "foreign.example.com", "clientConfig": {"service": foreign, "caBundle": "Zm9yZWlnbg=="}},
        {"name": "pods.gpu.tessera.dev", "clientConfig": {"service": service}},
    ]
    api.put(WEBHOOK, {"metadata": {"name": "tessera-mutator"}, "webhooks": webhooks})


@asynccontextmanager
async def mutator(api: ApiServer, directory: Path, *flags: str) -> AsyncIterator[Mutator]:
    """A process that has been started; not yet ready."""
    kubeconfig = api.write_kubeconfig(directory / "kubeconfig")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "claim_mutator.main",
        "--listen", "127.0.0.1:0", "--http-address", "127.0.0.1:0",
        "--kubeconfig", str(kubeconfig), "--namespace", NAMESPACE,
        "--certificate-period", "0.2", "--drain-seconds", "0.3", *flags,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    running = Mutator(process, api)
    follower = asyncio.create_task(running.follow())
    try:
        yield running
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await follower


class Caller:
    """Calls as the API server does: by the Service's name, trusting the caBundle and nothing else."""

    def __init__(self, running: Mutator) -> None:
        self._running = running
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Caller:
        self._session = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._session is not None
        await self._session.close()

    def trust(self) -> ssl.SSLContext:
        (configuration,) = self._running.api.all(WEBHOOK)
        bundle = configuration["webhooks"][1]["clientConfig"]["caBundle"]
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode())

    async def post(self, body: bytes | io.BytesIO, **changes: Any) -> tuple[int, str]:
        arguments: dict[str, Any] = {"headers": {"Content-Type": "application/json"}} | changes
        path = arguments.pop("path", "/mutate")
        assert self._session is not None
        async with self._session.post(
            f"https://{self._running.webhook}{path}",
            data=body,
            ssl=self.trust(),
            server_hostname=f"tessera-mutator.{NAMESPACE}.svc",
            **arguments,
        ) as answer:
            return answer.status, await answer.text()

    async def review(
        self, pod: dict[str, Any], *, dry_run: bool = False, namespace: str = "n", kind: str = "Pod"
    ) -> dict[str, Any]:
        """The `response` of the answer; its patch decoded."""
        request = {
            "uid": "u-1",
            "kind": {"group": "", "version": "v1", "kind": kind},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": namespace,
            "operation": "CREATE",
            "object": pod,
            "oldObject": None,
            "dryRun": dry_run,
            "options": {"kind": "CreateOptions"},
        }
        body = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}
        status, text = await self.post(json.dumps(body).encode())
        assert status == 200, text
        answer = json.loads(text)
        assert (answer["kind"], answer["apiVersion"]) == ("AdmissionReview", "admission.k8s.io/v1")
        response: dict[str, Any] = answer["response"]
        assert response["uid"] == "u-1"
        if "patch" in response:
            assert response["patchType"] == "JSONPatch"
            response["patch"] = json.loads(base64.b64decode(response["patch"]))
        return response
