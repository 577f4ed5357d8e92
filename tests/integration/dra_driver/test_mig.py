"""Cards in MIG mode, and cards of which the driver says too little: the agent's process on fake ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.world import INVENTORIES, World, fake_cards, serving

MIG = INVENTORIES / "mig.ini"
SPLIT = "GPU-5c3a9e71-7f20-4d84-a6b9-12e8d3c47f60"
WHOLE = "GPU-6d4bafe2-8031-4e95-b7ca-23f9e4d58071"
SMALL = "MIG-1b2e7d63-2e4c-5f58-9da1-3c8e5f607b22"
ODD = """\
[card]
name = NVIDIA GB10
uuid = GPU-00000000-0000-4000-8000-000000000001
no_memory_info = 1
memory = 119Gi
sms = 40
compute_capability = 12.1
pci = 0000:02:00.0

[card]
name = NVIDIA H100 PCIe
uuid = GPU-00000000-0000-4000-8000-000000000002
memory = 80Gi
sms = 40
compute_capability = 9.0
mig = 1
pci = 0000:03:00.0

[card]
name = Tesla T4
uuid = GPU-00000000-0000-4000-8000-000000000003
memory = 16Gi
sms = 40
compute_capability = 9.0
pci = 1000a:04:00.0

[card]
name = Tesla T4
uuid = GPU-00000000-0000-4000-8000-000000000004
memory = 512
sms = 40
compute_capability = 9.0
pci = 0000:05:00.0
"""

Start = Callable[..., Awaitable[World]]


@pytest.fixture
async def start(root: Path, api: ApiServer) -> AsyncIterator[Start]:
    """Starts the agent on cards of an inventory file's text."""
    async with AsyncExitStack() as stack:

        async def begin(text: str, **environment: str) -> World:
            inventory = root / "cards.ini"
            inventory.write_text(text)
            agent = Agent(root, api, **fake_cards(root, inventory), **environment)
            return await stack.enter_async_context(serving(agent, api))

        yield begin


def uuids(world: World) -> list[str]:
    return [device["attributes"]["uuid"]["string"] for device in world.devices()]


async def test_instances_are_published_instead_of_their_card(start: Start) -> None:
    world = await start(MIG.read_text())
    devices = world.devices()
    assert [device["attributes"]["type"]["string"] for device in devices] == ["mig", "mig", "mig", "gpu"]
    assert SPLIT not in uuids(world)
    assert [device["capacity"]["memory"]["value"] for device in devices] == [
        "40192Mi",
        "9728Mi",
        "9728Mi",
        "80Gi",
    ]
    attributes = devices[1]["attributes"]
    assert devices[1]["name"] == SMALL.lower()
    expected = {
        "uuid": SMALL,
        "parentUUID": SPLIT,
        "profile": "1g.10gb",
        "productName": "NVIDIA A100-SXM4-80GB",
        "architecture": "Ampere",
        "brand": "Nvidia",
        "mode": "shared",
        "resource.kubernetes.io/pciBusID": "0000:41:00.0",
        "resource.kubernetes.io/pcieRoot": "pci0000:40",
    }
    assert {name: attributes[name]["string"] for name in expected} == expected
    assert attributes["resource.kubernetes.io/numaNode"] == {"int": 0}
    assert attributes["cudaComputeCapability"] == {"version": "8.0.0"}


async def test_a_share_of_an_instance(start: Start) -> None:
    world = await start(MIG.read_text())
    wire = world.allocate("claim", world.share(1, "3000Mi"))
    await world.prepared(wire)
    grant = world.agent.root / "run/claims" / wire.uid / f"{wire.uid}-g0-00000001"
    limits = abi.read_limits(grant / "limits")
    assert (limits.uuid, limits.memory_bytes, limits.guaranteed_cores) == (SMALL, 3000 << 20, 30)
    assert limits.card_memory_bytes == 9728 << 20
    labels = f'{{claim="claim",namespace="default",uuid="{SMALL}"}}'
    assert await world.metric(f"tessera_grant_memory_limit_bytes{labels}") == 3000 << 20
    assert await world.metric(f'tessera_card_memory_bytes{{uuid="{SMALL}"}}') == 9728 << 20
    (device,) = world.granted(wire)
    assert [node["path"] for node in device["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap84",
        "/dev/nvidia-caps/nvidia-cap85",
    ]


async def test_a_whole_instance_has_no_library(start: Start) -> None:
    world = await start(MIG.read_text())
    wire = world.allocate("claim", world.share(1, "9728Mi", "100", "1k"))
    await world.prepared(wire)
    (device,) = world.granted(wire)
    mounts = [mount["containerPath"] for mount in device["containerEdits"].get("mounts", [])]
    assert not [path for path in mounts if "tessera/" in path or "ld.so" in path]
    assert len(device["containerEdits"]["deviceNodes"]) == 3


async def test_one_failing_instance_takes_no_other_down(start: Start) -> None:
    nameless = "MIG-GPU-5c3a9e71-7f20-4d84-a6b9-12e8d3c4"  # not a UUID: what old drivers call an instance
    world = await start(MIG.read_text().replace(SMALL, nameless))
    assert len(uuids(world)) == 3
    assert WHOLE in uuids(world)
    _, words = await world.agent.get("/readyz")
    assert f"MIG instance 1 of {SPLIT} is called {nameless!r}; drivers from 470 on" in words


async def test_compute_instances_of_one_gpu_instance_divide_its_memory(start: Start) -> None:
    second = "MIG-2c3d8e74-3f5d-5069-aeb2-4d9f60718c33"
    text = MIG.read_text().replace("gi = 10", "gi = 9\nci = 1")
    world = await start(text)
    memory = {
        device["attributes"]["uuid"]["string"]: device["capacity"]["memory"]["value"]
        for device in world.devices()
    }
    assert (memory[SMALL], memory[second]) == ("4864Mi", "4864Mi")
    wire = world.allocate("claim", world.share(1, "4864Mi", "100", "1k"))
    await world.prepared(wire)
    grant = world.agent.root / "run/claims" / wire.uid / f"{wire.uid}-g0-00000001"
    assert abi.read_limits(grant / "limits").memory_bytes == 4864 << 20


async def test_odd_cards_are_told_and_take_no_other_down(start: Start) -> None:
    world = await start(MIG.read_text() + ODD)
    assert len(uuids(world)) == 4
    _, words = await world.agent.get("/readyz")
    for number, reason in (
        (1, "has no memory of its own, the driver says (it is the host's): write how much of it"),
        (2, "is in MIG mode and has no instances: make some (nvidia-smi mig -cgi"),
        (3, "has the PCI bus id '0001000A:04:00.0', which"),
        (4, "has 512 bytes of memory, the driver says"),
    ):
        assert f"GPU-00000000-0000-4000-8000-{number:012} {reason}" in words


async def test_the_configuration_gives_memory_to_a_card_that_has_the_hosts(start: Start, root: Path) -> None:
    configuration = root / "node.yaml"
    configuration.write_text(
        "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\nunifiedMemory: 96Gi\n"
    )
    world = await start(MIG.read_text() + ODD, TESSERA_NODE_CONFIGURATION=str(configuration))
    (device,) = (device for device in world.devices() if device["name"].endswith("000000000001"))
    assert device["capacity"]["memory"]["value"] == "96Gi"
    assert device["attributes"]["productName"] == {"string": "NVIDIA GB10"}


async def test_a_card_that_fails_later_keeps_its_instances_with_a_taint(start: Start) -> None:
    world = await start(MIG.read_text(), TESSERA_LOOK_PERIOD="0.5")
    before = uuids(world)

    def tainted() -> list[str]:
        return [device["attributes"]["uuid"]["string"] for device in world.devices() if device.get("taints")]

    await world.agent.fakegpu("nvml", "--card", "0", "--fail", "999")
    await world.agent.until(lambda: tainted() == before[:3])
    assert uuids(world) == before
    await world.prepared(world.allocate("claim", world.share(3, "3000Mi")))
    await world.agent.fakegpu("nvml", "--card", "0", "--ok")
    await world.agent.until(lambda: not tainted())
