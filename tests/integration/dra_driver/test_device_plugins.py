"""A device plugin on the agent's node: what the Node says comes to the slice, to Events, to /readyz."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, register
from tests.integration.dra_driver.world import World, two_cards

TAINT = {"key": "gpu.tessera.dev/device-plugin", "effect": "NoSchedule"}
SAID = (
    "[-] device-plugin: a device plugin hands out cards of this node, too: the Node has 2 of nvidia.com/gpu."
)


def put_node(api: ApiServer, cards: str | None) -> None:
    capacity = {"cpu": "8"} | ({"nvidia.com/gpu": cards} if cards else {})
    metadata = {"name": "node-a", "uid": "node-uid"}
    api.put(paths.nodes(), {"metadata": metadata, "status": {"capacity": capacity}})


def tainted(world: World) -> list[bool]:
    """Of each device."""
    return [
        any(TAINT.items() <= taint.items() for taint in device.get("taints", ()))
        for device in world.devices()
    ]


async def test_it_is_seen_before_anything_is_published_and_until_it_is_gone(
    root: Path, api: ApiServer
) -> None:
    put_node(api, "2")
    with Agent(root, api, **two_cards(root)) as agent:
        await agent.start()
        info = await register(agent.sockets.registration)
        async with Kubelet(Path(info.endpoint)) as kubelet:
            world = World(agent, api, kubelet)
            await agent.until(lambda: tainted(world) == [True, True])
            # Never without: one write, and that is the first.
            await world.until_metric('tessera_slice_writes_total{verb="create"}', 1)
            assert await world.metric('tessera_slice_writes_total{verb="update"}') == 0
            status, said = await agent.get("/readyz")
            assert status == 503
            assert SAID in said
            assert await world.metric('tessera_condition{condition="device-plugin"}') == 0
            # A Pod that was scheduled before gets its share.
            await world.prepared(world.allocate("claim", world.share(0)))

            def reasons() -> set[str]:
                return {event["reason"] for event in api.all("/api/v1/events")}

            await agent.until(lambda: "DevicePluginFound" in reasons())
            put_node(api, None)
            await agent.until(lambda: tainted(world) == [False, False])
            await agent.until_ready()
            await agent.until(lambda: "DevicePluginFoundRecovered" in reasons())


async def test_nothing_is_published_before_it_is_known(root: Path, api: ApiServer) -> None:
    """The right to watch Nodes is missing, say: that is told, and what comes later is used."""
    allowed = asyncio.Event()
    api.refuse(403, times=1000, when=lambda seen: seen.path == paths.nodes() and not allowed.is_set())
    with Agent(root, api, **two_cards(root)) as agent:
        await agent.start()
        await register(agent.sockets.registration)

        async def is_told() -> bool:
            said = (await agent.get("/readyz"))[1]
            return "[-] device-plugin: no list of /api/v1/nodes within" in said and "[+] gpus" in said

        await agent.until(is_told)
        assert api.all(paths.resource_slices()) == []
        allowed.set()
        await agent.until_ready()
        assert api.all(paths.resource_slices()) != []
