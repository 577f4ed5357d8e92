"""ResourceSlices: what is published, when it is written again, and whose it is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kube import paths
from kube.client import Client
from tests.conformance.conftest import MakeNode
from tests.conformance.control_plane import ControlPlane
from tests.conformance.node import Node, until

QUIET = 1.5  # seconds in which a write that is wrong would have come


def versions(items: list[dict[str, Any]]) -> dict[str, str]:
    return {item["metadata"]["name"]: item["metadata"]["resourceVersion"] for item in items}


async def test_a_whole_pool_that_belongs_to_the_node(node: Node) -> None:
    items = await node.slices()
    pools = {item["spec"]["pool"]["name"] for item in items}
    for pool in pools:
        mine = [item for item in items if item["spec"]["pool"]["name"] == pool]
        assert {item["spec"]["pool"]["resourceSliceCount"] for item in mine} == {len(mine)}
        assert len({item["spec"]["pool"]["generation"] for item in mine}) == 1
    owner = (await node.api.get(paths.node(node.host.name)))["metadata"]["uid"]
    for item in items:
        (reference,) = item["metadata"]["ownerReferences"]
        assert (reference["kind"], reference["name"], reference["uid"]) == ("Node", node.host.name, owner)
    names = [device.name for device in node.devices]
    assert len(set(names)) == len(names)


async def test_sharing_survives_the_api_server(node: Node) -> None:
    """No field that sharing needs was dropped."""
    for device in node.devices:
        assert device.raw["allowMultipleAllocations"] is True
        assert device.raw["capacity"]["memory"]["requestPolicy"]


async def test_idle_and_busy_write_no_slice(node: Node) -> None:
    before = versions(await node.slices())
    wire = await node.claim()
    await node.prepared(wire)
    await asyncio.sleep(QUIET)
    await node.unprepared(wire)
    assert versions(await node.slices()) == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_restart_writes_no_slice_and_none_goes(fresh: Node, number: signal.Signals) -> None:
    fresh.start()
    async with fresh.connected():
        before = versions(await fresh.slices())
        fresh.process.stop(number)
        assert versions(await fresh.slices()) == before
    fresh.process.start()
    async with fresh.connected():
        await asyncio.sleep(QUIET)
        assert versions(await fresh.slices()) == before


async def test_deleted_by_the_kubelet_comes_back(fresh: Node) -> None:
    """A kubelet deletes all slices of its node when it starts."""
    fresh.start()
    async with fresh.connected():
        items = await fresh.slices()
        for item in items:
            await fresh.api.delete(paths.resource_slice(item["metadata"]["name"]))

        async def is_back() -> bool:
            return len(await fresh.slices()) == len(items)

        await until(is_back, "deleted slices come back")
        assert [item["spec"]["devices"] for item in await fresh.slices()] == [
            item["spec"]["devices"] for item in items
        ]


async def test_changed_by_somebody_is_put_right(fresh: Node) -> None:
    fresh.start()
    async with fresh.connected():
        (item, *_) = await fresh.slices()
        spec = item["spec"] | {"devices": item["spec"]["devices"][:1]}
        await fresh.api.replace(paths.resource_slice(item["metadata"]["name"]), item | {"spec": spec})

        async def is_right() -> bool:
            found = [device["name"] for item in await fresh.slices() for device in item["spec"]["devices"]]
            return sorted(found) == sorted(device.name for device in fresh.devices)

        await until(is_right, "the slice has all devices again")


async def test_foreign_slices_stay(fresh: Node) -> None:
    async def put(name: str, driver: str, node: str) -> dict[str, Any]:
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": driver, "nodeName": node, "pool": pool, "devices": [{"name": "d"}]}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": spec,
        }
        return await api.create(paths.resource_slices(), body)

    async with Client(fresh.plane.connection, user_agent="conformance") as api:
        own = fresh.host.name
        others = [
            await put(f"{own}-other-driver", "other.example", own),
            await put(f"{own}-other-node", fresh.driver.driver, f"not-{own}"),
        ]
        fresh.start()
        async with fresh.connected():
            await asyncio.sleep(QUIET)
            for item in others:
                assert await api.get(paths.resource_slice(item["metadata"]["name"])) == item


@pytest.fixture
def without_gate(plane: ControlPlane, make_node: MakeNode) -> Iterator[Node]:
    """A node of a cluster with DRAConsumableCapacity off."""
    with ControlPlane(plane.wanted, feature_gates={"DRAConsumableCapacity": False}) as other:
        yield make_node(other)


async def test_dropped_fields_are_said_aloud_and_not_fought(without_gate: Node) -> None:
    """With the gate off the API server drops what makes a device shareable, and says nothing."""
    node = without_gate
    node.start()
    async with node.connected():
        before = versions(await node.slices())
        assert "allowMultipleAllocations" not in node.device.raw

        async def is_said() -> bool:
            return "DRAConsumableCapacity" in node.process.log.read_text()

        await until(is_said, "the log names the gate")
        await asyncio.sleep(QUIET)
        assert versions(await node.slices()) == before
