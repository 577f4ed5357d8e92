"""NodeUnprepareResources: it needs nobody but the node."""

from __future__ import annotations

from tests.conformance.node import NAMESPACE, Node, cdi_ids
from tests.integration.dra_driver.kubelet import WireClaim

UNKNOWN = WireClaim(NAMESPACE, "unknown", "0c8f1f2e-0000-4000-8000-00000000dead")


async def test_unknown(node: Node) -> None:
    await node.unprepared(UNKNOWN)


async def test_twice(node: Node) -> None:
    wire = await node.claim()
    await node.prepared(wire)
    await node.unprepared(wire)
    await node.unprepared(wire)


async def test_nothing_is_left(node: Node) -> None:
    before = await node.settled()
    wire = await node.claim(*(device.result(memory="1Gi") for device in node.devices[:2]))
    ids = {answer.cdi_device_ids[0] for answer in (await node.prepared(wire)).devices}
    await node.unprepared(wire)
    assert not ids & node.host.cdi_devices()
    assert node.host.files() == before


async def test_every_claim_is_answered(node: Node) -> None:
    wires = [await node.claim() for _ in range(2)]
    for wire in wires:
        await node.prepared(wire)
    await node.unprepared(wires[0], UNKNOWN, wires[1])


async def test_no_claims_at_all(node: Node) -> None:
    assert await node.kubelet.unprepare() == {}


async def test_of_one_share_leaves_the_others(node: Node) -> None:
    first, second = await node.claim(), await node.claim()
    ids = cdi_ids(await node.prepared(first)), cdi_ids(await node.prepared(second))
    await node.unprepared(first)
    assert ids[1] <= node.host.cdi_devices()
    await node.unprepared(second)
    assert not (ids[0] ^ ids[1]) & node.host.cdi_devices()


async def test_after_the_claim_is_deleted_and_without_an_api_server(node: Node) -> None:
    before = await node.settled()
    wire = await node.claim()
    await node.prepared(wire)
    await node.claims.delete(wire)
    node.plane.stop_api()
    try:
        await node.unprepared(wire)
    finally:
        node.plane.start_api()
    assert node.host.files() == before


async def test_prepared_again_afterwards(node: Node) -> None:
    wire = await node.claim()
    first = await node.prepared(wire)
    await node.unprepared(wire)
    assert await node.prepared(wire) == first


async def test_a_late_prepare_of_a_deleted_claim(node: Node) -> None:
    """As when the Pod went away while the call was on its way."""
    before = await node.settled()
    wire = await node.claim()
    await node.prepared(wire)
    await node.unprepared(wire)
    await node.claims.delete(wire)
    await node.refused(wire)
    assert node.host.files() == before
