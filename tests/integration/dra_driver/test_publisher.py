from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import inventory
from dra_driver.cards.rules import Effect
from dra_driver.cards.taints import Taint
from dra_driver.conditions import Condition, Conditions
from dra_driver.metrics.counters import Metrics
from dra_driver.slices.documents import DeviceLists, device_lists
from dra_driver.slices.publisher import Publisher
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from tests.integration.api_server import ApiServer, Object
from tests.unit.dra_driver.cards import many, two_cards

NODE = "node-a"
SLICES = paths.resource_slices()
QUIET = 1.2  # seconds in which a write that is wrong would have come


class ForgetfulServer(ApiServer):
    """Drops the fields of a feature that is off, silently, as the real one does."""

    dropping = True

    def _store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
        if self.dropping and collection == SLICES:
            for device in item["spec"].get("devices", ()):
                device.pop("taints", None)
                device.pop("allowMultipleAllocations", None)
                for capacity in device["capacity"].values():
                    capacity.pop("requestPolicy", None)
        return super()._store(collection, key, item, kind)


class TaintlessServer(ApiServer):
    """Has DRADeviceTaints off."""

    dropping = True

    def _store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
        if self.dropping and collection == SLICES:
            for device in item["spec"].get("devices", ()):
                device.pop("taints", None)
        return super()._store(collection, key, item, kind)


class Setting:
    """A publisher that runs against a fake API server."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.conditions = Conditions()
        self.registry = CollectorRegistry()
        self.publisher = Publisher(
            client=client,
            node=NODE,
            conditions=self.conditions,
            metrics=Metrics(self.registry),
            backoff=Backoff(0.05, 0.2),
            clock=lambda: time.monotonic() + self.ahead,
        )
        self.ahead = 0.0

    @property
    def slices(self) -> list[Object]:
        return self.api.all(SLICES)

    @property
    def writes(self) -> int:
        return sum(seen.method in ("POST", "PUT", "DELETE", "PATCH") for seen in self.api.requests)

    def taints(self) -> list[dict[str, str]]:
        return [
            taint
            for item in self.slices
            for device in item["spec"]["devices"]
            for taint in device.get("taints", ())
        ]

    def devices(self) -> list[str]:
        return [device["name"] for item in self.slices for device in item["spec"]["devices"]]

    async def until(self, what: Any, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():  # noqa: ASYNC110 - the fake server has no events to wait for
                await asyncio.sleep(0.02)

    async def is_quiet(self) -> bool:
        before = self.writes
        await asyncio.sleep(QUIET)
        return self.writes == before


def wanted(count: int = 2, *taints: Taint, scales: Scales = Scales()) -> DeviceLists:  # noqa: B008 - immutable
    """So many cards, the first of which has the taints."""
    cards = many(count)
    found = inventory("570.124.06", "12.8.0", cards)
    return device_lists(found, scales, taints={cards[0].name: taints} if cards else {})


XID = Taint("gpu.tessera.dev/xid", "79", Effect.NO_SCHEDULE)
TOLD = Taint("gpu.tessera.dev/unmonitored", "no-events", Effect.NONE)
LOST = Taint("gpu.tessera.dev/lost", "", Effect.NO_SCHEDULE)


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    kind = getattr(request, "param", ApiServer)
    async with kind() as api:
        api.put(paths.nodes(), {"metadata": {"name": NODE, "uid": "node-uid"}})
        yield api


@pytest.fixture
async def setting(server: ApiServer) -> AsyncIterator[Setting]:
    async with Client(server.connection, user_agent="test") as client:
        made = Setting(server, client)
        running = asyncio.create_task(made.publisher.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_published_once_and_owned_by_the_node(setting: Setting) -> None:
    setting.publisher.want(device_lists(two_cards(), Scales()))
    await setting.until(lambda: setting.slices)
    assert await setting.is_quiet()
    (item,) = setting.slices
    assert item["metadata"]["name"].startswith("00000-gpu.tessera.dev-node-a-")
    assert item["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid", "controller": True}
    ]
    assert setting.writes == 1
    assert setting.conditions[Condition.SLICES].holds
    assert setting.registry.get_sample_value("tessera_slice_writes_total", {"verb": "create"}) == 1


async def test_the_same_again_is_no_write(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    setting.publisher.want(copy.deepcopy(wanted()))
    assert await setting.is_quiet()
    assert setting.writes == 1


async def test_a_new_agent_finds_the_slices_right(setting: Setting, server: ApiServer) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    async with Client(server.connection, user_agent="second") as client:
        second = Setting(server, client)
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


@pytest.mark.parametrize("server", [ForgetfulServer], indirect=True)
async def test_dropped_fields_are_said_aloud_and_not_fought(setting: Setting) -> None:
    setting.publisher.want(wanted())
    await setting.until(lambda: not setting.conditions[Condition.FEATURES].holds)
    detail = setting.conditions[Condition.FEATURES].detail
    assert "dropped allowMultipleAllocations" in detail
    assert "switch on the feature gate DRAConsumableCapacity" in detail
    assert await setting.is_quiet()
    assert setting.writes == 1
    assert isinstance(setting.api, ForgetfulServer)
    setting.api.dropping = False
    setting.publisher.want(wanted(3))
    await setting.until(lambda: setting.conditions[Condition.FEATURES].holds)


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


@pytest.mark.parametrize("server", [TaintlessServer], indirect=True)
async def test_dropped_taints_are_told_where_one_is_needed(setting: Setting) -> None:
    def features() -> bool:
        return setting.conditions[Condition.FEATURES].holds

    def dropped() -> float | None:
        return setting.registry.get_sample_value("tessera_slice_fields_dropped", {"gate": "DRADeviceTaints"})

    setting.publisher.want(wanted())
    await setting.until(lambda: setting.slices)
    assert await setting.is_quiet()
    assert (features(), dropped()) == (True, 0)

    setting.publisher.want(wanted(2, TOLD))
    await setting.until(lambda: dropped() == 1)
    assert features()  # nobody is worse off
    assert "DRADeviceTaints" in setting.conditions[Condition.FEATURES].detail

    setting.publisher.want(wanted(2, XID))
    await setting.until(lambda: not features())
    assert setting.conditions[Condition.FEATURES].detail == (
        "the API server dropped taints from our ResourceSlices: switch on the feature gate DRADeviceTaints on"
        " API server, scheduler and kubelet"
    )
    before = setting.writes
    assert await setting.is_quiet()

    setting.publisher.want(wanted())
    await setting.until(lambda: features() and dropped() == 0)
    assert await setting.is_quiet()
    assert setting.writes == before  # there is nothing to take back


@pytest.mark.parametrize("server", [TaintlessServer], indirect=True)
async def test_a_feature_that_was_switched_on_is_used_in_time(setting: Setting) -> None:
    setting.publisher.want(wanted(2, XID))
    await setting.until(lambda: not setting.conditions[Condition.FEATURES].holds)
    assert isinstance(setting.api, TaintlessServer)
    setting.ahead = 3601
    setting.publisher.want(copy.deepcopy(wanted(3, XID)))  # wakes it
    await setting.until(lambda: len(setting.devices()) == 3)
    assert not setting.conditions[Condition.FEATURES].holds
    setting.api.dropping = False
    setting.ahead = 2 * 3601
    setting.api.put(SLICES, setting.slices[0])  # wakes it
    await setting.until(lambda: setting.conditions[Condition.FEATURES].holds)
    assert len(setting.taints()) == 1


async def test_dropped_fields_of_one_slice_are_not_forgotten_for_the_others_sake(setting: Setting) -> None:
    setting.publisher.want(wanted(70, XID))
    await setting.until(lambda: len(setting.slices) == 2)
    first = copy.deepcopy(setting.slices[0])
    for device in first["spec"]["devices"]:
        device.pop("taints", None)
    setting.api.put(SLICES, first)  # somebody has removed it: it comes back
    await setting.until(setting.taints)
    assert setting.conditions[Condition.FEATURES].holds


async def test_a_watch_that_stays_silent_leads_to_no_second_write(setting: Setting) -> None:
    setting.api.watch_fault = lambda _seen: "silent"
    await setting.api.end_streams()
    setting.publisher.want(wanted(2))
    await setting.until(lambda: setting.slices)
    before = setting.writes
    for seconds in (11, 22, 33):
        setting.ahead = seconds
        assert await setting.publisher.sync() == 0
    assert (setting.writes, len(setting.slices)) == (before, 1)


async def test_a_slice_that_goes_while_the_watch_is_silent_comes_back(setting: Setting) -> None:
    setting.api.watch_fault = lambda _seen: "silent"
    await setting.api.end_streams()
    setting.publisher.want(wanted(2))
    await setting.until(lambda: setting.slices)
    setting.api.drop(SLICES, setting.slices[0]["metadata"]["name"])
    setting.ahead = 11
    assert await setting.publisher.sync() == 1
    assert len(setting.slices) == 1
