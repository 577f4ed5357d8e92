from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dra_driver.cards.inventory import Card, Inventory, LostCard, inventory
from dra_driver.cards.rules import Effect
from dra_driver.cards.taints import DEVICE_PLUGIN, KEYS, LOST, UNMONITORED, XID, Ailments, taints
from dra_driver.cards.xids import Xid
from tests.unit.dra_driver.cards import A100, RTX_4090, instance, two_cards


def xid(card: Card, number: int = 79, uuid: str | None = None) -> Xid:
    return Xid(
        uuid=uuid or card.uuid, gpu_uuid=card.gpu_uuid, number=number, first=1.0, last=1.0, life="boot-1"
    )


LOST_A100 = replace(inventory("1", "1", [RTX_4090]), lost=(LostCard(A100, "is gone"),))
SPLIT = inventory("1", "1", [RTX_4090, instance(1, 10), instance(2, 10)])


@pytest.mark.parametrize(
    ("found", "ailments", "expected"),
    [
        pytest.param(two_cards(), Ailments(), {}, id="nothing-known"),
        pytest.param(LOST_A100, Ailments(), {A100.name: [(LOST, "", "NoSchedule")]}, id="lost"),
        pytest.param(
            two_cards(),
            Ailments(xids={A100.uuid: xid(A100, 48)}),
            {A100.name: [(XID, "48", "NoSchedule")]},
            id="xid",
        ),
        pytest.param(
            LOST_A100,
            Ailments(xids={A100.uuid: xid(A100)}),
            {A100.name: [(LOST, "", "NoSchedule"), (XID, "79", "NoSchedule")]},
            id="lost-with-its-xid",
        ),
        pytest.param(
            two_cards(),
            Ailments(unheard={RTX_4090.uuid: "not supported"}),
            {RTX_4090.name: [(UNMONITORED, "no-events", "None")]},
            id="no-events-are-only-told",
        ),
        pytest.param(
            LOST_A100,
            Ailments(unheard={A100.uuid: "not supported"}),
            {A100.name: [(LOST, "", "NoSchedule")]},
            id="lost-says-it-all",
        ),
        pytest.param(
            LOST_A100,
            Ailments(unheard={RTX_4090.uuid: "not supported"}, is_silent=True),
            {
                RTX_4090.name: [(UNMONITORED, "silent", "NoSchedule")],
                A100.name: [(LOST, "", "NoSchedule"), (UNMONITORED, "silent", "NoSchedule")],
            },
            id="silent-for-long",
        ),
        pytest.param(
            LOST_A100,
            Ailments(has_device_plugin=True),
            {
                RTX_4090.name: [(DEVICE_PLUGIN, "", "NoSchedule")],
                A100.name: [(DEVICE_PLUGIN, "", "NoSchedule"), (LOST, "", "NoSchedule")],
            },
            id="a-device-plugin-beside-us",
        ),
        pytest.param(
            SPLIT,
            Ailments(xids={A100.uuid: xid(A100)}, unheard={A100.uuid: "not supported"}),
            {
                instance(number, 10).name: [(UNMONITORED, "no-events", "None"), (XID, "79", "NoSchedule")]
                for number in (1, 2)
            },
            id="a-gpu-is-all-its-instances",
        ),
        pytest.param(
            SPLIT,
            Ailments(xids={instance(2, 10).uuid: xid(instance(2, 10), 63)}),
            {instance(2, 10).name: [(XID, "63", "NoSchedule")]},
            id="one-instance",
        ),
        pytest.param(
            two_cards(), Ailments(xids={"GPU-of-another-life": xid(A100)}), {}, id="a-card-that-is-not-there"
        ),
    ],
)
def test_taints(found: Inventory, ailments: Ailments, expected: Mapping[str, object]) -> None:
    given = taints(found, ailments, {})
    assert {
        name: [(taint.key, taint.value, taint.effect.value) for taint in some] for name, some in given.items()
    } == expected


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("effect", Effect)
def test_an_effect_that_was_configured(key: str, effect: Effect) -> None:
    ailments = Ailments(xids={A100.uuid: xid(A100)}, is_silent=True, has_device_plugin=True)
    some = taints(LOST_A100, ailments, {key: effect})[A100.name]
    assert {taint.effect for taint in some if taint.key == key} == {effect}
    assert [taint.key for taint in some] == sorted(taint.key for taint in some)
    for taint in some:
        assert set(taint.document()) <= {"key", "value", "effect"}
        assert all(taint.document().values())  # an empty value is left out


def test_an_effect_holds_for_both_values_of_unmonitored() -> None:
    for ailments in (Ailments(is_silent=True), Ailments(unheard={A100.uuid: "no"})):
        given = taints(two_cards(), ailments, {UNMONITORED: Effect.NO_EXECUTE})
        assert {taint.effect for taint in given[A100.name]} == {Effect.NO_EXECUTE}
