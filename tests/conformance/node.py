"""A node under test: one driver's processes, the kubelet's connection to it, and claims made for it.

Knows the protocol and the API, nothing of any driver.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc

from kube.client import Client
from tests.conformance.claims import Claims, Device, devices_of, published
from tests.conformance.control_plane import ControlPlane
from tests.conformance.drivers import Driver, Running
from tests.conformance.host import Host
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register

NAMESPACE = "default"
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.CANCELLED,
)


async def until(what: Callable[[], Awaitable[bool]], why: str, seconds: float = 60.0) -> None:
    """Asks again and again; AssertionError names what did not come to pass."""
    try:
        async with asyncio.timeout(seconds):
            while not await what():  # noqa: ASYNC110 - what is asked has no event
                await asyncio.sleep(0.05)
    except TimeoutError as error:
        raise AssertionError(f"not within {seconds:g} s: {why}") from error


class Node:
    """`start` and `connected` first, for what talks to the driver."""

    def __init__(self, driver: Driver, host: Host, plane: ControlPlane) -> None:
        self.driver = driver
        self.host = host
        self.plane = plane
        self.processes: list[Running] = []
        self._made: list[WireClaim] = []

    # --- the driver's processes; in the main thread

    @property
    def process(self) -> Running:
        """The one started last."""
        return self.processes[-1]

    def start(self, *, pod_uid: str | None = None) -> Running:
        """Another process of the driver, when its registration socket is there."""
        process = self._another(pod_uid)
        process.start()
        return process

    async def start_beside(self, *, pod_uid: str) -> Running:
        """The same, while calls to the others go on."""
        process = self._another(pod_uid)
        process.spawn()

        async def has_arrived() -> bool:
            assert process.is_running, process.log.read_text()
            return process.has_arrived()

        try:
            await until(has_arrived, "a registration socket of the second process")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{process.log.read_text()}") from error
        return process

    def _another(self, pod_uid: str | None) -> Running:
        process = Running(self.driver, self.host, self.plane, pod_uid=pod_uid)
        self.processes.append(process)
        return process

    def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Ends the process by this signal, and starts it again."""
        self.process.stop(number)
        self.process.start()

    def end(self) -> None:
        for process in self.processes:
            process.end()

    # --- the kubelet

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Node]:
        """Registers the driver, connects to it, and to the API server, until the block ends."""
        async with Client(self.plane.connection, user_agent="conformance") as client:
            self.api = client
            self.claims = Claims(client, NAMESPACE)
            self.info = await register(self.process.registration)
            async with Kubelet(Path(self.info.endpoint)) as kubelet:
                self.kubelet = kubelet
                await until(self._is_published, "a ResourceSlice with devices")
                yield self

    async def _is_published(self) -> bool:
        self.devices = devices_of(await self.slices())
        return bool(self.devices)

    async def slices(self) -> list[dict[str, Any]]:
        return await published(self.api, self.driver.driver, self.host.name)

    @property
    def device(self) -> Device:
        return self.devices[0]

    async def claim(self, *results: Mapping[str, Any], config: Sequence[Any] = ()) -> WireClaim:
        """Allocated; of 1 GiB of the first device where nothing is said."""
        wire = await self.claims.make(*(results or (self.device.result(memory="1Gi"),)), config=config)
        self._made.append(wire)
        return wire

    async def prepared(self, wire: WireClaim) -> Any:
        """The answer for a claim that has to be prepared, and whose CDI devices have to be there."""
        answer = (await self.kubelet.prepare(wire))[wire.uid]
        assert answer.error == ""
        assert answer.devices
        assert cdi_ids(answer) <= self.host.cdi_devices()
        return answer

    async def refused(self, wire: WireClaim) -> str:
        """Why a claim is not prepared: an error for the claim, or of the whole call; alike to the kubelet."""
        try:
            answer = (await self.kubelet.prepare(wire))[wire.uid]
        except grpc.aio.AioRpcError as error:
            assert error.code() not in _NO_ANSWER
            return str(error.details())
        assert answer.error != ""
        assert not answer.devices
        return str(answer.error)

    async def unprepared(self, *wires: WireClaim) -> None:
        assert await self.kubelet.unprepare(*wires) == {wire.uid: "" for wire in wires}

    async def settled(self) -> set[str]:
        """The node's files when nothing is prepared; what is made with the first claim and stays is there."""
        wire = await self.claim()
        await self.prepared(wire)
        await self.unprepared(wire)
        return self.host.files()

    async def clean(self) -> None:
        """Unprepares every claim that was made here."""
        if self._made:
            await self.kubelet.unprepare(*self._made)
        self._made.clear()


def cdi_ids(answer: Any) -> set[str]:
    return {name for device in answer.devices for name in device.cdi_device_ids}
