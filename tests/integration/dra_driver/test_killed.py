"""kill -9 of the real process between every two steps of Prepare and Unprepare.

Whatever comes next, the kubelet's retry or the end of the claim, it ends up prepared once, or gone, and no
file of it is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from dra_driver.claims.steps import PREPARE, UNPREPARE, Step
from kube import paths
from tests import killing
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.integration.dra_driver.world import World, two_cards
from tests.killing import before_each_and_after_the_last

PERIOD = 0.3


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    program = killing.text(str(root / "order"))
    with Agent(root, api, program=program, TESSERA_RECONCILE_PERIOD=str(PERIOD), **two_cards(root)) as agent:
        await start(agent)
        async with Kubelet(agent.sockets.dra) as kubelet:
            yield World(agent, api, kubelet)


async def start(agent: Agent) -> None:
    agent.sockets.registration.unlink(missing_ok=True)
    await agent.start()
    await register(agent.sockets.registration)
    await agent.until_ready()


async def killed(world: World, point: str, operation: str, wire: WireClaim) -> None:
    order = world.agent.root / "order"
    killing.write(order, [point])
    with pytest.raises(grpc.aio.AioRpcError):
        await getattr(world.kubelet, operation)(wire)
    assert await world.agent.ended() == -9
    assert killing.read(order) == []


async def again(world: World, operation: str, wire: WireClaim) -> None:
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        answer = (await getattr(kubelet, operation)(wire))[wire.uid]
    assert (answer if isinstance(answer, str) else answer.error) == ""


async def leaves_nothing(world: World) -> None:
    await world.agent.until(lambda: world.agent.files() == set())
    await world.agent.until(lambda: has_metric(world, "tessera_claims_prepared", 0))
    rest = [path for path in world.agent.below("") if path.name.startswith(".tessera-tmp")]
    assert rest == []


async def has_metric(world: World, series: str, value: float) -> bool:
    return await world.metric(series) == value


@pytest.mark.parametrize("point", before_each_and_after_the_last(PREPARE))
async def test_while_preparing(world: World, point: str) -> None:
    whole = world.allocate("whole", world.share(1, share=2))
    await world.prepared(whole)
    before = world.agent.files()
    wire = world.allocate("claim", world.share(0))
    await killed(world, point, "prepare", wire)
    await start(world.agent)
    await again(world, "prepare", wire)
    assert len(world.agent.files()) == 2 * len(before)
    await world.agent.until(lambda: has_metric(world, "tessera_claims_prepared", 2))
    await again(world, "unprepare", wire)
    assert world.agent.files() == before
    await again(world, "unprepare", whole)
    await leaves_nothing(world)


@pytest.mark.parametrize("point", before_each_and_after_the_last(PREPARE))
async def test_while_preparing_and_then_the_claim_is_deleted(world: World, point: str) -> None:
    """Before the agent is back: the kubelet does not ask for it again."""
    wire = world.allocate("claim", world.share(0))
    await killed(world, point, "prepare", wire)
    world.api.drop(paths.resource_claims(), "claim", "default")
    await start(world.agent)
    await leaves_nothing(world)


@pytest.mark.parametrize("point", before_each_and_after_the_last(UNPREPARE))
async def test_while_unpreparing(world: World, point: str) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await killed(world, point, "unprepare", wire)
    world.api.drop(paths.resource_claims(), "claim", "default")
    await start(world.agent)
    await again(world, "unprepare", wire)
    await leaves_nothing(world)


async def test_a_claim_that_is_prepared_again_after_a_kill_while_unpreparing(world: World) -> None:
    """A claim that several Pods use: one ends, the next begins."""
    wire = world.allocate("claim", world.share(0))
    first = await world.prepared(wire)
    before = world.agent.files()
    await killed(world, f"before {Step.REMOVE_LEDGER.value}", "unprepare", wire)
    await start(world.agent)
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        assert (await kubelet.prepare(wire))[wire.uid] == first
    await asyncio.sleep(2 * PERIOD)
    assert world.agent.files() == before
