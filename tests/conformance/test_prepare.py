"""NodePrepareResources: what is answered, what is there afterwards, and what is left of a refusal."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import suppress

import grpc
import pytest

from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists
from tests.conformance.claims import Claims
from tests.conformance.node import NAMESPACE, Node, cdi_ids
from tests.integration.dra_driver.kubelet import WireClaim

NOBODY = "0c8f1f2e-0000-4000-8000-00000000dead"
ADMINISTRATORS = "administrators"
OTHER_DRIVER = {"request": "nic", "driver": "nic.example", "pool": "elsewhere", "device": "eth1"}


async def test_the_answer_names_the_device(node: Node) -> None:
    result = node.device.result(memory="2Gi")
    (device,) = (await node.prepared(await node.claim(result))).devices
    assert list(device.request_names) == ["gpu"]
    assert (device.pool_name, device.device_name) == (result["pool"], result["device"])


async def test_the_share_comes_back(node: Node) -> None:
    result = node.device.result(memory="2Gi")
    (device,) = (await node.prepared(await node.claim(result))).devices
    assert device.share_id == result["shareID"]


async def test_the_same_answer_twice(node: Node) -> None:
    wire = await node.claim(node.device.result(memory="1Gi"), node.devices[1].result("b", memory="1Gi"))
    first = await node.prepared(wire)
    files = node.host.files()
    assert await node.prepared(wire) == first
    assert node.host.files() == files


@pytest.mark.parametrize("what", ["document", "directory"])
async def test_lost_cdi_comes_back(fresh: Node, what: str) -> None:
    fresh.start()
    async with fresh.connected():
        wire = await fresh.claim()
        ids = cdi_ids(await fresh.prepared(wire))
        shutil.rmtree(fresh.host.cdi)
        if what == "document":
            fresh.host.cdi.mkdir()
        assert cdi_ids(await fresh.prepared(wire)) == ids


async def test_of_several_devices(node: Node) -> None:
    """One request with a count: each device its own CDI id, all for the one request."""
    wire = await node.claim(*(device.result(memory="1Gi") for device in node.devices))
    devices = (await node.prepared(wire)).devices
    assert {device.device_name for device in devices} == {device.name for device in node.devices}
    assert {tuple(device.request_names) for device in devices} == {("gpu",)}
    assert len({device.cdi_device_ids[0] for device in devices}) == len(node.devices)


async def test_two_shares_of_one_device(node: Node) -> None:
    results = [node.device.result(request, memory="1Gi") for request in ("a", "b")]
    devices = (await node.prepared(await node.claim(*results))).devices
    assert {device.request_names[0]: device.share_id for device in devices} == {
        result["request"]: result["shareID"] for result in results
    }
    assert len({device.cdi_device_ids[0] for device in devices}) == 2


async def test_two_shares_of_one_device_in_one_request(node: Node) -> None:
    results = [node.device.result(memory="1Gi") for _ in range(2)]
    devices = (await node.prepared(await node.claim(*results))).devices
    assert {device.share_id for device in devices} == {result["shareID"] for result in results}
    assert len({device.cdi_device_ids[0] for device in devices}) == 2


async def test_a_sub_request_is_answered_as_its_request(node: Node) -> None:
    devices = (await node.prepared(await node.claim(node.device.result("gpu/large", memory="1Gi")))).devices
    assert [list(device.request_names) for device in devices] == [["gpu"]]


async def test_other_drivers_devices_are_none_of_ours(node: Node) -> None:
    wire = await node.claim(OTHER_DRIVER, node.device.result(memory="1Gi"))
    assert [list(device.request_names) for device in (await node.prepared(wire)).devices] == [["gpu"]]


async def test_a_claim_of_another_driver_alone(node: Node) -> None:
    wire = await node.claim(OTHER_DRIVER)
    answer = (await node.kubelet.prepare(wire))[wire.uid]
    assert (answer.error, list(answer.devices)) == ("", [])
    await node.unprepared(wire)


async def test_admin_access_beside_the_owner(node: Node, api: Client) -> None:
    namespace = {"name": ADMINISTRATORS, "labels": {"resource.kubernetes.io/admin-access": "true"}}
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": namespace}
    with suppress(AlreadyExists):
        await api.create(paths.namespaces(), body)
    await node.prepared(await node.claim(node.device.result()))
    admin = await Claims(api, ADMINISTRATORS).make(node.device.result(admin=True, memory="1Gi"))
    await node.prepared(admin)
    await node.unprepared(admin)


async def test_not_allocated(node: Node) -> None:
    wire = await node.claims.pending(node.device.result())
    files = node.host.files()
    assert "allocated" in await node.refused(wire)
    assert node.host.files() == files


async def test_replaced_by_another_of_the_same_name(node: Node) -> None:
    wire = await node.claim()
    old = WireClaim(wire.namespace, wire.name, NOBODY)
    files = node.host.files()
    assert "replaced" in await node.refused(old)
    assert node.host.files() == files


async def test_gone(node: Node) -> None:
    files = node.host.files()
    assert await node.refused(WireClaim(NAMESPACE, "gone", NOBODY))
    assert node.host.files() == files


async def test_a_device_that_is_not_there(node: Node) -> None:
    files = node.host.files()
    wire = await node.claim(node.device.result(memory="1Gi") | {"device": "gpu-of-last-year"})
    assert "gpu-of-last-year" in await node.refused(wire)
    assert node.host.files() == files


async def test_no_claims_at_all(node: Node) -> None:
    assert await node.kubelet.prepare() == {}


async def test_every_claim_is_answered_and_a_bad_one_holds_up_no_other(node: Node) -> None:
    good = [await node.claim() for _ in range(2)]
    gone = WireClaim(NAMESPACE, "gone", NOBODY)
    pending = await node.claims.pending(node.device.result())
    answers = await node.kubelet.prepare(good[0], gone, pending, good[1])
    assert {uid: bool(answer.error) for uid, answer in answers.items()} == {
        good[0].uid: False,
        gone.uid: True,
        pending.uid: True,
        good[1].uid: False,
    }


async def test_a_bad_config_is_refused(node: Node) -> None:
    header = {"apiVersion": "no.such.group/v7", "kind": "NoSuchConfig"}
    config = {"source": "FromClaim", "opaque": {"driver": node.driver.driver, "parameters": header}}
    files = node.host.files()
    assert await node.refused(await node.claim(config=[config]))
    assert node.host.files() == files


async def test_other_drivers_config_is_none_of_ours(node: Node) -> None:
    parameters = {"apiVersion": "nic.example/v1", "kind": "NicConfig"}
    config = {"source": "FromClaim", "opaque": {"driver": "nic.example", "parameters": parameters}}
    await node.prepared(await node.claim(config=[config]))


async def test_fifty_at_once(node: Node) -> None:
    wires = [
        await node.claim(node.devices[number % len(node.devices)].result(memory="1Gi"))
        for number in range(50)
    ]
    before = await node.settled()
    answers = await asyncio.gather(*(node.kubelet.prepare(wire) for wire in wires))
    ids = [cdi_ids(answer[wire.uid]) for wire, answer in zip(wires, answers, strict=True)]
    assert all(ids)
    assert set.union(*ids) <= node.host.cdi_devices()
    await node.unprepared(*wires)
    assert node.host.files() == before


async def test_one_claim_asked_for_by_many_calls_at_once(node: Node) -> None:
    wire = await node.claim()
    answers = await asyncio.gather(*(node.kubelet.prepare(wire) for _ in range(10)))
    first = await node.prepared(wire)
    assert all(answer[wire.uid] == first for answer in answers)


async def test_while_the_api_server_hangs(node: Node) -> None:
    """The kubelet gives up; teardown goes on meanwhile, and the next attempt is answered."""
    held, waits = await node.claim(), await node.claim()
    await node.prepared(held)
    node.plane.hang()
    try:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.kubelet.prepare(waits, timeout=1.0)
        # A server that sees the deadline first calls it cancelled.
        assert caught.value.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
        assert await node.kubelet.unprepare(held, timeout=20.0) == {held.uid: ""}
    finally:
        node.plane.go_on()
    await node.prepared(waits)


async def test_without_an_api_server(node: Node) -> None:
    wire = await node.claim()
    node.plane.stop_api()
    try:
        assert await node.refused(wire)
    finally:
        node.plane.start_api()
    await node.prepared(wire)
