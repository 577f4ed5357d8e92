from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import Inventory, inventory
from dra_driver.names import DeviceName
from dra_driver.slices.diff import Create, Pool
from dra_driver.slices.documents import device_lists
from kube.quantity import parse_quantity
from tests.unit.dra_driver.cards import A100, RTX_4090, instance, many, two_cards
from tests.unit.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
MIB = 1 << 20


def bare() -> Inventory:
    """A card that could tell nothing but what it must."""
    card = replace(
        A100, brand=None, architecture=None, compute_capability=None, pcie_root=None, numa_node=None
    )
    return inventory("440.33", "10.2.0", [card])


def bridged() -> Inventory:
    pair = (
        replace(RTX_4090, nvlink_peers=(A100.pci_bus_id,)),
        replace(A100, nvlink_peers=(RTX_4090.pci_bus_id,)),
    )
    return inventory("570.124.06", "12.8.0", pair)


def split() -> Inventory:
    """A card in MIG mode, as three instances, of which one is excluded; and a whole card."""
    instances = (
        instance(1, 40, profile="3g.40gb"),
        instance(9, 10),
        replace(instance(10, 10), withheld="is excluded"),
    )
    return inventory("570.124.06", "12.8.0", (*instances, RTX_4090))


@pytest.mark.parametrize(
    ("found", "scales"),
    [
        pytest.param(two_cards(), Scales(), id="two-cards"),
        pytest.param(bare(), Scales(split_count=1), id="bare-exclusive"),
        pytest.param(bridged(), Scales(3, Fraction("1.25"), Fraction("1.5")), id="bridged-scaled-split-3"),
        pytest.param(inventory("570.124.06", "12.8.0", []), Scales(), id="no-cards"),
        pytest.param(split(), Scales(), id="mig-and-a-whole-card"),
    ],
)
def test_golden(request: pytest.FixtureRequest, found: Inventory, scales: Scales) -> None:
    writes = Pool("gpu.tessera.dev", "node-a").writes(device_lists(found, scales), [])
    bodies = [write.body for write in writes if isinstance(write, Create)]
    text = json.dumps(bodies, indent=2) + "\n"
    assert_golden(GOLDEN / f"slices-{request.node.callspec.id}.json", text)


def test_slices_are_cut_at_64() -> None:
    lists = device_lists(inventory("1", "1", many(130)), Scales())
    assert [len(devices) for devices in lists] == [64, 64, 2]


def test_an_order_goes_before_pci_order() -> None:
    cards = many(70)
    order = (cards[69].name, cards[3].name, DeviceName("gpu-gone"))
    lists = device_lists(inventory("1", "1", cards), Scales(), order=order)
    names = [device["name"] for devices in lists for device in devices]
    assert names[:4] == [cards[69].name, cards[3].name, cards[0].name, cards[1].name]
    assert sorted(names) == sorted(card.name for card in cards)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        pytest.param("x" * 80, "x" * 64, id="long"),
        pytest.param("é" * 40, "é" * 32, id="long-in-bytes"),
        pytest.param("xé" * 40, "xé" * 21 + "x", id="cut-between-characters"),
    ],
)
def test_names_are_cut_to_what_the_api_takes(name: str, published: str) -> None:
    ((device,),) = device_lists(inventory("1", "1", [replace(A100, product_name=name)]), Scales())
    assert device["attributes"]["productName"] == {"string": published}


def test_equal_inventories_give_equal_documents() -> None:
    one = device_lists(inventory("1", "1", many(9)), Scales())
    other = device_lists(inventory("1", "1", reversed(many(9))), Scales())
    assert json.dumps(one) == json.dumps(other)


@given(
    memory=st.integers(MIB, 1 << 40),
    split=st.integers(1, 1000),
    scaling=st.fractions(Fraction(1), 100, max_denominator=100),
    cores=st.fractions(Fraction(1, 50), 100, max_denominator=100),
)
def test_policies_are_what_the_api_accepts(
    memory: int, split: int, scaling: Fraction, cores: Fraction
) -> None:
    found = inventory("1", "1", [replace(A100, memory_bytes=memory)])
    (device,) = device_lists(found, Scales(split, scaling, cores))[0]
    for capacity in device["capacity"].values():
        check_policy(capacity)
    assert len(device["attributes"]) + len(device["capacity"]) <= 32


def check_policy(capacity: dict[str, Any]) -> None:
    """The API server's own rules; all in whole numbers."""
    value = parse_quantity(capacity["value"])
    policy = capacity["requestPolicy"]
    default = parse_quantity(policy["default"])
    least = parse_quantity(policy["validRange"]["min"])
    most = parse_quantity(policy["validRange"].get("max", capacity["value"]))
    assert 0 <= least <= default <= most <= value
    assert value.denominator == least.denominator == most.denominator == 1
    if "step" in policy["validRange"]:
        step = parse_quantity(policy["validRange"]["step"])
        assert step >= 1
        assert least + step <= value
        assert (default - least) % step == 0
        assert (most - least) % step == 0
        # And the scheduler's grid, which starts at the minimum, is the server's, which starts at 0.
        assert least % step == 0
