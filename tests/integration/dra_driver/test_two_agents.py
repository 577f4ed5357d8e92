"""Two Pods of the agent on one node, as in a rolling update: one process each, one set of files."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, register
from tests.integration.dra_driver.world import World, two_cards

OLD = "0c8f1f2e-0000-4000-8000-000000000001"
NEW = "0c8f1f2e-0000-4000-8000-000000000002"
PERIOD = 0.3


class Update:
    """The old agent, and the new one when it is started."""

    def __init__(self, root: Path, api: ApiServer, stack: AsyncExitStack) -> None:
        self._root, self._api, self._stack = root, api, stack
        self._cards = two_cards(root)

    async def start(self, pod: str) -> World:
        agent = Agent(
            self._root, self._api, TESSERA_POD_UID=pod, TESSERA_RECONCILE_PERIOD=str(PERIOD), **self._cards
        )
        agent.log = self._root / f"{pod}.log"
        self._stack.enter_context(agent)
        await agent.start()
        await register(agent.sockets.registration)
        await agent.until_ready()
        kubelet = await self._stack.enter_async_context(Kubelet(agent.sockets.dra))
        return World(agent, self._api, kubelet)


@pytest.fixture
async def update(root: Path, api: ApiServer) -> AsyncIterator[Update]:
    async with AsyncExitStack() as stack:
        yield Update(root, api, stack)


async def test_each_counts_and_unprepares_what_the_other_prepared(update: Update) -> None:
    old = await update.start(OLD)
    first = old.allocate("first", old.share(0, "20Gi"))
    second = old.allocate("second", old.share(0, "20Gi", share=2))
    await old.prepared(first)
    new = await update.start(NEW)
    assert "over-committed, memory 40Gi of 24Gi" in (await new.kubelet.prepare(second))[second.uid].error
    assert await new.kubelet.unprepare(first) == {first.uid: ""}
    assert old.agent.files() == set()
    await new.prepared(second)
    assert "over-committed" in (await old.kubelet.prepare(first))[first.uid].error
    assert await old.kubelet.unprepare(second) == {second.uid: ""}
    assert old.agent.files() == set()


async def test_the_newer_one_publishes_and_mends(update: Update, api: ApiServer) -> None:
    old = await update.start(OLD)
    wire = old.allocate("claim", old.share(0))
    await old.prepared(wire)
    new = await update.start(NEW)
    (new.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json").unlink()
    await new.agent.until(lambda: mended(new, 1))
    (slice_,) = api.all(paths.resource_slices())
    api.drop(paths.resource_slices(), slice_["metadata"]["name"])
    await new.agent.until(lambda: len(api.all(paths.resource_slices())) == 1)
    await new.agent.until(lambda: "ResourceSlice" in new.agent.log.read_text())
    assert not await mended(old, 1)

    async def stands_back() -> bool:
        return "publishes them" in (await old.agent.get("/readyz"))[1]

    await old.agent.until(stands_back)
    await new.agent.stop(signal.SIGKILL)
    (new.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json").unlink()
    await old.agent.until(lambda: mended(old, 1))
    (slice_,) = api.all(paths.resource_slices())
    api.drop(paths.resource_slices(), slice_["metadata"]["name"])
    await old.agent.until(lambda: len(api.all(paths.resource_slices())) == 1)


async def mended(world: World, times: int) -> bool:
    return await world.metric('tessera_reconcile_total{action="rewrite"}') == times


async def test_no_prepare_fails_while_one_follows_the_other(update: Update) -> None:
    """What the kubelet does: the newest that is registered is asked, calls that run are waited for."""
    old = await update.start(OLD)
    wires = [
        old.allocate(f"claim-{number}", old.share(number % 2, "256Mi", "1", "10", share=number))
        for number in range(40)
    ]
    kubelet, is_over = old.kubelet, asyncio.Event()

    async def prepare(start: int) -> list[str]:
        errors = []
        for wire in wires[start::4]:
            errors.append((await kubelet.prepare(wire))[wire.uid].error)
            if wire is wires[start + 16]:
                await is_over.wait()
        return errors

    working = [asyncio.create_task(prepare(start)) for start in range(4)]
    new = await update.start(NEW)
    kubelet = new.kubelet
    stopping = asyncio.create_task(old.agent.stop())
    is_over.set()
    assert [error for errors in await asyncio.gather(*working) for error in errors] == [""] * 40
    assert await stopping == 0
    assert await new.metric("tessera_claims_prepared") >= 1
    assert set((await new.kubelet.unprepare(*wires)).values()) == {""}
    assert new.agent.files() == set()


async def test_told_to_stop_while_a_claim_is_waited_for(update: Update, api: ApiServer) -> None:
    """The API server does not answer: the kubelet is told so, and the agent ends in time."""
    old = await update.start(OLD)
    slow, quick = old.allocate("slow", old.share(0)), old.allocate("quick", old.share(1, share=2))
    api.hold(when=lambda seen: seen.path.endswith("/slow"))
    answered = api.hold(when=lambda seen: seen.path.endswith("/quick"))
    asked = [asyncio.create_task(old.kubelet.prepare(wire)) for wire in (slow, quick)]
    await old.agent.until(
        lambda: {"slow", "quick"} <= {seen.path.rpartition("/")[2] for seen in api.requests}
    )
    stopping = asyncio.create_task(old.agent.stop())
    await old.agent.until(lambda: "told to stop" in old.agent.log.read_text())
    answered.set()
    assert await stopping == 0
    answers = [await each for each in asked]
    assert "the agent is stopping" in answers[0][slow.uid].error
    assert answers[1][quick.uid].error == ""
    assert {name.rpartition("/")[2] for name in old.agent.files()} >= {f"{quick.uid}.json"}
    assert not any(slow.uid in name for name in old.agent.files())
