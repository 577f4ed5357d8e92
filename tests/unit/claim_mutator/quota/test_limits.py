from __future__ import annotations

from typing import Any

import pytest

from claim_mutator.names import ResourceNames
from claim_mutator.quota import limits
from claim_mutator.quota.cost import Cost
from claim_mutator.quota.limits import Quota, Traits

NAMES = ResourceNames()
MEMORY = "limits.nvidia.com/gpumem"


def document(hard: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "team", "name": "gpus"}, "spec": {"hard": hard, **spec}}


def quota(hard: dict[str, Any], **spec: Any) -> Quota:
    found = limits.read(document(hard, **spec), NAMES)
    assert found is not None
    return found


def test_words_are_kubernetes_own() -> None:
    found = quota({MEMORY: "10k", "requests.nvidia.com/gpu": "4", "limits.nvidia.com/gpucores": "500"})
    assert limits.excess(found, Cost(4, 9000, 100), Cost(1, 1500, 30)) == (
        "exceeded quota: gpus, requested: limits.nvidia.com/gpumem=1500,requests.nvidia.com/gpu=1,"
        " used: limits.nvidia.com/gpumem=9000,requests.nvidia.com/gpu=4,"
        " limited: limits.nvidia.com/gpumem=10k,requests.nvidia.com/gpu=4"
    )


@pytest.mark.parametrize(
    ("hard", "used", "wanted", "fits"),
    [
        pytest.param({MEMORY: "3000"}, Cost(1, 2000), Cost(1, 1000), True, id="to the last MiB"),
        pytest.param({MEMORY: "3000"}, Cost(1, 2000), Cost(1, 1001), False, id="one MiB more"),
        pytest.param({MEMORY: "0"}, Cost(), Cost(1, 1), False, id="0 blocks"),
        pytest.param({MEMORY: "0"}, Cost(), Cost(1, 0, 30), True, id="but nobody who wants none"),
        pytest.param(
            {MEMORY: "1"}, Cost(1, 9), Cost(1, 0, 30), True, id="nor who wants none of what is over"
        ),
        pytest.param({MEMORY: 3000}, Cost(), Cost(1, 3000), True, id="a number, not text"),
        pytest.param({"requests.nvidia.com/gpu": "2"}, Cost(1), Cost(2), False, id="cards"),
        pytest.param(
            {"limits.nvidia.com/gpucores": "100"}, Cost(1, 0, 70), Cost(1, 0, 31), False, id="cores"
        ),
        pytest.param({MEMORY: "0.5"}, Cost(), Cost(1, 1), False, id="less than one"),
    ],
)
def test_room(hard: dict[str, Any], used: Cost, wanted: Cost, fits: bool) -> None:
    assert (limits.excess(quota(hard), used, wanted) is None) is fits


def test_renamed_resources_and_units_of_gib() -> None:
    names = ResourceNames(memory=("example.com/vram", "nvidia.com/gpumem"))
    found = limits.read(document({"limits.example.com/vram": "10", MEMORY: "9"}), names, 1024)
    assert found is not None
    refusal = limits.excess(found, Cost(1, 9 * 1024), Cost(1, 1500))
    assert refusal == (
        "exceeded quota: gpus, requested: limits.example.com/vram=2,limits.nvidia.com/gpumem=2,"
        " used: limits.example.com/vram=9,limits.nvidia.com/gpumem=9,"
        " limited: limits.example.com/vram=10,limits.nvidia.com/gpumem=9"
    )


@pytest.mark.parametrize("hard", [{}, {"pods": "3", "requests.cpu": "1"}, {"nvidia.com/gpumem": "1"}])
def test_no_business_of_ours(hard: dict[str, Any]) -> None:
    assert limits.read(document(hard), NAMES) is None


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("10Gi", "10Gi has a binary suffix, and this key counts MiB or pieces: write 10240"),
        ("many", "many is not a quantity: write a plain number such as 3000"),
        (None, "None is not a quantity: write a plain number such as 3000"),
    ],
)
def test_what_cannot_be_read_lets_nobody_in(value: Any, told: str) -> None:
    found = quota({MEMORY: value})
    assert found.mistakes == (f"{MEMORY}: {told}",)
    assert limits.excess(found, Cost(), Cost(1, 1)) == f"quota gpus can't be kept: {MEMORY}: {told}"


def test_percentages_are_no_amount_and_that_is_told() -> None:
    found = quota({"limits.nvidia.com/gpumem-percentage": "100", MEMORY: "5"})
    assert "write limits.nvidia.com/gpumem" in found.mistakes[0]
    assert limits.excess(found, Cost(), Cost(1, 5)) is None


@pytest.mark.parametrize(
    ("spec", "pod", "covered"),
    [
        ({}, Traits(), True),
        ({"scopes": ["Terminating"]}, Traits(has_deadline=True), True),
        ({"scopes": ["Terminating"]}, Traits(), False),
        ({"scopes": ["NotTerminating"]}, Traits(), True),
        ({"scopes": ["BestEffort"]}, Traits(), False),
        ({"scopes": ["NotBestEffort", "Terminating"]}, Traits(has_deadline=True), True),
        ({"scopes": ["PriorityClass"]}, Traits(priority_class="high"), True),
        ({"scopes": ["PriorityClass"]}, Traits(), False),
        ({"scopes": ["SomethingNew"]}, Traits(), True),
    ],
)
def test_scopes(spec: dict[str, Any], pod: Traits, covered: bool) -> None:
    assert quota({MEMORY: "1"}, **spec).covers(pod) is covered


@pytest.mark.parametrize(
    ("operator", "values", "matched"),
    [("In", ["high"], {"high"}), ("NotIn", ["high"], {"", "low"}), ("DoesNotExist", [], {""})],
)
def test_priority_classes(operator: str, values: list[str], matched: set[str]) -> None:
    each = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    found = quota({MEMORY: "1"}, scopeSelector={"matchExpressions": [each]})
    assert {name for name in ("", "low", "high") if found.covers(Traits(priority_class=name))} == matched


@pytest.mark.parametrize(
    ("resources", "best_effort"),
    [({}, True), ({"limits": {"nvidia.com/gpu": "1"}}, True), ({"requests": {"cpu": "1"}}, False)],
)
def test_traits(resources: dict[str, Any], best_effort: bool) -> None:
    spec = {"containers": [{"resources": resources}], "activeDeadlineSeconds": 5, "priorityClassName": "low"}
    assert limits.traits_of({"spec": spec}) == Traits(True, best_effort, "low")
