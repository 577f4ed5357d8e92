"""What is read from the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator.cluster import Card, Cluster, parse_version
from claim_mutator.slices import NOTHING, cluster_of, stock_of


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "37"}, (1, 37)),
        ({"major": "1", "minor": "36+"}, (1, 36)),
        ({"major": "", "minor": ""}, (0, 0)),
        ({}, (0, 0)),
    ],
    ids=["plain", "managed", "empty", "nothing"],
)
def test_version(answer: dict[str, str], version: tuple[int, int]) -> None:
    assert parse_version(answer) == version


def device(value: Any, *, kind: str = "gpu", cores: str = "100", **changes: Any) -> dict[str, Any]:
    capacity = {"memory": {"value": value}, "cores": {"value": cores}}
    attributes = {"type": {"string": kind}, "minor": {"int": 1}}
    found = {"name": "g", "allowMultipleAllocations": True, "capacity": capacity, "attributes": attributes}
    return found | changes


def resource_slice(*devices: dict[str, Any], node: str = "a") -> dict[str, Any]:
    return {"spec": {"nodeName": node, "devices": list(devices)}}


@pytest.mark.parametrize(
    ("devices", "sizes"),
    [
        pytest.param([device("24Gi"), device("24Gi"), device("80Gi")], {24 << 30, 80 << 30}, id="two sizes"),
        pytest.param([device("24Gi", allowMultipleAllocations=False)], set(), id="not shareable"),
        pytest.param([device("24Gi", capacity={})], set(), id="without memory"),
        pytest.param([device("rubbish"), device("1Gi")], {1 << 30}, id="one is unreadable"),
        pytest.param([device("1Gi", attributes=None)], {1 << 30}, id="without attributes"),
        pytest.param([device("0")], set(), id="nothing"),
        pytest.param(None, set(), id="no devices"),
    ],
)
def test_sizes(devices: list[dict[str, Any]] | None, sizes: set[int]) -> None:
    found = stock_of({"spec": {"devices": devices}})
    assert {card.size for card in found.cards} == sizes
    assert (found == NOTHING) is not bool(sizes)


def test_everything_together() -> None:
    named = {
        "uuid": {"string": "GPU-1"},
        "productName": {"string": "NVIDIA L4"},
        "type": {"string": "gpu"},
    }
    instance = {"uuid": {"string": "MIG-1"}, "parentUUID": {"string": "GPU-2"}, "type": {"string": "mig"}}
    slices = [
        resource_slice(device("24Gi", attributes=named), device("24Gi")),
        resource_slice(device("80Gi")),
        resource_slice(device("10Gi", attributes=instance), device("80Gi"), node="b"),
    ]
    found = cluster_of([stock_of(each) for each in slices], (1, 36), frozenset({"team"}))
    assert found == Cluster(
        (24 << 30, 80 << 30),
        (1, 36),
        (10 << 30,),
        3,
        frozenset({"GPU-1", "MIG-1", "GPU-2"}),
        frozenset({"NVIDIA L4"}),
        False,
        frozenset({"team"}),
        2,
        cards=(
            Card("a", 24 << 30),
            Card("a", 24 << 30, "GPU-1", "NVIDIA L4"),
            Card("a", 80 << 30),
            Card("b", 80 << 30),
        ),
    )


def test_cards_of_a_node_may_be_in_several_slices() -> None:
    slices = [
        resource_slice(device("24Gi"), device("80Gi")),
        resource_slice(device("80Gi"), device("80Gi")),
        resource_slice(*[device("24Gi")] * 2, node="b"),
    ]
    found = cluster_of([stock_of(each) for each in slices], (1, 37))
    assert (found.most_cards, found.most_alike) == (4, 3)


@pytest.mark.parametrize(
    ("cores", "scaled"),
    [(["100"], False), (["200"], True), (["200", "150"], True), (["200", "100"], False), ([], False)],
    ids=str,
)
def test_scaled_cores(cores: list[str], scaled: bool) -> None:
    slices = [resource_slice(*(device("1Gi", cores=value) for value in cores))]
    assert cluster_of([stock_of(each) for each in slices], (1, 37)).cores_are_scaled is scaled
