from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from claim_mutator.cluster import Cluster
from claim_mutator.conversion import convert
from claim_mutator.names import MIG_CLASS
from claim_mutator.pod import from_manifest
from claim_mutator.quota import cost, usage
from claim_mutator.quota.cost import Cost, Demand, Form, Sizes
from claim_mutator.quota.limits import ANY_POD, Traits
from claim_mutator.quota.usage import Held
from claim_mutator.rules import Rules
from tests.unit.claim_mutator.pods import container, manifest

GIB = 1 << 30
NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
ONE, TWO = Sizes((81920,)), Sizes((24576, 81920))
SHARE: Demand = ((Form(1, 3000, 30),),)
WHOLE: Demand = ((Form(2, None, 100),),)
SMALL = container(gpu="1", gpumem="3000", gpucores="30")
SMALL_OF_FOUR = container(gpu="4", gpumem="3000", gpucores="30")
HALF = container(gpu="1", gpumem_percentage="50")
EITHER: Demand = ((Form(1, 5, 0), Form(1, 6, 0)),)


def demand(*containers: dict[str, Any], sizes: tuple[int, ...] = (24, 80), **fields: Any) -> Demand:
    cluster = Cluster(tuple(size * GIB for size in sizes))
    template = convert(from_manifest(manifest(*containers, **fields)), Rules(), cluster).template
    assert template is not None
    return cost.demand_of(template.spec["spec"], MIG_CLASS)


@pytest.mark.parametrize(
    ("containers", "sizes", "expected"),
    [
        pytest.param([SMALL], (24, 80), Cost(1, 3000, 30), id="share"),
        pytest.param([SMALL_OF_FOUR], (24, 80), Cost(4, 12000, 120), id="cards"),
        pytest.param([container(gpu="2")], (80,), Cost(2, 2 * 81920, 200), id="whole cards"),
        pytest.param([container(gpu="2")], (24, 80), Cost(2, 2 * 81920, 200), id="the largest they may be"),
        pytest.param([HALF], (24, 80), Cost(1, 40960), id="percent of the largest"),
        pytest.param([HALF], (24,), Cost(1, 12288), id="percent of the only size"),
        pytest.param([SMALL, container("b", gpu="1", gpumem="500")], (80,), Cost(2, 3500, 30), id="sum"),
    ],
)
def test_the_most_that_a_pod_may_come_to(
    containers: list[dict[str, Any]], sizes: tuple[int, ...], expected: Cost
) -> None:
    known = Sizes(tuple(size * 1024 for size in sizes))
    assert cost.most(demand(*containers, sizes=sizes), known) == expected


def test_init_containers_count_by_their_peak() -> None:
    pod = manifest(container("app", gpu="1", gpumem="1000"))
    pod["spec"]["initContainers"] = [container("init", gpu="1", gpumem="4000")]
    template = convert(from_manifest(pod), Rules(), Cluster((80 * GIB,))).template
    assert template is not None
    assert cost.most(cost.demand_of(template.spec["spec"], MIG_CLASS), ONE) == Cost(1, 4000)


def test_a_whole_card_of_which_nothing_is_known() -> None:
    assert cost.most(WHOLE, Sizes()) is None
    assert cost.most(SHARE, Sizes()) == Cost(1, 3000, 30)


@pytest.mark.parametrize(
    ("found", "sizes", "settled"),
    [(SHARE, TWO, True), (WHOLE, TWO, False), (WHOLE, ONE, True), (EITHER, ONE, False)],
)
def test_settled(found: Demand, sizes: Sizes, settled: bool) -> None:
    assert cost.is_settled(found, sizes) is settled


def pod(**status: Any) -> dict[str, Any]:
    claims = [
        {"name": "tessera", "resourceClaimTemplateName": "tessera-1"},
        {"name": "own", "resourceClaimTemplateName": "mine"},
        {"name": "ready", "resourceClaimName": "made"},
    ]
    metadata = {"uid": "u", "annotations": {usage.MARK: "m"}}
    return {"metadata": metadata, "spec": {"resourceClaims": claims}, "status": status}


def test_a_pod_counts_by_our_templates() -> None:
    found = usage.held(pod(phase="Running"), NOW)
    assert found == Held("u", (("tessera", "tessera-1"),), Traits(best_effort=True))
    assert usage.mark_of(pod()) == "m"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_does_not(phase: str) -> None:
    assert usage.held(pod(phase=phase), NOW) is None


@pytest.mark.parametrize(("minutes", "counts"), [(-1, True), (-3, False)])
def test_nor_one_that_is_stuck_in_its_deletion(minutes: int, counts: bool) -> None:
    stuck = pod(phase="Running")
    deleted = NOW + dt.timedelta(minutes=minutes)
    stuck["metadata"] |= {
        "deletionTimestamp": deleted.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "deletionGracePeriodSeconds": 120,
    }
    assert (usage.held(stuck, NOW) is not None) is counts


def claim(memory: str = "24Gi", **changes: Any) -> dict[str, Any]:
    result = {"driver": "gpu.tessera.dev", "consumedCapacity": {"memory": memory, "cores": "100"}}
    foreign = {"driver": "net.example.com"}
    status = {"allocation": {"devices": {"results": [result, foreign]}}}
    return {"metadata": {"name": "c"}, "status": status} | changes


HELD = [Held("u", (("tessera", "tessera-1"),), ANY_POD)]


def test_an_allocation_says_what_it_came_to() -> None:
    whole: Demand = ((Form(1, None, 100),),)
    assert usage.costed(HELD, {"tessera-1": whole}, None, TWO, MIG_CLASS) is None, (
        "claims have to be looked at"
    )
    for claims, expected in (
        ({}, Cost(1, 81920, 100)),
        ({("u", "tessera"): claim()}, Cost(1, 24576, 100)),
        (
            {("u", "tessera"): claim(status={}, spec={"devices": {"requests": [{"exactly": {}}]}})},
            Cost(1, 81920),
        ),
        ({("other", "tessera"): claim()}, Cost(1, 81920, 100)),
    ):
        found = usage.costed(HELD, {"tessera-1": whole}, claims, TWO, MIG_CLASS) or []
        assert [pod.cost for pod in found] == [expected]


def test_a_template_that_is_gone() -> None:
    assert usage.costed(HELD, {"tessera-1": None}, None, ONE, MIG_CLASS) is None
    found = usage.costed(HELD, {}, {("u", "tessera"): claim("1Gi")}, ONE, MIG_CLASS) or []
    assert [pod.cost for pod in found] == [Cost(1, 1024, 100)]


def test_place_of_a_claim() -> None:
    metadata = {
        "annotations": {"resource.kubernetes.io/pod-claim-name": "tessera"},
        "ownerReferences": [{"kind": "Pod", "uid": "u"}],
    }
    assert usage.place({"metadata": metadata}) == ("u", "tessera")
    assert usage.place({"metadata": {}}) == ("", "")
