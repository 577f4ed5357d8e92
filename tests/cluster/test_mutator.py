"""The webhook on a real Kubernetes: what runs, what waits and why, what is left, how it is without it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from claim_mutator import workload
from tests.cluster import vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.vertical import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

CORPUS = Path(__file__).parents[1] / "corpus" / "manifests"
QUICK = {"replicas": 2, "templates": {"period": 1, "keep": 3}}

# Of tests/fakegpu/inventories/two-cards.ini: one card of 24 GiB, one of 80. One manifest after the other.
RUN = (
    *("001-default-use", "003-two-plain-pods-multidoc", "006-share-40-60", "013-scheduler-policies"),
    *("008-deployment-mem-only-toleration", "014-nouse-uuid", "033-gpumem-5k", "050-gpumem-10-string"),
    *("053-no-count-mem-and-cores", "054-only-gpumem-in-both", "058-mem-without-cores-20480"),
    *("061-pct-none-2000", "063-old-benchmark-job", "066-regular-init-same-size", "069-three-inits-job"),
    *("068-sidecar-then-init-then-app", "078-restricted-scc-job", "079-hami-scheduler-name"),
    *("117-app-chart-no-count-23552", "004-exclusive-two-cards", "011-nouse-gputype-list"),
    *("026-scoring-weights", "027-vulkan-annotation"),
    *("029-gputype-a10-also-a100", "030-mutex-policy", "032-gpumem-1k-two-gpus"),
    *("051-percent-30-disable-control", "057-gpumem-as-annotations", "076-host-pid"),
    *("065-volcano-three-containers-nvidia-names", "108-priority-env-pair", "109-force-core-policy"),
    *("111-user-sets-visible-devices", "113-job-annotation-on-metadata", "118-pod-group-label-hami"),
)  # fmt: skip
WAIT = (
    *("015-use-uuid-list-one-gpu", "024-mig-binpack-uuid-hostname", "059-eight-gpus-cores-50-no-mem"),
    *("105-count-above-physical", "121-nine-vgpus-one-card", "016-use-uuid-one-but-two-gpus"),
    *("017-gputype-product-double-prefix", "019-gputype-hyphenated-and-blacklist"),
    *("080-multidoc-deployments-services", "082-helm-rendered-serving-stack"),
    *("106-whole-card-mib-l40s", "123-controller-made-worker-uuid", "126-tenant-pinned-small"),
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster(installed_cluster: Cluster) -> Iterator[Cluster]:
    """With two replicas, and a keeper that is quick."""
    installed_cluster.install_chart({"mutator": QUICK})
    two_replicas(installed_cluster)
    yield installed_cluster
    installed_cluster.install_chart()


def two_replicas(cluster: Cluster) -> None:
    """Those of before an upgrade go on for a while."""
    label = ("-l", "app.kubernetes.io/name=tessera-mutator", "-n", SYSTEM_NAMESPACE)
    vertical.wait_until("two replicas", lambda: len(vertical.get(cluster, "pods", *label)["items"]) == 2)


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    plain = re.sub(r"[^a-z0-9]+", "-", request.node.name.removeprefix("test_").lower())
    name = f"m-{plain[:50].strip('-')}"
    cluster.kubectl("create", "namespace", name)
    vertical.wait_until(
        "the default ServiceAccount",
        lambda: cluster.kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found"),
    )
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait")


def pods_of(manifest: str) -> list[dict[str, Any]]:
    """A manifest's Pods, with images that are here and a command that goes on; nothing else is changed."""
    found: list[dict[str, Any]] = []
    for document in yaml.safe_load_all((CORPUS / f"{manifest}.yaml").read_text()):
        for pointer in workload.templates(document or {}):
            pod = copy.deepcopy(workload.at(document, pointer))
            metadata = {"name": f"p-{len(found)}", "labels": {"app": "corpus"}}
            metadata |= {"annotations": (pod.get("metadata") or {}).get("annotations") or {}}
            spec = pod["spec"]
            spec |= {"terminationGracePeriodSeconds": 1}
            for what in ("nodeSelector", "runtimeClassName"):  # of a cluster that this one isn't
                spec.pop(what, None)
            if "securityContext" in spec:
                spec["securityContext"]["runAsUser"] = 65534  # who the image would run as
            for group in ("initContainers", "containers"):
                for container in spec.get(group) or ():
                    is_init = group == "initContainers" and container.get("restartPolicy") != "Always"
                    _made_runnable(container, ends=is_init)
            for volume in spec.get("volumes") or ():
                for kind in [key for key in volume if key != "name"]:
                    del volume[kind]
                volume["emptyDir"] = {}
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    assert found, "this kind has no Pod template that could be found"
    return found


def _made_runnable(container: dict[str, Any], *, ends: bool) -> None:
    for key in ("command", "args", "env", "envFrom", "ports", "securityContext", "workingDir"):
        container.pop(key, None)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        container.pop(probe, None)
    container |= {"image": "localhost/cuda-test:1", "imagePullPolicy": "IfNotPresent"}
    container["command"] = ["true"] if ends else ["sleep", "infinity"]
    resources = container.get("resources") or {}
    for where in ("limits", "requests"):
        for name in ("cpu", "memory", "ephemeral-storage"):
            (resources.get(where) or {}).pop(name, None)


def create(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> str:
    """What kubectl says on stderr: the warnings."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    return cluster.program("kubectl", "create", "-n", namespace, "-f", "-", input=manifest).stderr


@pytest.mark.parametrize("manifest", RUN)
def test_runs(cluster: Cluster, namespace: str, manifest: str) -> None:
    pods = pods_of(manifest)
    create(cluster, namespace, pods)
    vertical.running(cluster, namespace, "app=corpus", len(pods))
    shares = vertical.shares(cluster, namespace)
    assert {share.pod for share in shares} == {pod["metadata"]["name"] for pod in pods}


@pytest.mark.parametrize("manifest", WAIT)
def test_waits_and_says_why(cluster: Cluster, namespace: str, manifest: str) -> None:
    """The scheduler: that it can't allocate. Ours, at admission: what there is, and what is asked for."""
    pods = pods_of(manifest)
    warnings = create(cluster, namespace, pods)
    assert "the Pod will wait" in warnings

    def reasons() -> list[str] | None:
        found = [
            condition["message"]
            for pod in vertical.get(cluster, "pods", "-n", namespace)["items"]
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        ]
        return found if len(found) == len(pods) else None

    messages = vertical.wait_until(f"{len(pods)} Pods to wait", reasons)
    assert all("cannot allocate all claims" in message for message in messages)


def test_replicas_share_a_template_and_nothing_is_left(cluster: Cluster, namespace: str) -> None:
    vertical.apply(cluster, namespace, "legacy.yaml")
    vertical.running(cluster, namespace, "app=legacy", 3)

    def names(kind: str) -> list[str]:
        return [item["metadata"]["name"] for item in vertical.get(cluster, kind, "-n", namespace)["items"]]

    (template,) = names("resourceclaimtemplates")
    assert len(names("resourceclaims")) == 3
    cluster.kubectl("scale", "deployment/legacy", "--replicas=1", "-n", namespace)
    vertical.wait_until("two claims to go", lambda: len(names("resourceclaims")) == 1)
    cluster.kubectl("rollout", "restart", "deployment/legacy", "-n", namespace)
    cluster.kubectl("rollout", "status", "deployment/legacy", "-n", namespace, "--timeout=60s")
    assert names("resourceclaimtemplates") == [template], "used all the time"
    cluster.kubectl("delete", "deployment/legacy", "-n", namespace)
    vertical.wait_until("the claims to go", lambda: not names("resourceclaims"))
    vertical.wait_until("the keeper's turn", lambda: not names("resourceclaimtemplates"), timeout=60)
    pages = vertical.metrics(cluster, "tessera-mutator", 9471).values()
    assert sorted("tessera_mutator_leads 1.0" in page for page in pages) == [False, True]


def test_a_second_apply_of_a_pod_is_no_error(cluster: Cluster, namespace: str) -> None:
    (pod,) = pods_of("079-hami-scheduler-name")[:1]
    for number in range(3):
        pod["metadata"]["labels"]["number"] = str(number)
        cluster.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(pod))
    (found,) = vertical.get(cluster, "pods", "-n", namespace)["items"]
    assert found["metadata"]["labels"]["number"] == "2"
    assert not [
        key
        for container in found["spec"]["containers"]
        for where in ("limits", "requests")
        for key in container["resources"].get(where, {})
        if key.startswith("nvidia.com/")
    ]


def test_while_nobody_answers_gpu_pods_are_refused_and_others_are_not(
    cluster: Cluster, namespace: str
) -> None:
    """Also updates and deletions go on."""
    (gpu,) = pods_of("001-default-use")[:1]
    plain = copy.deepcopy(gpu)
    plain["metadata"]["name"] = "plain"
    for container in plain["spec"]["containers"]:
        container["resources"] = {}
    create(cluster, namespace, [gpu])
    vertical.running(cluster, namespace, "app=corpus", 1)
    deployment = ("deployment/tessera-mutator", "-n", SYSTEM_NAMESPACE)
    cluster.kubectl("scale", "--replicas=0", *deployment)
    try:
        label = ("-l", "app.kubernetes.io/name=tessera-mutator", "-n", SYSTEM_NAMESPACE)
        vertical.wait_until("no replica", lambda: not vertical.get(cluster, "pods", *label)["items"])
        with pytest.raises(CommandError, match=r"failed calling webhook .*pods\.tessera\.dev"):
            create(cluster, namespace, [gpu | {"metadata": {"name": "late"}}])
        create(cluster, namespace, [plain])
        vertical.running(cluster, namespace, "app=corpus", 2)
        cluster.kubectl("label", "pod", "-n", namespace, "--all", "seen=yes")
        cluster.kubectl("delete", "pod", "-n", namespace, "--all", "--wait")
    finally:
        cluster.kubectl("scale", "--replicas=2", *deployment)
        cluster.kubectl("rollout", "status", *deployment, "--timeout=90s")
    create(cluster, namespace, [gpu | {"metadata": {"name": "again", "labels": {"app": "corpus"}}}])
    vertical.running(cluster, namespace, "app=corpus", 1)


@pytest.mark.parametrize("label", ["hami.io/webhook", "tessera.dev/webhook"])
@pytest.mark.parametrize("whose", ["pod", "namespace"])
def test_who_opts_out_is_left_alone(cluster: Cluster, namespace: str, label: str, whose: str) -> None:
    (pod,) = pods_of("001-default-use")[:1]
    pod["spec"]["schedulerName"] = "nobody"
    if whose == "pod":
        pod["metadata"]["labels"][label] = "ignore"
    else:
        cluster.kubectl("label", "namespace", namespace, f"{label}=ignore")
    create(cluster, namespace, [pod])
    (found,) = vertical.get(cluster, "pods", "-n", namespace)["items"]
    assert found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert "resourceClaims" not in found["spec"]
