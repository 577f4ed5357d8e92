"""ResourceSlices are published, kept right, and written as seldom as it takes."""

from __future__ import annotations

import asyncio
import copy

import pytest

from dra_driver.cards.capacity import Scales
from dra_driver.conditions import Condition
from dra_driver.slices.documents import DeviceLists, device_lists
from kube import paths
from kube.client import Client
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.publishing import LOST, NODE, SLICES, XID, Setting, wanted
from tests.unit.dra_driver.cards import two_cards


async def test_published_once_and_owned_by_the_node(setting: Setting) -> None:
    setting.publisher.want(device_lists(two_cards(), Scales()))
    await setting.until_published()
    assert await setting.is_quiet()
    (item,) = setting.slices
    assert item["metadata"]["name"].startswith("00000-gpu.tessera.dev-node-a-")
    assert item["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid", "controller": True}
    ]
    assert setting.writes == 1
    assert setting.registry.get_sample_value("tessera_slice_writes_total", {"verb": "create"}) == 1


async def test_the_same_again_is_no_write(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    setting.publisher.want(copy.deepcopy(wanted()))
    assert await setting.is_quiet()
    assert setting.writes == 1


async def test_a_new_agent_finds_the_slices_right(setting: Setting, api: ApiServer) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    async with Client(api.connection, user_agent="second") as client:
        second = Setting(api, client)
        second.publisher.want(wanted())
        running = asyncio.create_task(second.publisher.run())
        await second.until(lambda: second.conditions[Condition.SLICES].holds)
        assert await second.is_quiet()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert setting.writes == 1
    assert len(setting.slices) == 1  # and stopping deletes none


async def test_deleted_by_the_kubelet_comes_back(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    first = setting.slices[0]["metadata"]["name"]
    setting.api.drop(SLICES, first)
    await setting.until(lambda: setting.slices)
    assert setting.slices[0]["metadata"]["name"] != first
    assert await setting.is_quiet()


async def test_changed_by_somebody_is_put_right(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    item = copy.deepcopy(setting.slices[0])
    item["spec"]["devices"] = item["spec"]["devices"][:1]
    setting.api.put(SLICES, item)
    await setting.until(lambda: len(setting.devices()) == 2)


async def test_other_inventory_other_slices(setting: Setting) -> None:
    setting.publisher.want(wanted(2))
    await setting.until(lambda: len(setting.devices()) == 2)
    setting.publisher.want(wanted(70))
    await setting.until(lambda: len(setting.devices()) == 70)
    assert len(setting.slices) == 2
    setting.publisher.want(wanted(0))
    await setting.until(lambda: len(setting.slices) == 1 and setting.devices() == [])
    assert await setting.is_quiet()


async def test_other_peoples_slices_are_not_touched(setting: Setting) -> None:
    others = [
        {
            "metadata": {"name": "a"},
            "spec": {"driver": "other.example", "nodeName": NODE, "pool": {"name": NODE}},
        },
        {
            "metadata": {"name": "b"},
            "spec": {"driver": "gpu.tessera.dev", "nodeName": "node-b", "pool": {"name": "b"}},
        },
    ]
    for item in others:
        setting.api.put(SLICES, item)
    setting.publisher.want(wanted())
    await setting.until(lambda: len(setting.slices) == 3)
    assert {"a", "b"} < {item["metadata"]["name"] for item in setting.slices}


@pytest.mark.parametrize("status", [403, 409, 422, 429, 500, 503])
async def test_a_refused_write_is_tried_again(setting: Setting, status: int) -> None:
    setting.api.refuse(status, times=2, when=lambda seen: seen.method == "POST")
    setting.publisher.want(wanted())
    await setting.until(lambda: not setting.conditions[Condition.SLICES].holds)
    await setting.until(lambda: setting.slices)
    await setting.until(lambda: setting.conditions[Condition.SLICES].holds)
    assert setting.registry.get_sample_value("tessera_slice_write_failures_total") == 2


async def test_a_node_that_is_not_there_yet_is_waited_for(setting: Setting) -> None:
    setting.api.drop(paths.nodes(), NODE)
    setting.publisher.want(wanted())
    await setting.until(lambda: "not found" in setting.conditions[Condition.SLICES].detail)
    setting.api.put(paths.nodes(), {"metadata": {"name": NODE, "uid": "new-uid"}})
    await setting.until(lambda: setting.slices)
    assert setting.slices[0]["metadata"]["ownerReferences"][0]["uid"] == "new-uid"


async def test_a_silent_watch_does_not_lead_to_duplicates(setting: Setting) -> None:
    setting.api.watch_fault = lambda _seen: "silent"
    await setting.api.end_streams()
    setting.publisher.want(wanted(2))
    await setting.until(lambda: setting.slices)
    setting.publisher.want(wanted(3))
    await setting.until(lambda: len(setting.devices()) == 3)
    assert len(setting.slices) == 1


async def test_the_api_server_may_be_away(setting: Setting) -> None:
    setting.publisher.want(wanted(2))
    await setting.until(lambda: setting.slices)
    await setting.api.stop()
    setting.publisher.want(wanted(3))
    await setting.until(lambda: not setting.conditions[Condition.SLICES].holds)
    await setting.api.start()
    await setting.until(lambda: len(setting.devices()) == 3)


@pytest.mark.parametrize(
    ("before", "after", "writes"),
    [
        pytest.param(wanted(), wanted(), 0, id="unchanged"),
        pytest.param(wanted(2, XID), wanted(2, XID), 0, id="unchanged-with-a-taint"),
        pytest.param(wanted(), wanted(2, XID), 1, id="a-taint"),
        pytest.param(wanted(2, XID), wanted(), 1, id="a-taint-less"),
        pytest.param(wanted(2, XID), wanted(2, LOST, XID), 1, id="one-more-taint"),
        pytest.param(wanted(2, XID), wanted(2, XID, scales=Scales(split_count=4)), 1, id="other-capacities"),
        pytest.param(wanted(2, XID), wanted(3, XID), 1, id="one-more-card"),
        pytest.param(wanted(), wanted(0), 1, id="no-card"),
        pytest.param(wanted(70, XID), wanted(70), 1, id="a-change-in-one-of-two-slices"),
        pytest.param(wanted(70), wanted(70, scales=Scales(split_count=4)), 2, id="in-both"),
        pytest.param(wanted(), wanted(70), 2, id="a-slice-more"),
        pytest.param(wanted(70), wanted(), 2, id="a-slice-less"),
    ],
)
async def test_as_many_writes_as_it_takes(
    setting: Setting, before: DeviceLists, after: DeviceLists, writes: int
) -> None:
    setting.publisher.want(before)
    await setting.until(lambda: len(setting.slices) == len(before))
    first = setting.writes
    setting.publisher.want(after)
    await setting.until(lambda: setting.writes == first + writes)
    assert await setting.is_quiet()
    assert setting.writes == first + writes


async def test_a_taint_keeps_its_time_when_the_kubelet_wipes_the_slices(setting: Setting) -> None:
    setting.publisher.want(wanted(2, XID))
    await setting.until(setting.taints)
    (taint,) = setting.taints()
    item = copy.deepcopy(setting.slices[0])
    since = item["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-11-29T01:02:03Z"
    setting.api.put(SLICES, item)
    await setting.until(lambda: since in setting.publisher._times.values())
    assert await setting.is_quiet()  # the time is no difference
    setting.api.drop(SLICES, item["metadata"]["name"])
    await setting.until(
        lambda: setting.slices and setting.slices[0]["metadata"]["uid"] != item["metadata"]["uid"]
    )
    assert setting.taints() == [taint | {"timeAdded": since}]


async def test_a_taint_that_comes_back_is_a_new_one(setting: Setting) -> None:
    setting.publisher.want(wanted(2, XID))
    await setting.until(setting.taints)
    item = copy.deepcopy(setting.slices[0])
    item["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-11-29T01:02:03Z"
    setting.api.put(SLICES, item)
    setting.publisher.want(wanted())
    await setting.until(lambda: not setting.taints())
    setting.publisher.want(wanted(2, XID))
    await setting.until(setting.taints)
    assert setting.taints()[0]["timeAdded"] > "2026-11-29T01:02:03Z"


async def test_a_watch_that_stays_silent_leads_to_no_second_write(setting: Setting) -> None:
    setting.api.watch_fault = lambda _seen: "silent"
    await setting.api.end_streams()
    setting.publisher.want(wanted(2))
    await setting.until_published()
    before = setting.writes
    for seconds in (11, 22, 33):
        setting.ahead = seconds
        assert await setting.publisher.sync() == 0
    assert (setting.writes, len(setting.slices)) == (before, 1)


async def test_a_slice_that_goes_while_the_watch_is_silent_comes_back(setting: Setting) -> None:
    setting.api.watch_fault = lambda _seen: "silent"
    await setting.api.end_streams()
    setting.publisher.want(wanted(2))
    await setting.until_published()
    setting.api.drop(SLICES, setting.slices[0]["metadata"]["name"])
    setting.ahead = 11
    assert await setting.publisher.sync() == 1
    assert len(setting.slices) == 1
