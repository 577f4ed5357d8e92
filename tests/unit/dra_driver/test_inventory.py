from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.inventory import Card, inventory, normalise_pci_bus_id, nvlink_domains
from dra_driver.names import device_name
from tests.unit.dra_driver.cards import A100, RTX_4090, many


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


def test_two_cards_of_one_uuid() -> None:
    twin = replace(A100, uuid=RTX_4090.uuid)
    found = inventory("1", "1", [twin, RTX_4090])
    assert found.cards == (RTX_4090,)
    assert [fault.card for fault in found.faults] == [A100.pci_bus_id]


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
