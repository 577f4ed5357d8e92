"""One of the drivers that a benchmark compares, on its node: its process, its claims, and a kubelet's calls.

The client is grpc's synchronous one with requests encoded ahead: of all clients here it adds least of its own
to what is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc

from kube.client import Client
from protos.dra_v1 import dra_v1_pb2
from protos.registration import registration_pb2
from tests.conformance import host as hosts
from tests.conformance.claims import Claims, Device, devices_of, published
from tests.conformance.control_plane import ControlPlane
from tests.conformance.drivers import Driver, Running
from tests.integration.dra_driver.kubelet import WireClaim

NAMESPACE = "default"
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_REGISTRATION = "/pluginregistration.Registration"
_DEADLINE = 45.0  # the kubelet's
_PARALLEL = 16  # claims that are made at once


class Refused(Exception):  # noqa: N818 - says what the driver did
    """A claim that the driver did not prepare or unprepare."""


class Side:
    """Use `end` when done. Times are in seconds."""

    def __init__(self, driver: Driver, plane: ControlPlane, root: Path) -> None:
        self._plane = plane
        self.driver = driver
        self.host = asyncio.run(self._make_host(root / driver.name))
        driver.furnish(self.host)
        self.running = Running(driver, self.host, plane, volatile=True)
        self._devices: list[Device] = []

    async def _make_host(self, root: Path) -> hosts.Host:
        async with self._client() as client:
            return await hosts.make(self._plane, client, f"node-{self.driver.name}", root)

    def _client(self) -> Client:
        return Client(self._plane.connection, user_agent="bench", timeout=60.0)

    # --- life

    def start(self) -> float:
        """Until the kubelet has registered it: how long that took."""
        began = time.monotonic()
        path = self.running.start()
        with grpc.insecure_channel(f"unix:{path}", _OPTIONS) as channel:
            endpoint = _register(channel)
        took = time.monotonic() - began
        self._channel = grpc.insecure_channel(f"unix:{endpoint}", _OPTIONS)
        self._prepare: Any = self._channel.unary_unary(
            f"{_SERVICE}/NodePrepareResources",
            response_deserializer=dra_v1_pb2.NodePrepareResourcesResponse.FromString,
        )
        self._unprepare: Any = self._channel.unary_unary(
            f"{_SERVICE}/NodeUnprepareResources",
            response_deserializer=dra_v1_pb2.NodeUnprepareResourcesResponse.FromString,
        )
        return took

    def stop(self) -> None:
        """As an update does."""
        self._channel.close()
        self.running.stop()

    def end(self) -> None:
        self.running.end()

    def resident(self) -> float:
        """MiB of memory that are its own process's at this moment."""
        status = Path(f"/proc/{self.running.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) / 1024

    def writes(self) -> int:
        """To the API server, so far."""
        return len(self._plane.writes(self.host.user))

    # --- claims

    def claims(self, count: int) -> list[WireClaim]:
        """So many allocated claims, each a small share of one device, spread over all of them."""
        return asyncio.run(self._make_claims(count))

    async def _make_claims(self, count: int) -> list[WireClaim]:
        async with self._client() as client:
            while not self._devices:
                self._devices = devices_of(await published(client, self.driver.driver, self.host.name))
            claims = Claims(client, NAMESPACE)
            slots = asyncio.Semaphore(_PARALLEL)

            async def one(number: int) -> WireClaim:
                async with slots:
                    device = self._devices[number % len(self._devices)]
                    return await claims.make(device.result(memory="128Mi"))

            return await asyncio.gather(*(one(number) for number in range(count)))

    # --- calls

    def prepare(self, *wires: WireClaim) -> float:
        """One call. Raises Refused."""
        request = encoded(wires)
        began = time.perf_counter()
        answer = self._prepare(request, timeout=_DEADLINE)
        took = time.perf_counter() - began
        _check(answer, wires)
        return took

    def prepare_each(self, wires: Sequence[WireClaim]) -> float:
        """A call for each, all at once: until the last is answered."""
        requests = [encoded([wire]) for wire in wires]
        began = time.perf_counter()
        calls = [self._prepare.future(request, timeout=_DEADLINE) for request in requests]
        answers = [call.result() for call in calls]
        took = time.perf_counter() - began
        for wire, answer in zip(wires, answers, strict=True):
            _check(answer, [wire])
        return took

    def unprepare(self, *wires: WireClaim) -> float:
        """One call. Raises Refused."""
        request = encoded(wires)
        began = time.perf_counter()
        answer = self._unprepare(request, timeout=_DEADLINE)
        took = time.perf_counter() - began
        _check(answer, wires)
        return took


_OPTIONS = (("grpc.use_local_subchannel_pool", 1),)


def encoded(wires: Sequence[WireClaim]) -> bytes:
    """A request of either kind: both have the same form on the wire."""
    claims = [dra_v1_pb2.Claim(namespace=wire.namespace, uid=wire.uid, name=wire.name) for wire in wires]
    return bytes(dra_v1_pb2.NodePrepareResourcesRequest(claims=claims).SerializeToString())


def _check(answer: Any, wires: Sequence[WireClaim]) -> None:
    for wire in wires:
        if wire.uid not in answer.claims or answer.claims[wire.uid].error:
            raise Refused(f"{wire.name}: {answer.claims[wire.uid].error or 'no answer'}")


def _register(channel: grpc.Channel) -> str:
    """GetInfo and the verdict, as the kubelet does; the DRA socket."""
    ask: Any = channel.unary_unary(
        f"{_REGISTRATION}/GetInfo", response_deserializer=registration_pb2.PluginInfo.FromString
    )
    tell: Any = channel.unary_unary(f"{_REGISTRATION}/NotifyRegistrationStatus")
    endpoint = ask(b"", timeout=5.0, wait_for_ready=True).endpoint
    verdict = registration_pb2.RegistrationStatus(plugin_registered=True)
    tell(verdict.SerializeToString(), timeout=5.0)
    return str(endpoint)
