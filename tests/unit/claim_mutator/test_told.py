"""Warnings about whole Pods: what has no effect, and what they will wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from claim_mutator.cluster import Card, Cluster
from claim_mutator.metadata import NO_USE_TYPE, NO_USE_UUID, USE_TYPE, USE_UUID
from claim_mutator.slices import Stock, cluster_of
from tests.unit.claim_mutator.pods import GI, ONE_SIZE, TWO_SIZES, container, converted, manifest


def test_more_than_any_card_has_is_told() -> None:
    (warning,) = converted(manifest(container(gpumem=90000)), ONE_SIZE).warnings
    assert "more than any card of the cluster has now (40960)" in warning


def test_amounts_in_annotations_of_a_pod_that_has_none_are_told() -> None:
    document = manifest(
        container(cpu=1), annotations={"nvidia.com/gpumem": "3000", "nvidia.com/numa-bind": "x"}
    )
    found = converted(document)
    assert found.operations == ()
    assert found.warnings == (
        "annotation nvidia.com/gpumem has no effect: write nvidia.com/gpumem: 3000 into resources.limits",
    )


@pytest.mark.parametrize(
    ("annotations", "cluster", "message"),
    [
        ({}, Cluster(most_cards=2), "3 means 3 different cards, no node has more than 2 now"),
        (
            {USE_UUID: "GPU-1, GPU-2"},
            Cluster(),
            "3 means 3 different cards, and nvidia.com/use-gpuuuid lists 2",
        ),
        (
            {USE_UUID: "GPU-1,GPU-2,GPU-3"},
            Cluster(uuids=frozenset({"GPU-9"})),
            "GPU-1, GPU-2, GPU-3 is no card of the cluster now",
        ),
        (
            {USE_TYPE: "GeForce-RTX-3080"},
            Cluster(products=frozenset({"NVIDIA GeForce RTX 3080", "NVIDIA L4"})),
            "GeForce-RTX-3080 is in no card's name now (there are: NVIDIA GeForce RTX 3080, NVIDIA L4)",
        ),
    ],
    ids=["more than a node has", "fewer listed", "unknown", "type"],
)
def test_what_a_pod_will_wait_for(annotations: dict[str, str], cluster: Cluster, message: str) -> None:
    (warning,) = converted(manifest(container(gpu=3), annotations=annotations), cluster).warnings
    assert message in warning
    assert warning.endswith("the Pod will wait")


@pytest.mark.parametrize(
    ("share", "count", "version", "waits"),
    [
        ({"gpumem_percentage": 50}, 6, (1, 37), True),
        ({"gpumem_percentage": 50}, 5, (1, 37), False),
        ({"gpumem_percentage": 50}, 6, (1, 35), False),
        ({"gpumem_percentage": 100}, 6, (1, 37), False),
        ({"gpumem": 1000}, 6, (1, 37), False),
    ],
    ids=["six of one size", "there are five", "single cards on 1.35", "all of each", "MiB"],
)
def test_many_shares_in_percent_need_cards_of_one_size(
    share: dict[str, int], count: int, version: tuple[int, int], *, waits: bool
) -> None:
    """The scheduler would not say it: it only can't allocate."""
    cluster = replace(TWO_SIZES, most_cards=8, most_alike=5, version=version)
    expected = (
        f"container 'work': nvidia.com/gpumem-percentage of {count} cards means cards of one size, and no"
        " node has more than 5 such now (nvidia.com/gpumem takes any): the Pod will wait"
    )
    found = converted(manifest(container(gpu=count, **share)), cluster).warnings
    assert found == ((expected,) if waits else ())


A10 = {USE_TYPE: "A10G"}
FLEET = cluster_of(
    [
        Stock(tuple(Card("a", 24 * GI, f"GPU-{number}", "NVIDIA A10G") for number in range(2))),
        Stock(tuple(Card("a", 80 * GI, f"GPU-{number}", "NVIDIA H100") for number in range(2, 8))),
        Stock((Card("b", 80 * GI, "GPU-8", "NVIDIA A10G"),)),
    ],
    (1, 37),
)


@pytest.mark.parametrize(
    ("quantities", "annotations", "expected"),
    [
        pytest.param(
            {"gpumem": 30000}, {USE_UUID: "GPU-0,GPU-1"},
            "nvidia.com/gpumem 30000 is more than any card that its annotations leave has now (24576)",
            id="too small",
        ),
        pytest.param({"gpumem": 30000}, A10, None, id="one is large enough"),
        pytest.param(
            {"gpu": 3, "gpumem": 100}, A10,
            "3 means 3 different cards, no node has more than 2 of those that its annotations leave now",
            id="too few on a node",
        ),
        pytest.param({"gpu": 3, "gpumem": 100}, {NO_USE_TYPE: "a10g"}, None, id="enough others"),
        pytest.param(
            {"gpu": 7, "gpumem": 100}, {NO_USE_UUID: "GPU-5,GPU-6"},
            "no node has more than 6 of those that its annotations leave now", id="without two",
        ),
        pytest.param(
            {"gpumem": 100}, {USE_UUID: "GPU-0", NO_USE_TYPE: "A10"},
            "the Pod's annotations together leave no card of the cluster", id="contradiction",
        ),
        pytest.param(
            {"gpu": 5, "gpumem_percentage": 10}, {NO_USE_UUID: "GPU-6,GPU-7"},
            "no node has more than 4 such of those that its annotations leave now", id="of one size",
        ),
    ],
)  # fmt: skip
def test_what_is_told_is_of_the_cards_that_a_pod_may_have(
    quantities: dict[str, int], annotations: dict[str, str], expected: str | None
) -> None:
    found = converted(manifest(container(**quantities), annotations=annotations), FLEET).warnings
    if expected is None:
        assert found == ()
    else:
        assert len(found) == 1
        assert expected in found[0]
        assert found[0].endswith("the Pod will wait")


def test_two_of_a_type_that_differ_in_size_are_requests_of_their_own() -> None:
    """Though there are many of one size, of another type."""
    cards = (Card("a", 24 * GI, "GPU-0", "NVIDIA A10G"), Card("a", 40 * GI, "GPU-1", "NVIDIA A10G"))
    others = tuple(Card("a", 80 * GI, f"GPU-{number}", "NVIDIA H100") for number in range(2, 8))
    cluster = cluster_of([Stock((*cards, *others))], (1, 37))
    document = manifest(container(gpu=2, gpumem_percentage=50), annotations=A10)
    found = converted(document, cluster)
    assert found.template
    assert [request["name"] for request in found.template.devices["requests"]] == ["g0-0", "g0-1"]
    assert found.warnings == ()


def test_cards_that_are_there_need_no_words() -> None:
    cluster = Cluster(
        (24 * GI,), most_cards=2, uuids=frozenset({"GPU-1"}), products=frozenset({"NVIDIA A10"})
    )
    annotations = {USE_UUID: "GPU-1,GPU-7", USE_TYPE: "a10"}
    assert converted(manifest(container(gpu=2), annotations=annotations), cluster).warnings == ()
