"""Reviews: whatever arrives is answered, or refused as no review; never an exception of another kind."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claim_mutator.admission import Admission, BadReview
from claim_mutator.container import Rules
from claim_mutator.metrics import Metrics
from claim_mutator.template import Template
from claim_mutator.templates import TemplateStore
from tests.unit.claim_mutator.pods import TWO_SIZES, container, manifest


class NoStore(TemplateStore):
    """Everything is there already."""

    def __init__(self) -> None:
        pass

    async def ensure(self, namespace: str, template: Template) -> None:
        """Nothing to do."""


METRICS = Metrics()


def admission() -> Admission:
    return Admission(Rules(), lambda: TWO_SIZES, NoStore(), METRICS)


def review(pod: Any, **changes: Any) -> bytes:
    return json.dumps({"request": {"uid": "u", "namespace": "n", "object": pod} | changes}).encode()


async def answer(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(await admission().review(body))["response"]
    return found


@pytest.mark.parametrize(
    "changes",
    [{"operation": "UPDATE"}, {"subResource": "eviction"}, {"kind": {"kind": "Deployment"}}],
    ids=["UPDATE", "subresource", "another kind"],
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
        st.binary(max_size=200), json_values.map(lambda pod: review({"spec": pod})), json_values.map(review)
    )
)
async def test_fuzz(body: bytes) -> None:
    try:
        found = await answer(body)
    except BadReview:
        return
    assert found["allowed"] or found["status"]["message"]
