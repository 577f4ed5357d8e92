"""HAMi's policies for nodes and cards."""

from __future__ import annotations

import pytest

from claim_mutator import placement
from claim_mutator.metadata import CARD_POLICY, NODE_POLICY, NUMA_BIND, WEIGHTS
from claim_mutator.placement import ANY, NUMA_BOUND, NUMA_PREFERRED, TOPOLOGY, Level
from claim_mutator.rules import Rules


@pytest.mark.parametrize(
    ("key", "value", "levels"),
    [
        (NUMA_BIND, "true", NUMA_BOUND),
        (NUMA_BIND, "1", NUMA_BOUND),
        (NUMA_BIND, "T", NUMA_BOUND),
        (NUMA_BIND, "false", (ANY,)),
        (NUMA_BIND, "", (ANY,)),
        (CARD_POLICY, "topology-aware", TOPOLOGY),
        (CARD_POLICY, "binpack,numa", NUMA_PREFERRED),
        (CARD_POLICY, "binpack", (ANY,)),
        (CARD_POLICY, "", (ANY,)),
    ],
)
def test_levels(key: str, value: str, levels: tuple[Level, ...]) -> None:
    found = placement.read({key: value}, Rules())
    assert (found.levels, found.problems, found.notices) == (levels, (), ())


def test_what_binds_goes_before_what_is_preferred() -> None:
    found = placement.read({NUMA_BIND: "true", CARD_POLICY: "topology-aware"}, Rules())
    assert found.levels == NUMA_BOUND
    assert not found.is_preference


@pytest.mark.parametrize(("value", "alone"), [("mutex", True), ("mutex, binpack", True), ("binpack", False)])
def test_mutex_is_the_card_alone_and_told(value: str, alone: bool) -> None:
    found = placement.read({CARD_POLICY: value}, Rules())
    assert found.alone is alone
    assert [("its cards alone" in notice.text) for notice in found.notices] == ([True] if alone else [])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (NUMA_BIND, "yes", "write true or false"),
        (WEIGHTS, "slot=1,core=1", "write slot=1,core=1,memory=1"),
        (WEIGHTS, "slot=0,core=0,memory=0", "of which one is above 0"),
        (WEIGHTS, "slot=1,core=1,memory=-1", "three weights"),
        (WEIGHTS, "slot=1,slot=1,memory=1", "three weights"),
        (WEIGHTS, "much", "three weights"),
    ],
)
def test_refused(key: str, value: str, message: str) -> None:
    (problem,) = placement.read({key: value}, Rules()).problems
    assert problem.pointer == ("metadata", "annotations", key)
    assert problem.text.startswith(f"annotation {key}: {value} ")
    assert message in problem.text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (CARD_POLICY, "spread", "cards are filled by binpack here"),
        (CARD_POLICY, "pack", "write binpack, spread, topology-aware, numa or mutex"),
        (NODE_POLICY, "spread", "write topologySpreadConstraints, or podAntiAffinity"),
        (NODE_POLICY, "binpack", "write podAffinity"),
        (WEIGHTS, "slot=1,core=1,memory=3", "cards are not scored"),
        (WEIGHTS, "memory=3, core=0, slot=0", "cards are not scored"),
    ],
)
def test_without_effect(key: str, value: str, message: str) -> None:
    (notice,) = placement.read({key: value}, Rules()).notices
    assert notice.text.startswith(f"annotation {key}: {value} has no effect")
    assert message in notice.text


def test_a_policy_that_the_cluster_has_is_honoured() -> None:
    rules = Rules(placement="spread")
    assert placement.read({CARD_POLICY: "spread"}, rules).notices == ()
    assert placement.read({CARD_POLICY: "binpack"}, rules).notices
