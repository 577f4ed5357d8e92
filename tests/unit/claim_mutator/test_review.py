"""Reviews: whatever arrives is answered, or refused as no review; never an exception of another kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claim_mutator.admission import BadReview
from tests.unit.claim_mutator.admissions import admission
from tests.unit.claim_mutator.pods import container, manifest

ADMISSION = admission()


def review(pod: Any, **changes: Any) -> bytes:
    return json.dumps({"request": {"uid": "u", "namespace": "n", "object": pod} | changes}).encode()


async def answer(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await ADMISSION.review(body))["response"]
    return found


@pytest.mark.parametrize(
    "changes",
    [
        {"operation": "UPDATE"},
        {"operation": "DELETE"},
        {"subResource": "eviction"},
        {"kind": {"kind": "Deployment"}, "object": None},
        {"kind": {"kind": "Deployment"}, "object": {"kind": "Deployment", "apiVersion": "apps/v1"}},
    ],
    ids=["UPDATE", "DELETE", "subresource", "nothing", "without a template"],
)
async def test_what_is_not_a_new_pod_is_let_through(changes: dict[str, Any]) -> None:
    assert await answer(review(manifest(container(gpu=1)), **changes)) == {"uid": "u", "allowed": True}


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"spec": {"containers": "nvidia.com/gpu"}}, "Expected `array | null`, got `str`"),
        ({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": []}}}]}}, "limits"),
        ({"nvidia.com/gpu": 1}, "missing required field `spec`"),
    ],
    ids=["containers", "limits", "no spec"],
)
async def test_unreadable_pod_is_refused_with_the_path(pod: Any, message: str) -> None:
    found = await answer(review(pod))
    assert not found["allowed"]
    assert message in found["status"]["message"]


async def test_authors_of_workloads_are_told() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"nvidia.com/numa-bind": "1"}},
        "spec": {"template": {"spec": {"containers": [container(gpumem="3Gi")]}}},
    }
    for operation in ("CREATE", "UPDATE"):
        found = await answer(review(deployment, kind={"kind": "Deployment"}, operation=operation))
        assert found["allowed"]
        assert "patch" not in found
        refused, misplaced = found["warnings"]
        assert refused.startswith("spec.template: its Pods will be refused: container 'work', limits:")
        assert misplaced.startswith("annotation nvidia.com/numa-bind has no effect here")


async def test_warnings_are_as_short_as_the_server_takes_them() -> None:
    many = manifest(*(container(f"{number:063}", gpumem=1, gpumem_percentage=1) for number in range(32)))
    warnings = (await answer(review(many)))["warnings"]
    assert 20 < len(warnings) < 32
    assert sum(len(text.encode()) for text in warnings) <= 4096
    long = manifest(container(gpu=1), annotations={"hami.io/gpu-scheduler-policy": "x" * 400})
    (text,) = (await answer(review(long)))["warnings"]
    assert (len(text), text[-1]) == (256, "…")


@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
@pytest.mark.parametrize("depth", [500, 900, 2000, 100_000])
async def test_what_is_nested_too_deeply_is_no_review(kind: str, depth: int) -> None:
    held = b'["nvidia.com/gpu",' * depth + b"1" + b"]" * depth
    try:
        found = await answer(
            b'{"request":{"uid":"u","kind":{"kind":"%s"},"object":%s}}' % (kind.encode(), held)
        )
    except BadReview:
        assert depth > 500
    else:
        assert found["allowed"] is (kind != "Pod")


async def test_generated_name_is_shown() -> None:
    document = manifest(container(gpumem="1Gi"))
    document["metadata"] = {"generateName": "web-7d9f-"}
    assert "Pod n/web-7d9f-…: container 'work'" in (await answer(review(document)))["status"]["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
    | st.sampled_from(["nvidia.com/gpu", "3Gi", "containers", "resources"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(
            ["spec", "containers", "initContainers", "resources", "limits", "requests", "nvidia.com/gpu",
             "nvidia.com/gpumem", "nvidia.com/gpu-mem", "metadata", "annotations", "env", "name"]
        ),
        inner, max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(
    st.one_of(
        st.binary(max_size=200),
        json_values.map(lambda pod: review({"spec": pod})),
        json_values.map(review),
        json_values.map(lambda held: review({"spec": {"template": held}}, kind={"kind": "Deployment"})),
    )
)
async def test_fuzz(body: bytes) -> None:
    try:
        found = await answer(body)
    except BadReview:
        return
    assert found["allowed"] or found["status"]["message"]
