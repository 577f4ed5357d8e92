"""What an administrator decides, in whole Pods: privileged, nodeName, scheduler, runtime class and so on."""

from __future__ import annotations

from typing import Any

import jsonpatch
import pytest

from claim_mutator import patch
from claim_mutator.refusal import Refused
from claim_mutator.rules import Policy, Rules
from tests.unit.claim_mutator.pods import container, converted, manifest

CONVERT = Rules(node_name=Policy.CONVERT, privileged=Policy.CONVERT)
FIELD = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def patched(document: dict[str, Any], rules: Rules) -> dict[str, Any]:
    changes = converted(document, rules=rules).operations
    found: dict[str, Any] = jsonpatch.apply_patch(document, list(changes))
    assert patch.apply(document, changes) == found
    assert converted(found, rules=rules).operations == ()
    return found


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        pytest.param(
            None, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [FIELD]}]}}}, id="none"
        ),
        pytest.param(
            {"podAffinity": {"x": 1}},
            {
                "podAffinity": {"x": 1},
                "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [FIELD]}]}},
            },
            id="another kind",
        ),
        pytest.param(
            {"nodeAffinity": {"preferred": []}},
            {
                "nodeAffinity": {
                    "preferred": [],
                    REQUIRED: {"nodeSelectorTerms": [{"matchFields": [FIELD]}]},
                }
            },
            id="nothing required",
        ),
        pytest.param(
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a"}]},
                            {"matchFields": [{"key": "b"}]},
                        ]
                    }
                }
            },
            {
                "nodeAffinity": {
                    REQUIRED: {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": "a"}], "matchFields": [FIELD]},
                            {"matchFields": [{"key": "b"}, FIELD]},
                        ]
                    }
                }
            },
            id="every term",
        ),
    ],
)
def test_node_name_becomes_an_affinity(affinity: dict[str, Any] | None, expected: dict[str, Any]) -> None:
    spec: dict[str, Any] = {"nodeName": "node-1"} | ({"affinity": affinity} if affinity else {})
    found = patched(manifest(container(gpu=1), **spec), CONVERT)["spec"]
    assert "nodeName" not in found
    assert found["affinity"] == expected
    (warning,) = converted(manifest(container(gpu=1), **spec), rules=CONVERT).warnings
    assert warning.startswith("spec.nodeName: node-1 became a node affinity")


def test_a_static_pod_is_refused_all_the_same() -> None:
    document = manifest(
        container(gpu=1), nodeName="node-1", annotations={"kubernetes.io/config.mirror": "hash"}
    )
    with pytest.raises(Refused, match="is a static Pod's, and those can't have GPUs"):
        converted(document, rules=CONVERT)


def test_privileged_is_converted_and_told() -> None:
    document = manifest(container(gpu=1), {"name": "tuner", "securityContext": {"privileged": True}})
    found = converted(document, rules=CONVERT)
    assert found.template
    assert found.warnings == (
        "container 'tuner' is privileged: it sees every card of the node, without limits",
    )


def test_runtime_class() -> None:
    rules = Rules(runtime_class="nvidia")
    assert patched(manifest(container(gpu=1)), rules)["spec"]["runtimeClassName"] == "nvidia"
    own = manifest(container(gpu=1), runtimeClassName="kata")
    assert patched(own, rules)["spec"]["runtimeClassName"] == "kata"
    assert "runtimeClassName" not in patched(manifest(container(gpu=0)), rules)["spec"]
    assert "runtimeClassName" not in patched(manifest(container(gpu=1)), Rules())["spec"]


def test_cards_are_hidden_from_the_other_containers() -> None:
    document = manifest(
        container("work", gpu=1),
        {"name": "all", "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
        {"name": "own", "resources": {"claims": [{"name": "x"}]}},
        container("low", priority=1),
        resourceClaims=[{"name": "x", "resourceClaimName": "x"}],
    )
    found = patched(document, Rules(hide_cards=True))["spec"]["containers"]
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "none"}
    assert [each.get("env") for each in found] == [
        None,
        [hidden],
        None,
        [{"name": "CUDA_TASK_PRIORITY", "value": "1"}, hidden],
    ]


@pytest.mark.parametrize(
    ("scheduler", "told"), [("hami-scheduler", True), ("default-scheduler", False), ("volcano", False)]
)
def test_a_pod_without_gpus_keeps_its_scheduler_and_is_told(scheduler: str, told: bool) -> None:
    """It may have a card of another of HAMi's vendors."""
    pod = manifest(container(**{"huawei.com/Ascend910B": "1"}), schedulerName=scheduler)
    conversion = converted(pod)
    assert conversion.operations == ()
    assert [notice.pointer for notice in conversion.notices] == ([("spec", "schedulerName")] if told else [])


def test_schedulers_that_are_gone() -> None:
    rules = Rules(schedulers=("hami-scheduler", "gpu-scheduler"))
    for name in rules.schedulers:
        found = patched(manifest(container(gpu=1), schedulerName=name), rules)
        assert found["spec"]["schedulerName"] == "default-scheduler"
    assert (
        patched(manifest(container(gpu=1), schedulerName="volcano"), rules)["spec"]["schedulerName"]
        == "volcano"
    )


@pytest.mark.parametrize(
    ("scheduler", "told"), [("hami-scheduler", True), ("volcano", False), ("default-scheduler", False)]
)
@pytest.mark.parametrize("form", ["label", "field"])
def test_a_group_that_loses_its_scheduler_is_told(form: str, scheduler: str, told: bool) -> None:
    document = manifest(container(gpu=1), schedulerName=scheduler)
    if form == "label":
        document["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "gang"}
    else:
        document["spec"]["schedulingGroup"] = {"podGroupName": "gang"}
    warnings = converted(document).warnings
    assert any("Pod group gang" in warning for warning in warnings) is told


def test_what_hami_left_is_removed() -> None:
    document = manifest(container(gpu=1), annotations={"hami.io/vgpu-node": "a", "b": "c"})
    document["metadata"]["labels"] = {"hami.io/vgpu-node": "a", "app": "x"}
    found = patched(document, Rules())["metadata"]
    assert (found["annotations"], found["labels"]) == ({"b": "c"}, {"app": "x"})


@pytest.mark.parametrize("label", ["hami.io/webhook", "tessera.dev/webhook"])
def test_opted_out(label: str) -> None:
    document = manifest(container(gpu=1, gpumem="3Gi"))
    document["metadata"]["labels"] = {label: "ignore"}
    assert converted(document).operations == ()
    document["metadata"]["labels"] = {label: "please"}
    with pytest.raises(Refused):
        converted(document)
