"""Consequences of a review: templates, quota, Events, updates of converted Pods."""

from __future__ import annotations

import base64
import copy
import json
from typing import Any

import jsonpatch
import jsonpointer
import pytest

from claim_mutator.quota.usage import MARK
from claim_mutator.rules import Policy, Rules
from kube.events import ObjectRef
from tests.unit.claim_mutator.admissions import Said, Templates, admission
from tests.unit.claim_mutator.pods import container, manifest

POD = manifest(container(gpu="1", gpumem="3000"))


async def answer(
    pod: Any,
    *,
    rules: Rules | None = None,
    said: Said | None = None,
    templates: Templates | None = None,
    **changes: Any,
) -> dict[str, Any]:
    request = {"uid": "u-1", "namespace": "n", "object": pod} | changes
    body = json.dumps({"request": request}).encode()
    found: dict[str, Any] = json.loads(await admission(templates, said, rules or Rules()).review(body))[
        "response"
    ]
    found["patch"] = json.loads(base64.b64decode(found.get("patch", ""))) if found.get("patch") else []
    return found


async def converted(pod: dict[str, Any], **changes: Any) -> dict[str, Any]:
    after: dict[str, Any] = jsonpatch.apply_patch(pod, (await answer(pod, **changes))["patch"])
    return after


async def test_the_quota_is_asked_before_the_template_is_made() -> None:
    templates = Templates()
    found = await answer(POD, namespace="full", templates=templates)
    assert not found["allowed"]
    assert found["status"] == {"code": 403, "reason": "Forbidden", "message": "exceeded quota: gpus"}
    assert templates.wanted == []


@pytest.mark.parametrize(
    "metadata",
    [None, {}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a": "b", MARK: "forged"}}],
)
async def test_a_pod_that_was_let_in_is_marked(metadata: dict[str, Any] | None) -> None:
    pod = {**POD, "metadata": metadata} if metadata is not None else {"spec": POD["spec"]}
    after = await converted(pod, namespace="limited")
    assert after["metadata"]["annotations"][MARK] == "u-1"


async def test_without_a_quota_a_pod_is_not_marked() -> None:
    assert "annotations" not in (await converted(POD))["metadata"]


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        ({"controller": True}, True),
        ({"controller": False}, False),
    ],
)
async def test_events_are_about_what_makes_the_pod(owner: dict[str, Any], told: bool) -> None:
    said = Said()
    reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "r"} | owner
    pod = {**POD, "metadata": {"generateName": "web-1-", "ownerReferences": [reference]}}
    await answer(pod, namespace="full", said=said)
    expected = [
        (ObjectRef("apps/v1", "ReplicaSet", "web-1", "full", "r"), "GPUPodRefused", "exceeded quota: gpus")
    ]
    assert said.warnings == (expected if told else [])
    said.warnings.clear()
    await answer(pod, namespace="full", said=said, dryRun=True)
    assert said.warnings == []


def applied(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What `kubectl apply` of the old manifest makes of the converted Pod: both, where they don't clash."""
    merged = copy.deepcopy(after)
    for name, value in before["spec"].items():
        if name not in ("containers", "initContainers"):
            merged["spec"][name] = value
    for index, each in enumerate(before["spec"]["containers"]):
        held = merged["spec"]["containers"][index]["resources"]
        for where, amounts in each["resources"].items():
            if where != "claims":
                held.setdefault(where, {}).update(amounts)
    return merged


@pytest.mark.parametrize(
    ("pod", "rules"),
    [
        pytest.param(POD, Rules(), id="share"),
        pytest.param(manifest(container("a", gpu="1", cpu="1"), container("b", cpu="1")), Rules(), id="cpu"),
        pytest.param(manifest(container(gpu="1"), schedulerName="hami-scheduler"), Rules(), id="scheduler"),
        pytest.param(manifest(container(gpu="1")), Rules(runtime_class="nvidia"), id="runtime class"),
        pytest.param(manifest(container(gpu="1", priority="1")), Rules(), id="environment"),
        pytest.param(
            manifest(container(gpu="1"), nodeName="node-1"), Rules(node_name=Policy.CONVERT), id="node name"
        ),
    ],
)  # fmt: skip
async def test_a_second_apply_changes_nothing(pod: dict[str, Any], rules: Rules) -> None:
    after = await converted(pod, rules=rules)
    new = applied(pod, after)
    assert new != after
    found = await answer(new, oldObject=after, operation="UPDATE", rules=rules)
    assert found["allowed"]
    assert jsonpatch.apply_patch(new, found["patch"]) == after
    assert found.get("warnings", []) == []


@pytest.mark.parametrize("rules", [Rules(), Rules(node_name=Policy.CONVERT)], ids=["denied", "converted"])
async def test_a_second_apply_of_a_scheduled_pod_is_nothing_to_tell(rules: Rules) -> None:
    """The scheduler has named the node, not the manifest."""
    after = await converted(POD)
    after["spec"]["nodeName"] = "node-1"
    found = await answer(applied(POD, after), oldObject=after, operation="UPDATE", rules=rules)
    assert found["patch"]
    assert found.get("warnings", []) == []


async def test_a_second_apply_with_other_amounts_is_told() -> None:
    after = await converted(POD)
    new = applied(manifest(container(gpu="1", gpumem="4000")), after)
    found = await answer(new, oldObject=after, operation="UPDATE")
    assert jsonpatch.apply_patch(new, found["patch"]) == after
    (warning,) = found["warnings"]
    assert "can't be changed" in warning


@pytest.mark.parametrize(
    ("path", "value"),
    [
        pytest.param("/spec/containers/0/resources/limits/cpu", "2", id="cpu"),
        pytest.param("/spec/containers/0/env/0/value", "2", id="variable"),
        pytest.param("/spec/containers/0/env/1/value", "1", id="priority as a variable"),
        pytest.param("/spec/resourceClaims/0/resourceClaimName", "other", id="claim"),
        pytest.param("/spec/runtimeClassName", "kata", id="runtime class"),
    ],
)
async def test_a_real_change_is_left_to_the_server(path: str, value: str) -> None:
    """Which refuses it; were it taken back, `kubectl apply` would say that all is well."""
    variables = [{"name": "A", "value": "1"}, {"name": "CUDA_TASK_PRIORITY", "value": "0"}]
    nic = [{"name": "nic", "resourceClaimName": "mine"}]
    before = manifest(container(gpu="1", cpu="1") | {"env": variables}, resourceClaims=nic)
    rules = Rules(runtime_class="nvidia")
    after = await converted(before, rules=rules)
    new = jsonpatch.apply_patch(before, [{"op": "add", "path": path, "value": value}])
    found = await answer(new, oldObject=after, operation="UPDATE", rules=rules)
    assert found["allowed"]
    assert jsonpointer.resolve_pointer(jsonpatch.apply_patch(new, found["patch"]), path) == value


async def test_a_replacement_without_claims_gets_them_back() -> None:
    after = await converted(POD)
    found = await answer(POD, oldObject=after, operation="UPDATE")
    again = jsonpatch.apply_patch(POD, found["patch"])
    assert again["spec"]["resourceClaims"] == after["spec"]["resourceClaims"]
    assert again["spec"]["containers"] == after["spec"]["containers"]


@pytest.mark.parametrize(
    ("new", "old"),
    [
        pytest.param(POD, POD, id="never converted"),
        pytest.param(POD, None, id="nothing before"),
        pytest.param(POD, {"spec": []}, id="not readable"),
        pytest.param({"spec": "nvidia.com/gpu"}, POD, id="nor this"),
    ],
)
async def test_other_updates_are_left_alone(new: Any, old: Any) -> None:
    found = await answer(new, oldObject=old, operation="UPDATE")
    assert (found["allowed"], found["patch"]) == (True, [])


async def test_what_other_webhooks_add_meanwhile_is_converted_too() -> None:
    """Called again (reinvocationPolicy: IfNeeded): what is converted stays, what is new is added."""
    after = await converted(POD)
    assert (await answer(after))["patch"] == []
    after["spec"]["containers"].append(container("injected", gpumem="100"))
    again = await converted(after)
    assert [claim["name"] for claim in again["spec"]["resourceClaims"]] == ["tessera", "tessera-2"]
