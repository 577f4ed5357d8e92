from __future__ import annotations

from typing import Any

import pytest

from dra_driver.cards.capacity import Amounts
from dra_driver.claims.allocation import ClaimRef, read_allocation
from dra_driver.errors import ClaimError, PermanentError, RetryableError
from dra_driver.names import DRIVER, ClaimUID
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, opaque, result, share_id
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090

REF = claim_ref()


def read(raw: dict[str, Any], ref: ClaimRef = REF) -> Any:
    return read_allocation(ref, raw, driver=DRIVER, node=NODE)


def test_a_share() -> None:
    (found,) = read(claim(REF, result(RTX_4090, "3000Mi", "30", "100"))).results
    assert found.request == found.main_request == "g0"
    assert found.device == RTX_4090.name
    assert found.share_id == share_id(1)
    assert found.consumed == Amounts(3000 << 20, 30, 100)
    assert not found.admin_access


def test_an_exclusive_device() -> None:
    (found,) = read(claim(REF, result(RTX_4090, None))).results
    assert found.consumed is None
    assert found.share_id is None


def test_subrequests_are_known_by_their_request() -> None:
    (found,) = read(claim(REF, result(RTX_4090, request="g0/s24"))).results
    assert found.main_request == "g0"


@pytest.mark.parametrize("text", ["1k", "1000", "1e3", 1000])
def test_quantities_in_any_spelling(text: Any) -> None:
    (found,) = read(claim(REF, result(RTX_4090, str(24 * GIB), "0", text))).results
    assert found.consumed == Amounts(24 * GIB, 0, 1000)


def test_results_of_other_drivers_are_not_ours() -> None:
    other = {"request": "nic", "driver": "nic.example", "pool": "elsewhere", "device": "a"}
    found = read(claim(REF, other, result(A100), config=[opaque(driver="nic.example")]))
    assert [entry.device for entry in found.results] == [A100.name]
    assert found.configs == ()


@pytest.mark.parametrize(
    ("annotations", "expected"),
    [
        pytest.param({"resource.kubernetes.io/pod-claim-name": "gpu"}, "gpu", id="of-a-template"),
        pytest.param({}, None, id="none"),
        pytest.param(None, None, id="no-annotations"),
        pytest.param({"resource.kubernetes.io/pod-claim-name": "/etc"}, None, id="another-place"),
        pytest.param({"resource.kubernetes.io/pod-claim-name": "../.."}, None, id="upwards"),
        pytest.param({"resource.kubernetes.io/pod-claim-name": "a\n"}, None, id="two-lines"),
        pytest.param({"resource.kubernetes.io/pod-claim-name": ""}, None, id="empty"),
    ],
)
def test_the_name_that_a_pod_has_for_its_claim(
    annotations: dict[str, str] | None, expected: str | None
) -> None:
    raw = claim(REF, result(A100))
    raw["metadata"]["annotations"] = annotations
    assert read(raw).pod_claim_name == expected


def test_configs() -> None:
    found = read(
        claim(REF, result(A100), config=[opaque("FromClass"), opaque(priority=1) | {"requests": ["g0"]}])
    )
    assert [(config.from_class, config.requests) for config in found.configs] == [
        (True, ()),
        (False, ("g0",)),
    ]
    assert found.configs[1].path == "status.allocation.devices.config[1].opaque.parameters"


def without_allocation() -> dict[str, Any]:
    raw = claim(REF)
    raw["status"] = {}
    return raw


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        pytest.param(without_allocation(), RetryableError, "is not allocated", id="not-allocated"),
        pytest.param(
            claim(ClaimRef("default", "claim", ClaimUID("other")), result(A100)),
            RetryableError,
            "was replaced by another of the same name",
            id="another-uid",
        ),
        pytest.param(
            claim(REF, result(A100, pool="node-b")),
            PermanentError,
            "is in pool node-b, this node is node-a",
            id="pool",
        ),
        pytest.param(
            claim(REF, result(A100, "-5Gi")), PermanentError, r"results\[0\].*memory: '-5Gi'", id="negative"
        ),
        pytest.param(
            claim(REF, result(A100, "0.5")), PermanentError, "memory: '0.5' is not a whole", id="fraction"
        ),
        pytest.param(
            claim(REF, result(A100, "many")), PermanentError, "memory: 'many' is not a quan", id="text"
        ),
        pytest.param(
            claim(REF, result(A100, consumedCapacity={"memory": "1Gi"})),
            PermanentError,
            "lacks cores",
            id="lacks",
        ),
    ],
)
def test_refused(raw: dict[str, Any], kind: type[ClaimError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        read(raw)
    assert str(REF) in str(caught.value)
