"""Claims of every shape, on a node with eight cards: as users write them, as the kubelet hands them on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interposer import abi
from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim
from tests.integration.dra_driver.world import INVENTORIES, World, fake_cards, serving
from tests.unit.dra_driver.allocations import claim, claim_ref, opaque, share_id

WHOLE = {"memory": "80Gi", "cores": "100", "shares": "1k"}


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    async with serving(Agent(root, api, **fake_cards(root, INVENTORIES / "eight-cards.ini")), api) as made:
        yield made


def uuids(world: World) -> list[str]:
    return [device["attributes"]["uuid"]["string"] for device in world.devices()]


def nodes(device: dict[str, Any]) -> list[str]:
    return [node["path"] for node in device["containerEdits"].get("deviceNodes", ())]


def limits(world: World, wire: WireClaim) -> list[abi.Limits]:
    return [
        abi.read_limits(path)
        for path in sorted((world.agent.root / "run/claims" / wire.uid).glob("*/limits"))
    ]


async def test_eight_shares_by_one_request(world: World) -> None:
    """`count: 8` with distinct cards: eight results of one request."""
    wire = world.allocate("eight", *(world.share(index, "10Gi", share=index) for index in range(8)))
    answer = await world.prepared(wire)
    assert {tuple(device.request_names) for device in answer.devices} == {("g0",)}
    assert len({device.device_name for device in answer.devices}) == 8
    ids = [tuple(device.cdi_device_ids) for device in answer.devices]
    assert len(set(ids)) == 8
    assert [device.share_id for device in answer.devices] == [share_id(index) for index in range(8)]
    found = limits(world, wire)
    assert {one.uuid for one in found} == set(uuids(world))
    assert {one.memory_bytes for one in found} == {10 << 30}
    devices = world.granted(wire)
    grants = [f"gpu.tessera.dev/grant={device['name']}" for device in devices]
    assert [(grant, "gpu.tessera.dev/driver=files", f"{grant}-shim") for grant in grants] == ids
    assert len({tuple(nodes(device)) for device in devices}) == 8
    assert await world.kubelet.unprepare(wire) == {wire.uid: ""}
    assert world.agent.files() == set()


async def test_eight_whole_cards_by_one_request(world: World) -> None:
    wire = world.allocate("whole", *(world.share(index, **WHOLE, share=index) for index in range(8)))
    answer = await world.prepared(wire)
    assert len({device.cdi_device_ids[0] for device in answer.devices}) == 8
    assert limits(world, wire) == []
    assert await world.metric("tessera_claims_prepared") == 1


async def test_two_shares_of_one_card_in_one_request(world: World) -> None:
    """As 1.35 can give them: one request, one card, two shares."""
    wire = world.allocate("two", world.share(0, share=1), world.share(0, share=2))
    answer = await world.prepared(wire)
    assert len({device.cdi_device_ids[0] for device in answer.devices}) == 2
    assert len({device.device_name for device in answer.devices}) == 1
    assert len(limits(world, wire)) == 2


async def test_shares_whose_ids_begin_alike(world: World) -> None:
    """The name has eight digits of the shareID; where that is not enough it has a number."""
    alike = world.share(0) | {"shareID": "00000001-aaaa-4111-8111-111111111111"}
    wire = world.allocate("alike", world.share(0, share=1), alike)
    answer = await world.prepared(wire)
    assert [
        device.cdi_device_ids[0].removeprefix(f"gpu.tessera.dev/grant={wire.uid}-")
        for device in answer.devices
    ] == [
        "g0-00000001",
        "g0-00000001-2",
    ]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_devices_of_three_drivers(world: World, version: str) -> None:
    """Ours alone are answered, whatever the others' look like."""
    nic: dict[str, Any] = {"request": "nic", "driver": "nic.example", "pool": "far/away", "device": "eth1"}
    disk: dict[str, Any] = {
        "request": "disk",
        "driver": "disk.example",
        "pool": "node-a",
        "device": world.devices()[0]["name"],
        "consumedCapacity": {"size": "-1"},
    }
    config = [opaque(driver="nic.example", mtu=9000), opaque(corePolicy="force")]
    wire = world.allocate("mixed", nic, world.share(3, request="gpu/small"), disk, config=config)
    async with Kubelet(world.agent.sockets.dra, version=version) as kubelet:
        answer = (await kubelet.prepare(wire))[wire.uid]
        assert answer.error == ""
        (device,) = answer.devices
        assert list(device.request_names) == ["gpu"]
        assert device.device_name == world.devices()[3]["name"]
        (found,) = limits(world, wire)
        assert found.policy is abi.Policy.FORCE
        assert await kubelet.unprepare(wire) == {wire.uid: ""}


async def test_a_claim_of_another_driver_only(world: World) -> None:
    wire = world.allocate(
        "foreign", {"request": "nic", "driver": "nic.example", "pool": "node-a", "device": "eth1"}
    )
    assert not (await world.prepared(wire)).devices
    assert world.agent.files() == set()
    assert await world.kubelet.unprepare(wire) == {wire.uid: ""}


async def test_an_administrators_access(world: World) -> None:
    """The whole card without limits, beside tenants that hold all of it, and it does not count."""
    full = world.allocate("full", world.share(0, **WHOLE))
    await world.prepared(full)
    admin = world.allocate(
        "admin",
        *(world.share(index, "1Mi", "0", "100", share=10 + index, adminAccess=True) for index in range(8)),
    )
    answer = await world.prepared(admin)
    assert len(answer.devices) == 8
    assert limits(world, admin) == []
    for device in world.spec(admin)["devices"]:
        assert len(nodes(device)) == 1
        mounts = device["containerEdits"].get("mounts", ())
        assert not [mount for mount in mounts if "libtessera" in mount["containerPath"]]
    others = [world.allocate(f"other-{index}", world.share(index, **WHOLE)) for index in range(1, 8)]
    for other in others:
        await world.prepared(other)
    await world.kubelet.unprepare(admin)
    assert await world.metric("tessera_claims_prepared") == 8  # nobody's share went with it


async def test_one_claim_of_many_pods(world: World) -> None:
    """Each Pod's start asks anew; all share one grant, and the last one's end takes it back."""
    wire = world.allocate("shared", world.share(0))
    answers = [await world.prepared(wire) for _ in range(5)]
    assert all(answer == answers[0] for answer in answers)
    assert len(limits(world, wire)) == 1
    assert await world.metric("tessera_claims_prepared") == 1
    assert await world.kubelet.unprepare(wire) == {wire.uid: ""}
    assert world.agent.files() == set()


async def test_many_claims_of_one_pod(world: World) -> None:
    """One call, all claims of a Pod: side by side on one card, each with a grant of its own."""
    wires = [world.allocate(f"claim-{n}", world.share(0, "8Gi", "10", "100", share=n)) for n in range(10)]
    answers = await world.kubelet.prepare(*wires)
    assert [answers[wire.uid].error for wire in wires] == [""] * 10
    assert sum(one.memory_bytes for wire in wires for one in limits(world, wire)) == 80 << 30
    more = world.allocate("more", world.share(0, "1Mi", "0", "0", share=11))
    assert "over-committed, memory" in (await world.kubelet.prepare(more))[more.uid].error


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        pytest.param({"pool": "node-b"}, "is in pool node-b, this node is node-a", id="another-node"),
        pytest.param({"device": "gpu-0"}, "device gpu-0 is not on this node", id="no-such-card"),
        pytest.param(
            {"consumedCapacity": {"memory": "-5Gi", "cores": "0", "shares": "100"}},
            "not a whole number of at least 0",
            id="negative",
        ),
        pytest.param(
            {"consumedCapacity": {"memory": "much", "cores": "0", "shares": "100"}},
            "consumedCapacity.memory",
            id="no-quantity",
        ),
        pytest.param(
            {"consumedCapacity": {"memory": "0", "cores": "0", "shares": "100"}},
            "was given no memory at all",
            id="nothing",
        ),
        pytest.param(
            {"consumedCapacity": {"memory": "1Gi", "shares": "100"}}, "lacks cores", id="an-amount-missing"
        ),
        pytest.param(
            {"consumedCapacity": {"memory": "1500m", "cores": "0", "shares": "100"}},
            "not a whole number",
            id="part-of-a-byte",
        ),
    ],
)
async def test_an_allocation_that_can_not_be_honoured(
    world: World, change: dict[str, Any], answer: str
) -> None:
    wire = world.allocate("claim", world.share(0) | change)
    error = (await world.kubelet.prepare(wire))[wire.uid].error
    assert answer in error
    assert f"default/claim:{wire.uid}" in error
    assert world.agent.files() == set()


async def test_metadata_of_a_claim_from_a_template(world: World) -> None:
    ref = claim_ref("work-gpu-x7k2p")
    raw = claim(ref, *(world.share(index, share=index) for index in range(2)))
    raw["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    world.api.put(paths.resource_claims(), raw)
    wire = WireClaim(ref.namespace, ref.name, ref.uid)
    await world.prepared(wire)
    first, second = world.granted(wire)
    (mount,) = [m for m in first["containerEdits"]["mounts"] if m["containerPath"].endswith("metadata.json")]
    directory = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu/g0"
    assert mount["containerPath"] == f"{directory}/gpu.tessera.dev-metadata.json"
    assert "ro" in mount["options"]
    assert not [m for m in second["containerEdits"]["mounts"] if "metadata" in m["containerPath"]]
    said, _ = json.JSONDecoder().raw_decode(Path(mount["hostPath"]).read_text())  # noqa: ASYNC240
    assert [device["attributes"]["uuid"]["string"] for device in said["requests"][0]["devices"]] == uuids(
        world
    )[:2]


async def test_lost_metadata_comes_back(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    file = world.agent.root / "run/claims" / wire.uid / "metadata/g0.json"
    before = file.read_text()
    file.unlink()
    await world.prepared(wire)
    assert file.read_text() == before


async def test_metadata_that_can_not_be_written_holds_up_nothing(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    in_the_way = world.agent.root / "run/claims" / wire.uid / "metadata"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file, where a directory should be")
    await world.prepared(wire)
    (device,) = world.granted(wire)
    assert not [m for m in device["containerEdits"]["mounts"] if "metadata" in m["containerPath"]]
    assert len(limits(world, wire)) == 1
    assert "no metadata file for its containers" in world.agent.log.read_text()
    assert await world.kubelet.unprepare(wire) == {wire.uid: ""}
    assert world.agent.files() == set()
