from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.inventory import (
    Card,
    CardFault,
    Inventory,
    inventory,
    normalise_pci_bus_id,
    nvlink_domains,
    with_lost,
    with_unlisted,
)
from dra_driver.names import device_name
from tests.unit.dra_driver.cards import A100, RTX_4090, instance, many, two_cards


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("00000000:3B:00.0", "0000:3b:00.0", id="nvml-8-digits"),
        pytest.param("0000:3B:00.0", "0000:3b:00.0", id="nvml-legacy"),
        pytest.param("3b:00.0", "0000:3b:00.0", id="no-domain"),
        pytest.param("0001000A:3B:00.0", None, id="domain-above-16-bit"),
        pytest.param("0000000A:3B:00.0", "000a:3b:00.0", id="other-domain"),
        pytest.param("", None, id="empty"),
        pytest.param("0000:3B:00", None, id="no-function"),
    ],
)
def test_pci_bus_id(text: str, expected: str | None) -> None:
    assert normalise_pci_bus_id(text) == expected


@given(
    st.integers(0, 0xFFFF),
    st.integers(0, 255),
    st.integers(0, 31),
    st.integers(0, 7),
    st.sampled_from([4, 8]),
)
def test_pci_bus_id_is_stable(domain: int, bus: int, device: int, function: int, width: int) -> None:
    text = f"{domain:0{width}X}:{bus:02X}:{device:02X}.{function:X}"
    once = normalise_pci_bus_id(text)
    assert once == f"{domain:04x}:{bus:02x}:{device:02x}.{function:x}"
    assert normalise_pci_bus_id(once) == once


def test_device_name_is_a_dns_label_that_has_the_uuid() -> None:
    assert device_name(RTX_4090.uuid) == "gpu-6f1e5d3a-0001-4c3b-9a55-2b7f0e9d4090"
    assert len(device_name(RTX_4090.uuid)) <= 63


@given(st.permutations(many(6)))
def test_order_is_pci_order(cards: list[Card]) -> None:
    assert inventory("1", "1", cards).cards == many(6)


def test_instances_stand_in_their_cards_place_by_number() -> None:
    cards = [RTX_4090, instance(1, 40), instance(9, 10), instance(10, 10)]
    found = inventory("1", "1", reversed(cards))
    assert list(found.cards) == cards
    assert found.gpus == {RTX_4090.uuid, A100.uuid}


def test_an_instance_has_a_dns_label_of_its_own() -> None:
    assert instance(9, 10).name == "mig-00000000-0000-5000-8000-000000000009"
    assert instance(9, 10).gpu_uuid == A100.uuid


def test_nvlink_does_not_reach_instances() -> None:
    assert nvlink_domains([instance(1, 40), instance(9, 10)]) == {}


def test_two_cards_of_one_uuid() -> None:
    twin = replace(A100, uuid=RTX_4090.uuid)
    found = inventory("1", "1", [twin, RTX_4090])
    assert found.cards == (RTX_4090,)
    assert [fault.card for fault in found.faults] == [A100.pci_bus_id]


FALLEN = CardFault("GPU 1", "can't be described, the driver says: GPU is lost", unanswered=True)
MUTE = CardFault(A100.uuid, "can't be described, the driver says: Unknown Error", unanswered=True)
NAMELESS = CardFault("MIG instance 1", "is silent", unanswered=True, instance_of=A100.uuid)
NOT_LISTED = "the NVIDIA driver does not list the card any more"
SPLIT = inventory("1", "1", [RTX_4090, instance(1, 40), instance(9, 10)])


@pytest.mark.parametrize(
    ("before", "found", "lost"),
    [
        pytest.param(None, inventory("1", "1", []), {}, id="first-look"),
        pytest.param(two_cards(), two_cards(), {}, id="all-there"),
        pytest.param(two_cards(), inventory("1", "1", [RTX_4090]), {A100.uuid: NOT_LISTED}, id="not-listed"),
        pytest.param(
            two_cards(),
            inventory("1", "1", [RTX_4090], [FALLEN]),
            {A100.uuid: f"{NOT_LISTED}; {FALLEN.card} {FALLEN.reason}"},
            id="listed-without-a-name",
        ),
        pytest.param(
            two_cards(),
            inventory("1", "1", [RTX_4090], [MUTE], [A100.uuid]),
            {A100.uuid: f"{MUTE.card} {MUTE.reason}"},
            id="gives-its-name-only",
        ),
        pytest.param(two_cards(), inventory("1", "1", [RTX_4090], [], [A100.uuid]), {}, id="in-mig-mode-now"),
        pytest.param(two_cards(), SPLIT, {}, id="became-instances"),
        pytest.param(SPLIT, inventory("1", "1", [RTX_4090, instance(1, 40)]), {}, id="an-instance-less"),
        pytest.param(
            SPLIT,
            inventory("1", "1", [RTX_4090]),
            {instance(1, 40).uuid: NOT_LISTED, instance(9, 10).uuid: NOT_LISTED},
            id="instances-lost-with-their-gpu",
        ),
        pytest.param(
            SPLIT,
            inventory(
                "1",
                "1",
                [RTX_4090, instance(1, 40)],
                [CardFault(instance(9, 10).uuid, "is silent", unanswered=True)],
            ),
            {instance(9, 10).uuid: f"{instance(9, 10).uuid} is silent"},
            id="one-instance-is-silent",
        ),
        pytest.param(
            SPLIT,
            inventory("1", "1", [RTX_4090, instance(1, 40)], [NAMELESS]),
            {instance(9, 10).uuid: f"{NOT_LISTED}; {NAMELESS.card} {NAMELESS.reason}"},
            id="one-instance-gives-no-name",
        ),
    ],
)
def test_what_is_lost(before: Inventory | None, found: Inventory, lost: dict[str, str]) -> None:
    merged = with_lost(before, found)
    assert {one.card.uuid: one.reason for one in merged.lost} == lost
    assert merged.cards == found.cards
    assert {card.uuid for card in merged.published} == {card.uuid for card in found.cards} | lost.keys()
    if before is not None:
        assert with_lost(merged, found).lost == merged.lost  # it stays lost
        assert with_lost(merged, before).lost == ()  # until it is found again


@pytest.mark.parametrize(
    ("found", "driven", "expected"),
    [
        pytest.param(two_cards(), 2, None, id="all"),
        pytest.param(two_cards(), 0, None, id="nothing-known-of-the-kernel-driver"),
        pytest.param(two_cards(), 3, "1 of 3 cards", id="one-more"),
        pytest.param(inventory("1", "1", []), 2, "2 of 2 cards", id="none-yet"),
        pytest.param(SPLIT, 2, None, id="instances-are-one-card"),
        pytest.param(inventory("1", "1", [RTX_4090], [FALLEN]), 2, None, id="listed-without-a-name"),
        pytest.param(
            with_lost(two_cards(), inventory("1", "1", [RTX_4090])), 2, None, id="lost-is-told-already"
        ),
        pytest.param(
            with_lost(two_cards(), inventory("1", "1", [RTX_4090], [FALLEN])), 3, "1 of 3 cards", id="both"
        ),
    ],
)
def test_what_only_the_kernel_driver_has(found: Inventory, driven: int, expected: str | None) -> None:
    faults = set(with_unlisted(found, driven).faults) - set(found.faults)
    assert [fault.card for fault in faults] == ([expected] if expected is not None else [])
    assert all(fault.unanswered for fault in faults)


def test_a_lost_card_keeps_its_place() -> None:
    merged = with_lost(two_cards(), inventory("1", "1", [A100]))
    assert [card.uuid for card in merged.published] == [RTX_4090.uuid, A100.uuid]


def linked(number: int, *peers: str) -> Card:
    return replace(many(8)[number], nvlink_peers=peers)


@pytest.mark.parametrize(
    ("cards", "expected"),
    [
        pytest.param([linked(0), linked(1)], {}, id="none"),
        pytest.param(
            [linked(0, "0000:01:00.0"), linked(1, "0000:00:00.0"), linked(2)],
            {0: "0000:00:00.0", 1: "0000:00:00.0"},
            id="a-bridge",
        ),
        pytest.param(
            [linked(0, "0000:f0:00.0"), linked(1, "0000:f0:00.0"), linked(2, "0000:f1:00.0")],
            {0: "0000:00:00.0", 1: "0000:00:00.0"},
            id="through-a-switch-and-one-alone",
        ),
        pytest.param(
            [linked(0, "0000:01:00.0"), linked(1, "0000:02:00.0"), linked(2), linked(3, "0000:02:00.0")],
            {0: "0000:00:00.0", 1: "0000:00:00.0", 2: "0000:00:00.0", 3: "0000:00:00.0"},
            id="a-chain",
        ),
    ],
)
def test_nvlink_domains(cards: list[Card], expected: dict[int, str]) -> None:
    assert nvlink_domains(cards) == {many(8)[number].uuid: domain for number, domain in expected.items()}
