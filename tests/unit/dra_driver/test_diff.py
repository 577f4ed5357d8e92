from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import inventory
from dra_driver.cards.rules import Effect
from dra_driver.cards.taints import Taint
from dra_driver.slices.diff import Create, Delete, Pool, Update, Write
from dra_driver.slices.documents import DeviceLists, device_lists
from dra_driver.slices.stored import dropped_fields, fingerprint, gates_of, taint_times
from tests.unit.dra_driver.cards import many

POOL = Pool("gpu.tessera.dev", "node-a")
Object = dict[str, Any]


def lists(*counts: int, scales: Scales = Scales()) -> DeviceLists:  # noqa: B008 - immutable
    """Slices with so many devices each, cut anywhere."""
    devices = iter(device_lists(inventory("1", "1", many(60)), scales)[0])
    return tuple(tuple(next(devices) for _ in range(count)) for count in counts)


class Server:
    """Applies writes as an API server would."""

    def __init__(self) -> None:
        self.slices: dict[str, Object] = {}
        self.version = 0

    def apply(self, writes: tuple[Write, ...]) -> None:
        for write in writes:
            self.version += 1
            if isinstance(write, Delete):
                assert self.slices[write.name]["metadata"]["uid"] == write.uid
                del self.slices[write.name]
                continue
            item = copy.deepcopy(write.body)
            if isinstance(write, Create):
                name = f"{item['metadata'].pop('generateName')[:58]}{self.version:05x}"
                item["metadata"] |= {"name": name, "uid": f"uid-{self.version}"}
            item["metadata"]["resourceVersion"] = str(self.version)
            self.slices[item["metadata"]["name"]] = item

    def publish(self, wanted: DeviceLists, pool: Pool = POOL) -> tuple[Write, ...]:
        writes = pool.writes(wanted, list(self.slices.values()))
        self.apply(writes)
        return writes

    def state(self) -> list[tuple[int, int, list[str]]]:
        """(generation, slice count, device names) in the order in which the scheduler reads them."""
        return [
            (
                item["spec"]["pool"]["generation"],
                item["spec"]["pool"]["resourceSliceCount"],
                [device["name"] for device in item["spec"]["devices"]],
            )
            for _, item in sorted(self.slices.items())
        ]


def published(*counts: int) -> Server:
    server = Server()
    server.publish(lists(*counts))
    return server


def kinds(writes: tuple[Write, ...]) -> str:
    return "".join({Delete: "d", Update: "u", Create: "c"}[type(write)] for write in writes)


def names(*counts: int) -> list[list[str]]:
    return [[device["name"] for device in devices] for devices in lists(*counts)]


@pytest.mark.parametrize(
    ("before", "wanted", "writes", "generation"),
    [
        pytest.param((), (2,), "c", 1, id="first"),
        pytest.param((), (0,), "c", 1, id="empty-pool-is-a-slice"),
        pytest.param((2,), (2,), "", 1, id="unchanged"),
        pytest.param((2, 2), (2, 2), "", 1, id="two-unchanged"),
        pytest.param((2,), (3,), "u", 1, id="one-changed-keeps-the-generation"),
        pytest.param((2, 2), (2, 3), "u", 1, id="one-of-two-changed-keeps-the-generation"),
        pytest.param((2, 2), (3, 2), "uu", 2, id="two-changed-raises-it"),
        pytest.param((2,), (2, 2), "uc", 2, id="one-more"),
        pytest.param((2, 2), (2,), "du", 1, id="one-less"),
        pytest.param((2, 2, 2), (2,), "ddu", 1, id="two-less"),
        pytest.param((2,), (0,), "u", 1, id="all-cards-gone"),
    ],
)
def test_writes(before: tuple[int, ...], wanted: tuple[int, ...], writes: str, generation: int) -> None:
    server = published(*before) if before else Server()
    assert kinds(server.publish(lists(*wanted))) == writes
    assert server.state() == [(generation, len(wanted), devices) for devices in names(*wanted)]
    assert server.publish(lists(*wanted)) == ()


def test_deleted_slice_comes_back() -> None:
    server = published(2, 2)
    server.slices.popitem()
    assert kinds(server.publish(lists(2, 2))) == "uc"
    assert server.state() == [(2, 2, devices) for devices in names(2, 2)]


def test_everything_deleted_comes_back() -> None:
    server = published(2)
    server.slices.clear()
    assert kinds(server.publish(lists(2))) == "c"


def test_a_duplicate_is_deleted() -> None:
    server = published(2)
    (item,) = server.slices.values()
    twin = copy.deepcopy(item)
    twin["metadata"] |= {"name": item["metadata"]["name"] + "x", "uid": "twin"}
    server.slices[twin["metadata"]["name"]] = twin
    writes = server.publish(lists(2))
    assert [write.uid for write in writes if isinstance(write, Delete)] == ["twin"]
    assert kinds(writes) == "d"


def test_slices_of_an_older_generation_are_deleted() -> None:
    server = published(2)
    (item,) = server.slices.values()
    old = copy.deepcopy(item)
    old["metadata"] |= {"name": "00000-gpu.tessera.dev-node-a-zzzzz", "uid": "old"}
    item["spec"]["pool"]["generation"] = 7
    server.slices[old["metadata"]["name"]] = old
    writes = server.publish(lists(2))
    assert kinds(writes) == "d"
    assert server.state()[0][0] == 7


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        pytest.param({"driver": "other.example"}, "", id="another-driver"),
        pytest.param({"nodeName": "node-b"}, "", id="another-node"),
        pytest.param({"nodeName": None}, "", id="no-node"),
        pytest.param({"pool": {"name": "node-b", "generation": 9}}, "d", id="our-driver-but-another-pool"),
    ],
)
def test_other_slices(change: Object, expected: str) -> None:
    server = published(2)
    (item,) = copy.deepcopy(list(server.slices.values()))
    item["metadata"] |= {"name": "other", "uid": "other"}
    item["spec"] |= change
    server.slices["other"] = item
    assert kinds(server.publish(lists(2))) == expected


def test_a_name_without_our_prefix_is_replaced() -> None:
    server = published(2)
    (item,) = server.slices.values()
    item["metadata"]["name"] = "by-hand"
    server.slices = {"by-hand": item}
    assert kinds(server.publish(lists(2))) == "dc"
    assert server.state()[0][0] == 2


def test_a_long_node_name_is_cut_by_the_server() -> None:
    server = Server()
    pool = Pool("gpu.tessera.dev", "ip-10-0-112-134.eu-central-1.compute.internal.example")
    assert kinds(server.publish(lists(2, 2), pool)) == "cc"
    assert kinds(server.publish(lists(2, 2), pool)) == ""
    assert kinds(server.publish(lists(2, 3), pool)) == "u"


def test_wider_indexes_are_understood() -> None:
    server = published(2)
    (item,) = server.slices.values()
    item["metadata"]["name"] = item["metadata"]["name"].replace("00000-", "000000-", 1)
    server.slices = {item["metadata"]["name"]: item}
    assert server.publish(lists(2)) == ()


def test_update_keeps_what_we_do_not_know() -> None:
    server = published(2)
    (item,) = server.slices.values()
    item["metadata"]["annotations"] = {"somebody": "else"}
    item["spec"]["futureField"] = True
    (write,) = server.publish(lists(3))
    assert isinstance(write, Update)
    assert write.body["metadata"]["annotations"] == {"somebody": "else"}
    assert write.body["metadata"]["resourceVersion"]
    assert write.body["spec"]["futureField"] is True


def test_the_servers_spelling_of_quantities_is_no_difference() -> None:
    server = published(1)
    (item,) = server.slices.values()
    capacity = item["spec"]["devices"][0]["capacity"]
    assert capacity["shares"]["value"] == "1000"
    capacity["shares"]["value"] = "1k"
    capacity["memory"]["value"] = str(16 << 30)
    assert server.publish(lists(1)) == ()
    capacity["memory"]["value"] = str(15 << 30)
    assert kinds(server.publish(lists(1))) == "u"


def test_adopted_contents_are_no_difference() -> None:
    server = published(1)
    (item,) = server.slices.values()
    for device in item["spec"]["devices"]:
        del device["allowMultipleAllocations"]
    assert len(POOL.writes(lists(1), server.slices.values())) == 1
    adopted = {fingerprint(lists(1)[0]): fingerprint(item["spec"]["devices"])}
    assert Pool(POOL.driver, POOL.node, adopted).writes(lists(1), server.slices.values()) == ()


NO_SCHEDULE = Taint("gpu.tessera.dev/xid", "79", Effect.NO_SCHEDULE)


def tainted(lists: DeviceLists, *taints: Taint, of: tuple[int, ...] = (0,)) -> DeviceLists:
    """The same, with these taints on the devices of those numbers in each slice."""
    return tuple(
        tuple(
            device | ({"taints": [taint.document() for taint in taints]} if number in of else {})
            for number, device in enumerate(devices)
        )
        for devices in lists
    )


class TimingServer(Server):
    """Says since when a taint is there where nobody else does, as the real one: a second for each write."""

    def apply(self, writes: tuple[Write, ...]) -> None:
        for write in writes:
            super().apply((write,))
            for item in self.slices.values():
                for taint in (
                    taint for device in item["spec"]["devices"] for taint in device.get("taints", ())
                ):
                    taint.setdefault("timeAdded", f"2026-11-29T00:00:{self.version:02d}Z")

    def times(self) -> list[str]:
        return [
            taint["timeAdded"]
            for _, item in sorted(self.slices.items())
            for device in item["spec"]["devices"]
            for taint in device.get("taints", ())
        ]


def at(second: int) -> str:
    return f"2026-11-29T00:00:{second:02d}Z"


def test_a_taint_is_one_write_and_none_again() -> None:
    server = TimingServer()
    server.publish(lists(2))
    assert kinds(server.publish(tainted(lists(2), NO_SCHEDULE))) == "u"
    assert server.publish(tainted(lists(2), NO_SCHEDULE)) == ()
    assert server.times() == [at(2)]
    assert kinds(server.publish(lists(2))) == "u"
    assert "taints" not in next(iter(server.slices.values()))["spec"]["devices"][0]


@pytest.mark.parametrize(
    ("before", "after", "writes"),
    [
        pytest.param(
            tainted(lists(2), NO_SCHEDULE),
            tainted(lists(2, scales=Scales(split_count=4)), NO_SCHEDULE),
            "u",
            id="something-else-has-changed",
        ),
        pytest.param(
            tainted(lists(2), NO_SCHEDULE),
            tainted(lists(2), Taint("gpu.tessera.dev/lost", "", Effect.NO_SCHEDULE), NO_SCHEDULE),
            "u",
            id="another-taint-beside-it",
        ),
        pytest.param(
            tainted(lists(1, 2), NO_SCHEDULE), tainted(lists(1, 3, 1), NO_SCHEDULE, of=(0,)), "uuc",
            id="a-new-generation",
        ),
        pytest.param(
            tainted(lists(2, 2), NO_SCHEDULE), tainted(lists(4), NO_SCHEDULE, of=(0, 2)), "du",
            id="the-device-moves-into-another-slice",
        ),
    ],
)  # fmt: skip
def test_a_taint_keeps_its_time(before: DeviceLists, after: DeviceLists, writes: str) -> None:
    server = TimingServer()
    server.publish(before)
    known = set(server.times())
    assert kinds(server.publish(after)) == writes
    assert known <= set(server.times())
    assert server.publish(after) == ()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(Taint(NO_SCHEDULE.key, "48", Effect.NO_SCHEDULE), id="another-value"),
        pytest.param(Taint(NO_SCHEDULE.key, "79", Effect.NO_EXECUTE), id="another-effect"),
        pytest.param(Taint("gpu.tessera.dev/lost", "79", Effect.NO_SCHEDULE), id="another-key"),
    ],
)
def test_another_taint_has_a_time_of_its_own(after: Taint) -> None:
    server = TimingServer()
    server.publish(tainted(lists(2), NO_SCHEDULE))
    server.publish(tainted(lists(2), after))
    assert server.times() == [at(2)]


def test_a_taints_time_outlives_its_slice_where_it_is_remembered() -> None:
    server = TimingServer()
    server.publish(tainted(lists(2), NO_SCHEDULE))
    times = taint_times(server.slices.values())
    server.slices.clear()
    server.publish(tainted(lists(2), NO_SCHEDULE), Pool(POOL.driver, POOL.node, times=times))
    assert server.times() == [at(1)]


def test_dropped_taints_are_adopted_like_all_else() -> None:
    server = published(2)
    wanted = tainted(lists(2), NO_SCHEDULE)
    (item,) = server.slices.values()
    adopted = {fingerprint(wanted[0]): fingerprint(item["spec"]["devices"])}
    assert Pool(POOL.driver, POOL.node, adopted).writes(wanted, server.slices.values()) == ()
    dropped = dropped_fields(wanted[0], item["spec"]["devices"])
    assert (dropped, gates_of(dropped)) == (("taints",), ("DRADeviceTaints",))


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=6), st.data())
def test_any_history_converges(steps: list[list[int]], data: st.DataObject) -> None:
    server = Server()
    highest = 0
    for counts in steps:
        for name in data.draw(st.sets(st.sampled_from(sorted(server.slices)))) if server.slices else ():
            del server.slices[name]
        server.publish(lists(*counts))
        assert [(count, devices) for _, count, devices in server.state()] == [
            (len(counts), devices) for devices in names(*counts)
        ]
        generations = {generation for generation, _, _ in server.state()}
        assert len(generations) == 1
        assert server.publish(lists(*counts)) == ()
        highest = max(generations)
    assert highest <= len(steps)


def test_dropped_fields_are_named() -> None:
    sent = list(lists(2)[0])
    stored = copy.deepcopy(sent)
    for device in stored:
        del device["allowMultipleAllocations"]
        for capacity in device["capacity"].values():
            del capacity["requestPolicy"]
    dropped = dropped_fields(sent, stored)
    assert dropped == (
        "allowMultipleAllocations",
        "capacity.cores.requestPolicy",
        "capacity.memory.requestPolicy",
        "capacity.shares.requestPolicy",
    )
    assert gates_of(dropped) == ("DRAConsumableCapacity",)
    assert dropped_fields(sent, copy.deepcopy(sent)) == ()
