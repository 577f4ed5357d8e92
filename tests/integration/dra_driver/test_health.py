"""The health service over gRPC: by itself with a short heartbeat, then the agent's with fake cards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cards.rules import Rules
from dra_driver.kubelet.health import Health, HealthService
from dra_driver.kubelet.sockets import serving
from dra_driver.node import Node
from tests.fakegpu import driver_root
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import register, watch_health
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards

INVENTORY = Path(driver_root.__file__).parent / "inventories" / "two-cards.ini"
HEARTBEAT = 0.2


def healths(message: Any) -> list[tuple[str, Health]]:
    return [(device.device.device_name, Health(device.health)) for device in message.devices]


async def next_of(stream: AsyncIterator[Any], seconds: float = 60.0) -> Any:
    async with asyncio.timeout(seconds):
        return await anext(stream)


async def until(stream: AsyncIterator[Any], expected: set[Health]) -> Any:
    """The first message with just these in it: heartbeats that say what was before may come first."""
    async with asyncio.timeout(60):
        async for message in stream:
            if {health for _, health in healths(message)} == expected:
                return message
    raise AssertionError("the stream has ended")


async def ends(stream: AsyncIterator[Any]) -> None:
    """By itself: one that the server breaks off when it stops raises an error."""
    async with asyncio.timeout(60):
        async for _ in stream:
            pass


class Service:
    """A health service on a socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.node = Node("node-a", Rules())
        self.health = HealthService(self.node, lambda: {A100.name}, heartbeat=HEARTBEAT)


@pytest.fixture
async def service(root: Path) -> AsyncIterator[Service]:
    made = Service(root / "dra.sock")
    async with serving(made.path, made.health.serve):
        yield made
        made.health.end()


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_a_stream(service: Service, version: str) -> None:
    async with aclosing(watch_health(service.path, version=version)) as stream:
        (held,) = (await next_of(stream)).devices
        assert (held.device.pool_name, held.device.device_name) == ("node-a", A100.name)
        assert (held.health, held.message) == (Health.UNKNOWN, "the NVIDIA driver has not been asked yet")

        service.node.found(two_cards())
        message = await until(stream, {Health.HEALTHY})
        assert healths(message) == [(RTX_4090.name, Health.HEALTHY), (A100.name, Health.HEALTHY)]
        for device in message.devices:
            assert abs(device.last_updated_time - time.time()) < 60
            assert device.health_check_timeout_seconds == 30

        service.node.not_found("no answer")
        await until(stream, {Health.UNKNOWN})


async def test_heartbeats(service: Service) -> None:
    service.node.found(two_cards())
    began = time.monotonic()
    async with aclosing(watch_health(service.path)) as stream:
        first = await next_of(stream)
        for _ in range(3):
            assert healths(await next_of(stream)) == healths(first)
        assert time.monotonic() - began > 2 * HEARTBEAT


async def test_several_watchers_and_one_that_leaves(service: Service) -> None:
    service.node.found(two_cards())
    async with aclosing(watch_health(service.path)) as one, aclosing(watch_health(service.path)) as two:
        async with aclosing(watch_health(service.path)) as leaver:
            await next_of(leaver)
        assert healths(await next_of(one)) == healths(await next_of(two))
        service.node.not_found("no answer")
        for stream in (one, two):
            await until(stream, {Health.UNKNOWN})


async def test_streams_end_with_the_service(service: Service) -> None:
    async with aclosing(watch_health(service.path)) as stream:
        await next_of(stream)
        service.health.end()
        await ends(stream)


@pytest.fixture
async def agent(root: Path, api: ApiServer) -> AsyncIterator[Agent]:
    driver_root.install(root / "driver", root / "fakegpu", INVENTORY)
    environment = {
        "FAKEGPU_DIR": str(root / "fakegpu"),
        "FAKEGPU_DEV": str(root / "driver/dev"),
        "TESSERA_LOOK_PERIOD": "0.2",
    }
    with Agent(root, api, **environment) as made:
        await made.start()
        yield made


async def test_a_card_is_lost_and_found(agent: Agent, root: Path) -> None:
    info = await register(agent.sockets.registration)
    await agent.until_ready()
    await agent.until_it_hears_errors()
    async with aclosing(watch_health(Path(info.endpoint))) as stream:
        names = [name for name, _ in healths(await until(stream, {Health.HEALTHY}))]
        assert len(names) == 2
        await agent.fakegpu("xid", "1", "79")
        said: set[str] = set()
        while not any("GPU is lost" in words and "XID 79" in words for words in said):
            message = await next_of(stream)
            assert [name for name, _ in healths(message)] == names
            said = {device.message for device in message.devices if device.health == Health.UNHEALTHY}
        await agent.fakegpu("reset")
        await until(stream, {Health.HEALTHY})
        (root / "driver/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06").unlink()
        message = await until(stream, {Health.UNKNOWN})
        assert "libcuda" in message.devices[0].message


async def test_watchers_hold_up_no_stop_and_come_back(agent: Agent) -> None:
    await register(agent.sockets.registration)
    await agent.until_ready()
    async with aclosing(watch_health(agent.sockets.dra)) as stream:
        await next_of(stream)
        assert await agent.stop() == 0
        await ends(stream)
    await agent.start()
    await register(agent.sockets.registration)
    await agent.until_ready()
    async with aclosing(watch_health(agent.sockets.dra)) as stream:
        assert len((await until(stream, {Health.HEALTHY})).devices) == 2
