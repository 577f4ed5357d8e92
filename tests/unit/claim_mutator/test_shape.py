"""Which containers share a request: the peak of init containers, the sum of the others."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator import pod, shape
from claim_mutator.container import Kind, Request, read
from claim_mutator.rules import Rules
from claim_mutator.shape import Amount, Ask, Cap
from claim_mutator.terms import CorePolicy, Terms
from tests.unit.claim_mutator.pods import container, manifest


class Assigned:
    """shares, and by container the indexes of its own."""

    def __init__(self, *containers: dict[str, Any], init: list[dict[str, Any]] | None = None) -> None:
        found = pod.from_manifest(manifest(*containers, initContainers=init or []))
        readings = [read(group, index, each, Rules()) for group, index, each in found.all_containers()]
        asks = [Ask(each.name, each.kind, each.request) for each in readings if each.request]
        grouping = shape.group(asks)
        self.shares = grouping.shares
        self.together = grouping.together
        self.users = {ask.container: used for ask, used in zip(asks, grouping.users, strict=True)}

    @property
    def amounts(self) -> list[tuple[int, Amount]]:
        return [(share.count, share.amount) for share in self.shares]


def sidecar(name: str, **quantities: Any) -> dict[str, Any]:
    return container(name, **quantities) | {"restartPolicy": "Always"}


def test_application_containers_add_up() -> None:
    found = Assigned(container("a", gpumem=1), container("b"), container("c", gpumem=1))
    assert found.amounts == [(1, Amount(1)), (1, Amount(1))]
    assert found.users == {"a": (0,), "c": (1,)}


@pytest.mark.parametrize(
    ("init", "app", "amount", "caps"),
    [
        pytest.param(4000, 4000, 4000, (), id="same size"),
        pytest.param(3000, 4000, 4000, (Cap("init", Amount(3000)),), id="init smaller: it is capped"),
        pytest.param(
            5000, 4000, 5000, (Cap("app", Amount(4000)),), id="init larger: raised, the app is capped"
        ),
    ],
)
def test_init_uses_the_apps_cards(init: int, app: int, amount: int, caps: tuple[Cap, ...]) -> None:
    found = Assigned(container("app", gpumem=app), init=[container("init", gpumem=init)])
    (share,) = found.shares
    assert share.amount == Amount(amount)
    assert share.caps == caps
    assert found.users == {"init": (0,), "app": (0,)}


@pytest.mark.parametrize(
    ("init", "app", "cores", "caps"),
    [
        pytest.param(20, 50, 50, {"init": 20}, id="init less"),
        pytest.param(50, 20, 50, {"app": 20}, id="app less"),
        pytest.param(20, 0, 0, {"init": 20}, id="an app without a limit keeps having none"),
        pytest.param(0, 20, 20, {}, id="what an app is guaranteed, it keeps"),
    ],
)
def test_cores(init: int, app: int, cores: int, caps: dict[str, int]) -> None:
    found = Assigned(
        container("app", gpumem=2, gpucores=app), init=[container("init", gpumem=2, gpucores=init)]
    )
    (share,) = found.shares
    assert share.amount.cores == cores
    assert {cap.container: cap.amount.cores for cap in share.caps} == caps


def test_init_containers_without_a_limit_keep_having_none() -> None:
    inits = [container("limited", gpumem=2, gpucores=20), container("free", gpumem=2, gpucores=0)]
    (share,) = Assigned(container("app"), init=inits).shares
    assert share.amount.cores == 0
    assert share.caps == (Cap("limited", Amount(2, cores=20)),)


def test_whole_card_init_raises_to_the_whole_card() -> None:
    (share,) = Assigned(container("app", gpumem=2), init=[container("init", gpu=1)]).shares
    assert share.amount == Amount(2, 100, 100, alone=True)
    assert share.caps == (Cap("app", Amount(2)),)


def test_three_inits_and_no_gpu_in_the_app_have_one_request() -> None:
    inits = [container(f"step-{number}", gpumem=10000) for number in (1, 2, 3)]
    assert Assigned(container("report"), init=inits).amounts == [(1, Amount(10000))]


def test_a_sidecars_cards_are_not_lent() -> None:
    found = Assigned(
        container("app", gpumem=4000),
        init=[sidecar("cache", gpumem=2000), container("loader", gpumem=5000)],
    )
    assert found.amounts == [(1, Amount(2000)), (1, Amount(5000))]
    assert found.users == {"cache": (0,), "loader": (1,), "app": (1,)}


def test_the_share_that_grows_least_is_used() -> None:
    found = Assigned(
        container("small", gpumem=1000),
        container("large", gpumem=8000),
        init=[container("init", gpumem=7000)],
    )
    assert found.users["init"] == found.users["large"]
    assert sum(share.amount.mebibytes for share in found.shares) == 9000


def test_percentages_are_peaks_too() -> None:
    found = Assigned(container("app", gpumem_percentage=50), init=[container("init", gpumem=4000)])
    assert found.amounts == [(1, Amount(4000, 50))]
    found = Assigned(container("app", gpumem_percentage=50), init=[container("i", gpumem_percentage=20)])
    assert found.amounts == [(1, Amount(0, 50))]


def test_an_init_that_wants_fewer_cards_splits_a_share() -> None:
    found = Assigned(container("app", gpu=3), init=[container("init", gpu=1, gpumem=1000)])
    assert found.amounts == [(1, Amount(1000, 100, 100, alone=True)), (2, Amount(0, 100, 100, alone=True))]
    assert found.users == {"init": (0,), "app": (0, 1)}
    assert found.together == ((0, 1),)


def test_an_init_that_wants_more_cards_has_the_rest_to_itself() -> None:
    found = Assigned(container("app", gpumem=4000), init=[container("init", gpu=3, gpumem=1000)])
    assert found.amounts == [(1, Amount(4000)), (2, Amount(1000))]
    assert found.users == {"init": (0, 1), "app": (0,)}
    assert found.together == ((0, 1),)


def test_without_the_library_is_not_mixed_with_limits() -> None:
    app = Ask("app", Kind.APP, Request(1, 1000, 0), Terms(unlimited=True))
    init = Ask("init", Kind.INIT, Request(1, 1000, 0))
    assert len(shape.group([init, app]).shares) == 2


def test_priority_and_policy_of_a_share_are_the_higher_and_the_stricter() -> None:
    app = Ask("app", Kind.APP, Request(1, 1000, 30), Terms(high=True))
    init = Ask("init", Kind.INIT, Request(1, 1000, 30), Terms(core_policy=CorePolicy.FORCE))
    (share,) = shape.group([init, app]).shares
    assert share.terms == Terms(True, CorePolicy.FORCE)


def test_more_users_than_caps_get_another_share() -> None:
    inits = [container(f"i{number}", gpumem=number) for number in range(1, 40)]
    found = Assigned(container("app", gpumem=1), init=inits)
    assert all(len(share.caps) <= 16 for share in found.shares)


def test_equal_shapes_are_equal_whatever_the_containers_are_called() -> None:
    assert Assigned(container("a", gpumem=1)).shares == Assigned(container("b", gpumem=1)).shares
