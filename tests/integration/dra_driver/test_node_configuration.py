"""The node configuration file: the agent's process before and after it changes, and what that writes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.integration.dra_driver.world import World, serving, two_cards

HEAD = "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\n"
RTX, A100 = "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-80GB"

Start = Callable[[str], Awaitable[World]]


@pytest.fixture
async def start(root: Path, api: ApiServer) -> AsyncIterator[Start]:
    """Starts the agent on two cards with a node configuration."""
    async with AsyncExitStack() as stack:

        async def begin(text: str) -> World:
            (root / "node.yaml").write_text(HEAD + text)
            environment = {"TESSERA_NODE_CONFIGURATION": str(root / "node.yaml"), **two_cards(root)}
            agent = Agent(root, api, **environment)
            return await stack.enter_async_context(serving(agent, api))

        yield begin


def write(world: World, text: str) -> None:
    """As the kubelet does: another file takes the place of the old one."""
    new = world.agent.root / "node.new"
    new.write_text(HEAD + text)
    new.rename(world.agent.root / "node.yaml")


def products(world: World) -> list[str]:
    return [device["attributes"]["productName"]["string"] for device in world.devices()]


def memory(world: World) -> list[str]:
    return [device["capacity"]["memory"]["value"] for device in world.devices()]


async def writes(world: World) -> float:
    verbs = ("create", "update", "delete")
    counts = [await world.metric(f'tessera_slice_writes_total{{verb="{verb}"}}') for verb in verbs]
    return sum(counts)


async def until_written(world: World, times: float) -> None:
    """Writes are counted when they are answered, after others can see them."""

    async def are_counted() -> bool:
        return await writes(world) == times

    await world.agent.until(are_counted)


async def refusal(world: World, wire: WireClaim) -> str:
    return str((await world.kubelet.prepare(wire))[wire.uid].error)


async def test_what_cannot_be_used_holds_up_all_but_teardown(root: Path, api: ApiServer) -> None:
    file = root / "node.yaml"
    file.write_text(HEAD + "splitCount: 0\nplacement: pack\n")
    environment = {"TESSERA_NODE_CONFIGURATION": str(file), **two_cards(root)}
    with Agent(root, api, **environment) as agent:
        await agent.start()
        info = await register(agent.sockets.registration)
        async with Kubelet(Path(info.endpoint)) as kubelet:
            world = World(agent, api, kubelet)
            early = {"request": "g0", "driver": "gpu.tessera.dev", "pool": "node-a", "device": "gpu-0"}
            wire = world.allocate("early", early)
            assert "is not configured yet" in await refusal(world, wire)
            assert await kubelet.unprepare(wire) == {wire.uid: ""}
            status, words = await agent.get("/readyz")
            assert status == 503
            for mistake in (
                f"{file}: splitCount: can't be 0: write a whole number from 1 to 1000, such as 10",
                f"{file}: placement: can't be 'pack': write one of 'binpack', 'spread'",
            ):
                assert mistake in words
            assert not api.all(paths.resource_slices())
            write(world, "")
            await agent.until_ready()


async def test_a_change_is_published_and_what_runs_goes_on_running(start: Start) -> None:
    world = await start("splitCount: 4\nmemoryScaling: 2\n")
    assert memory(world) == ["48Gi", "160Gi"]
    running = world.allocate("running", world.share(0, "40Gi", "30", "250"))
    await world.prepared(running)
    before = await writes(world)

    write(world, "reservedMemory: 8Gi\nexcludedCards: [{model: '*A100*'}]\n")
    await world.agent.until(lambda: memory(world) == ["16Gi"])
    await until_written(world, before + 1)
    assert (await world.agent.get("/readyz"))[0] == 200

    again = await world.prepared(running)
    assert len(again.devices) == 1
    assert "over-committed" in await refusal(world, world.allocate("new", world.share(0, "1Gi", share=2)))
    write(world, "")
    await world.agent.until(lambda: memory(world) == ["24Gi", "80Gi"])


async def test_an_excluded_card_takes_nothing_new(start: Start) -> None:
    world = await start("")
    device = world.share(1)
    write(world, "excludedCards: [{index: 1}]\n")
    await world.agent.until(lambda: products(world) == [RTX])
    answer = await refusal(world, world.allocate("late", device))
    assert "takes no new claims: it is excluded by the node configuration (index: 1)" in answer


async def test_a_file_that_became_wrong_changes_nothing_and_is_told(start: Start) -> None:
    world = await start("splitCount: 4\n")
    before = world.devices()
    write(world, "splitCount: 4\nmemoryscaling: 2\n")

    async def is_told() -> bool:
        return (await world.agent.get("/readyz"))[0] == 503

    await world.agent.until(is_told)
    _, words = await world.agent.get("/readyz")
    told = (
        "node.yaml: memoryscaling: there is no such field: write memoryScaling; what held before still holds"
    )
    assert told in words
    assert told in world.agent.log.read_text()
    assert world.devices() == before
    assert await world.metric('tessera_node_configuration_loads_total{outcome="failure"}') == 1
    assert await world.metric('tessera_condition{condition="configuration"}') == 0
    write(world, "splitCount: 4\n")
    await world.agent.until_ready()


def label(api: ApiServer, **labels: str) -> None:
    node: dict[str, Any] = {"metadata": {"name": "node-a", "uid": "node-uid", "labels": labels}}
    api.put(paths.nodes(), node)


async def test_overrides_by_label(start: Start, api: ApiServer) -> None:
    label(api, pool="big")
    world = await start(
        "memoryScaling: 2\n"
        "overrides:\n"
        "  - nodes: {labelSelector: {matchLabels: {pool: big}}}\n    memoryScaling: 3\n"
        "  - nodes: {name: node-b}\n    memoryScaling: 4\n"
    )
    assert memory(world) == ["72Gi", "240Gi"]
    assert await writes(world) == 1  # nothing was published before the labels were known
    _, words = await world.agent.get("/readyz")
    assert "node.yaml holds, with overrides[0]" in words


async def test_packing_writes_nothing_when_shares_come_and_go(start: Start) -> None:
    world = await start("")
    before = await writes(world)
    for number in range(5):
        wire = world.allocate(f"claim-{number}", world.share(0, cores="10", share=number + 1))
        await world.prepared(wire)
    await world.agent.until(_some_time(4.0))
    assert (await writes(world), products(world)) == (before, [RTX, A100])


async def test_spreading_writes_once_for_a_burst_and_only_another_order(start: Start) -> None:
    world = await start("placement: spread\n")
    before = await writes(world)
    device = world.share(0, cores="10")
    wires = []
    for number in range(5):
        wires.append(world.allocate(f"claim-{number}", {**device, "shareID": _share(number)}))
        await world.prepared(wires[-1])
    await world.agent.until(lambda: products(world) == [A100, RTX])
    await until_written(world, before + 1)
    await world.kubelet.unprepare(wires[0])
    await world.agent.until(_some_time(4.0))
    assert await writes(world) == before + 1
    await world.kubelet.unprepare(*wires[1:])
    await world.agent.until(lambda: products(world) == [RTX, A100])
    await until_written(world, before + 2)


def _share(number: int) -> str:
    return f"0000000{number}-0000-4000-8000-000000000000"


def _some_time(seconds: float) -> Callable[[], bool]:
    """True once the seconds are over: longer than the agent takes to look at what it holds."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
