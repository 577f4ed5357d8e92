"""Which containers share a request: the peak of init containers, the sum of the others."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator import pod, shape
from claim_mutator.container import Percent, Request, Rules, read
from claim_mutator.shape import Assignment, Cap
from tests.unit.claim_mutator.pods import container, manifest


def assigned(*containers: dict[str, Any], init: list[dict[str, Any]] | None = None) -> Assignment:
    found = pod.from_manifest(manifest(*containers, initContainers=init or []))
    readings = [read(group, index, each, Rules()) for group, index, each in found.all_containers()]
    return shape.assign(readings)


def users(found: Assignment) -> dict[str, int]:
    return {reading.name: index for reading, index in found.users}


def sidecar(name: str, **quantities: Any) -> dict[str, Any]:
    return container(name, **quantities) | {"restartPolicy": "Always"}


def test_application_containers_add_up() -> None:
    found = assigned(container("a", gpumem=1), container("b"), container("c", gpumem=1))
    assert [share.request for share in found.shape.shares] == [Request(1, 1, 0), Request(1, 1, 0)]
    assert users(found) == {"a": 0, "c": 1}


@pytest.mark.parametrize(
    ("init", "app", "request_", "caps"),
    [
        pytest.param(4000, 4000, 4000, (), id="same size"),
        pytest.param(3000, 4000, 4000, (Cap("init", 3000, None),), id="init smaller: it is capped"),
        pytest.param(
            5000, 4000, 5000, (Cap("app", 4000, None),), id="init larger: raised, the app is capped"
        ),
    ],
)
def test_init_uses_the_apps_request(init: int, app: int, request_: int, caps: tuple[Cap, ...]) -> None:
    found = assigned(container("app", gpumem=app), init=[container("init", gpumem=init)])
    (share,) = found.shape.shares
    assert share.request == Request(1, request_, 0)
    assert share.caps == caps
    assert users(found) == {"init": 0, "app": 0}


def test_cores_are_capped_too() -> None:
    found = assigned(container("app", gpumem=2, gpucores=50), init=[container("init", gpumem=2, gpucores=20)])
    assert found.shape.shares[0].caps == (Cap("init", None, 20),)


def test_whole_card_init_raises_to_the_whole_card() -> None:
    found = assigned(container("app", gpumem=2), init=[container("init", gpu=1)])
    assert found.shape.shares[0].request == Request(1, None, 100)
    assert found.shape.shares[0].caps == (Cap("app", 2, None),)


def test_three_inits_and_no_gpu_in_the_app_have_one_request() -> None:
    inits = [container(f"step-{number}", gpumem=10000) for number in (1, 2, 3)]
    found = assigned(container("report"), init=inits)
    assert [share.request for share in found.shape.shares] == [Request(1, 10000, 0)]


def test_a_sidecars_request_is_not_lent() -> None:
    found = assigned(
        container("app", gpumem=4000),
        init=[sidecar("cache", gpumem=2000), container("loader", gpumem=5000)],
    )
    assert [share.request.memory for share in found.shape.shares] == [2000, 5000]
    assert users(found) == {"cache": 0, "loader": 1, "app": 1}


def test_the_request_that_grows_least_is_used() -> None:
    found = assigned(
        container("small", gpumem=1000),
        container("large", gpumem=8000),
        init=[container("init", gpumem=7000)],
    )
    assert users(found)["init"] == users(found)["large"]
    assert (
        sum(share.request.memory for share in found.shape.shares if isinstance(share.request.memory, int))
        == 9000
    )


def test_other_counts_and_percentages_are_not_mixed() -> None:
    found = assigned(
        container("app", gpu=2, gpumem=4000),
        init=[container("one", gpu=1, gpumem=1000), container("share", gpumem_percentage=10)],
    )
    assert {share.request for share in found.shape.shares} == {
        Request(2, 4000, 0),
        Request(1, 1000, 0),
        Request(1, Percent(10), 0),
    }


def test_more_users_than_caps_get_another_request() -> None:
    inits = [container(f"i{number}", gpumem=number) for number in range(1, 40)]
    found = assigned(container("app", gpumem=1), init=inits)
    assert all(len(share.caps) <= 16 for share in found.shape.shares)


def test_equal_shapes_are_equal_whatever_the_containers_are_called() -> None:
    assert assigned(container("a", gpumem=1)).shape == assigned(container("b", gpumem=1)).shape
