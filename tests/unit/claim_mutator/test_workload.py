"""Objects that hold Pod templates: found, judged, never changed."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator import workload
from claim_mutator.refusal import Pointer
from claim_mutator.rules import Rules
from tests.unit.claim_mutator.pods import TWO_SIZES, container

POD = {"spec": {"containers": [container(gpumem=3000)]}}


def template(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"containers": list(containers)}}


def document(kind: str, held: Any, *, group: str = "apps/v1", **metadata: Any) -> dict[str, Any]:
    spec = {"jobTemplate": {"spec": {"template": held}}} if kind == "CronJob" else {"template": held}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": "x"} | metadata, "spec": spec}


@pytest.mark.parametrize(
    ("found", "pointers"),
    [
        ({"kind": "Pod", **POD}, [()]),
        ({"kind": "Pod", "apiVersion": "v1", "spec": {}}, [()]),
        (document("Deployment", POD), [("spec", "template")]),
        (document("DaemonSet", {"spec": {"containers": 5}}), [("spec", "template")]),
        (document("CronJob", POD, group="batch/v1"), [("spec", "jobTemplate", "spec", "template")]),
        ({"kind": "PodTemplate", "template": POD}, [("template",)]),
        (
            {
                "kind": "Job",
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "spec": {"tasks": [{"template": POD}]},
            },
            [("spec", "tasks", 0, "template")],
        ),
        (
            {"kind": "PyTorchJob", "spec": {"r": {"Master": {"template": POD}, "Worker": {"template": POD}}}},
            [("spec", "r", "Master", "template"), ("spec", "r", "Worker", "template")],
        ),
        (
            {"kind": "ManifestWork", "spec": {"manifests": [{"kind": "Pod", **POD}]}},
            [("spec", "manifests", 0)],
        ),
        ({"kind": "ManifestWork", "spec": {"manifests": [{"kind": "ServingRuntime", **POD}]}}, []),
        (document("Service", POD, group="serving.knative.dev/v1"), []),
        ({"kind": "Deployment", "apiVersion": "apps/v1", "spec": {}}, []),
        ({"kind": "InferenceService", "spec": {"predictor": {"containers": [{"name": "c"}]}}}, []),
        (
            {
                "kind": "Workload",
                "apiVersion": "kueue.x-k8s.io/v1beta1",
                "spec": {"podSets": [{"template": POD}]},
            },
            [],
        ),
        ({"kind": "Service", "spec": {"containers": []}}, []),
        ({"kind": "Odd", "spec": {"template": {"spec": {"containers": ["a"]}}}}, []),
        (
            {"kind": "Odd", "spec": {"template": {"spec": {"containers": [{"image": 1}]}}}},
            [("spec", "template")],
        ),
    ],
)
def test_templates(found: dict[str, Any], pointers: list[Pointer]) -> None:
    assert workload.templates(found) == pointers


def test_a_deep_object_ends() -> None:
    deep: Any = POD
    for _ in range(2000):
        deep = {"a": deep}
    assert workload.templates({"kind": "Deep", "spec": deep}) == []


def told(found: dict[str, Any], rules: Rules | None = None) -> list[str]:
    return [notice.text for notice in workload.review(found, rules or Rules(), TWO_SIZES, "team")]


@pytest.mark.parametrize(
    ("kind", "group"),
    [("Deployment", "apps/v1"), ("StatefulSet", "apps/v1"), ("DaemonSet", "apps/v1"),
     ("ReplicaSet", "apps/v1"), ("Job", "batch/v1"), ("CronJob", "batch/v1")],
)  # fmt: skip
def test_what_its_pods_will_be_refused_for(kind: str, group: str) -> None:
    place = "spec.jobTemplate.spec.template" if kind == "CronJob" else "spec.template"
    assert told(document(kind, template(container(gpumem="3Gi")), group=group)) == [
        f"{place}: its Pods will be refused: container 'work', limits: nvidia.com/gpumem: 3Gi has a binary"
        " suffix, but this field counts MiB: write 3072"
    ]
    assert told(document(kind, template(container(gpumem=3000)), group=group)) == []


def test_warnings_of_the_template() -> None:
    annotations = {"hami.io/device-scoring-weights": "slot=1,core=1,memory=1"}
    (text,) = told(document("Deployment", template(container(gpu=1), annotations=annotations)))
    assert text.startswith("spec.template: annotation hami.io/device-scoring-weights")


@pytest.mark.parametrize(
    ("metadata", "inner", "expected"),
    [
        pytest.param(
            {"annotations": {"nvidia.com/use-gpuuuid": "GPU-1", "team": "x"}},
            {},
            [
                "annotation nvidia.com/use-gpuuuid has no effect here: write it into"
                " spec.template.metadata.annotations"
            ],
            id="annotation",
        ),
        pytest.param(
            {"annotations": {"hami.io/gpu-scheduler-policy": "x"}},
            {"annotations": {"hami.io/gpu-scheduler-policy": "binpack"}},
            [],
            id="in both",
        ),
        pytest.param(
            {"labels": {"hami.io/webhook": "ignore"}},
            {},
            ["label hami.io/webhook has no effect here: write it into spec.template.metadata.labels"],
            id="opt-out",
        ),
    ],
)
def test_what_has_no_effect_where_it_is(
    metadata: dict[str, Any], inner: dict[str, Any], expected: list[str]
) -> None:
    assert (
        told(document("Job", template(container(gpu=1), **inner), group="batch/v1", **metadata)) == expected
    )


def test_misplaced_in_a_workload_that_is_refused_is_told_too() -> None:
    found = document(
        "Job", template(container(gpu=99)), group="batch/v1", annotations={"nvidia.com/numa-bind": "1"}
    )
    assert len(told(found)) == 2


@pytest.mark.parametrize(
    "found",
    [
        document("Deployment", template(container(cpu=1)), annotations={"nvidia.com/numa-bind": "1"}),
        document("Deployment", template(container(gpumem="3Gi"), labels={"tessera.dev/webhook": "ignore"})),
        document("Deployment", {"spec": {"containers": 5}}),
        document("Deployment", None),
        {"kind": "Deployment", "apiVersion": "apps/v1"},
        {},
    ],
    ids=["no GPU", "opted out", "containers are a number", "no template", "no spec", "empty"],
)
def test_nothing_to_say(found: dict[str, Any]) -> None:
    assert told(found) == []
