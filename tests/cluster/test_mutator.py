"""The webhook on a real Kubernetes: what runs, what waits and why, what is left, how it is without it."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kube.quantity import parse_quantity
from tests.cluster import corpus, vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.vertical import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

QUICK = {"replicas": 2, "templates": {"period": 1, "keep": 3}}

REFUSED = (
    *("034-gpumem-81k-eight-vgpu", "035-pytorchjob-64k", "036-gpumem-8gi-flow-style"),
    *("038-gpumem-16gi-truncation", "042-requests-zero-limits-four", "043-unicode-minus-percentage"),
    *("044-typo-gputypeage", "047-mem-and-percentage-and-priority-5", "072-privileged-gpu-container"),
    *("073-privileged-sidecar-no-gpu", "074-node-name-preset", "087-trainjob-gpualloc-alias"),
    *("092-dynamo-graph-vgpu", "112-gpu-zero-plus-mem", "125-vgpu-alias-exclusive"),
)  # fmt: skip
UNCHANGED = (
    *("088-prefixed-resource-names", "094-volcano-mode-and-factor", "095-kai-annotation-privileged"),
    "098-vcuda-foreign",
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
    vertical.create_namespace(cluster, name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait")


def create(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> str:
    """What kubectl says on stderr: the warnings."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": pods})
    return cluster.program("kubectl", "create", "-n", namespace, "-f", "-", input=manifest).stderr


@pytest.fixture(scope="module")
def refused(cluster: Cluster) -> Iterator[str]:
    """A namespace in which nothing comes to be."""
    vertical.create_namespace(cluster, "m-refused")
    yield "m-refused"
    cluster.kubectl("delete", "namespace", "m-refused", "--wait=false")


@pytest.mark.parametrize("manifest", REFUSED)
def test_what_cannot_be_honoured_is_refused(cluster: Cluster, refused: str, manifest: str) -> None:
    """Those with other names for the count too: there are no aliases here."""
    for pod in corpus.pods(manifest):
        with pytest.raises(CommandError, match=r"pods\.tessera\.dev.* denied the request: "):
            create(cluster, refused, [pod])
    for kind in ("pods", "resourceclaims", "resourceclaimtemplates"):
        assert not vertical.get(cluster, kind, "-n", refused)["items"]


@pytest.mark.parametrize("manifest", ["039-gpumem-200mb-not-a-quantity", "052-tab-indented-yaml"])
def test_what_is_no_manifest_is_kubectls_business(cluster: Cluster, refused: str, manifest: str) -> None:
    file = str(corpus.MANIFESTS / f"{manifest}.yaml")
    with pytest.raises(CommandError, match=r"error parsing|quantities must match"):
        cluster.kubectl("create", "-n", refused, "-f", file)


@pytest.mark.parametrize("manifest", UNCHANGED)
def test_what_is_not_ours_is_left_alone(cluster: Cluster, refused: str, manifest: str) -> None:
    for pod in corpus.pods(manifest):
        pod["spec"].pop("runtimeClassName", None)  # it would have to be there
        options = ("create", "-n", refused, "--dry-run=server", "-o", "json", "-f", "-")
        stored = json.loads(cluster.kubectl(*options, input=json.dumps(pod)))["spec"]
        assert "resourceClaims" not in stored
        assert stored["schedulerName"] == pod["spec"].get("schedulerName", "default-scheduler")
        for sent, container in zip(pod["spec"]["containers"], stored["containers"], strict=True):
            limits = (sent.get("resources") or {}).get("limits") or {}
            kept = container["resources"].get("limits", {})
            assert {key: parse_quantity(value) for key, value in kept.items()} == {
                key: parse_quantity(str(value)) for key, value in limits.items()
            }


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
    cluster.kubectl("rollout", "status", "deployment/legacy", "-n", namespace, "--timeout=180s")
    assert names("resourceclaimtemplates") == [template], "used all the time"
    cluster.kubectl("delete", "deployment/legacy", "-n", namespace)
    vertical.wait_until("the claims to go", lambda: not names("resourceclaims"))
    vertical.wait_until("the keeper's turn", lambda: not names("resourceclaimtemplates"))

    def one_of_two_leads() -> bool:
        pages = vertical.metrics(cluster, "tessera-mutator", 9471).values()
        return sorted("tessera_mutator_leads 1.0" in page for page in pages) == [False, True]

    vertical.wait_until("one of both replicas to lead", one_of_two_leads)


def test_a_second_apply_of_a_pod_is_no_error(cluster: Cluster, namespace: str) -> None:
    (pod,) = corpus.runnable("079-hami-scheduler-name")[:1]
    apply = ("kubectl", "apply", "-n", namespace, "-f", "-")
    for number in range(3):
        pod["metadata"]["labels"]["number"] = str(number)
        assert "Warning" not in cluster.program(*apply, input=json.dumps(pod)).stderr
        scheduled = ("--for=condition=PodScheduled", "pods", "--all", "-n", namespace)
        cluster.kubectl("wait", *scheduled, "--timeout=180s")
    changed = copy.deepcopy(pod)
    changed["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    with pytest.raises(CommandError, match="pod updates may not change fields"):
        cluster.program(*apply, input=json.dumps(changed))
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
    (gpu,) = corpus.runnable("001-default-use")[:1]
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
        shared = {"limits": {"nvidia.com/gpu.shared": 1}}  # of NVIDIA's device plugin: nobody has it here
        other = copy.deepcopy(plain) | {"metadata": {"name": "other"}}
        other["spec"]["containers"][0]["resources"] = shared
        create(cluster, namespace, [other])
        cluster.kubectl("label", "pod", "-n", namespace, "--all", "seen=yes")
        cluster.kubectl("delete", "pod", "-n", namespace, "--all", "--wait")
    finally:
        cluster.kubectl("scale", "--replicas=2", *deployment)
        cluster.kubectl("rollout", "status", *deployment, "--timeout=180s")
        cluster.wait_for_webhook()
    create(cluster, namespace, [gpu | {"metadata": {"name": "again", "labels": {"app": "corpus"}}}])
    vertical.running(cluster, namespace, "app=corpus", 1)


@pytest.mark.parametrize("label", ["hami.io/webhook", "tessera.dev/webhook"])
@pytest.mark.parametrize("whose", ["pod", "namespace"])
def test_who_opts_out_is_left_alone(cluster: Cluster, namespace: str, label: str, whose: str) -> None:
    (pod,) = corpus.runnable("001-default-use")[:1]
    pod["spec"]["schedulerName"] = "nobody"
    if whose == "pod":
        pod["metadata"]["labels"][label] = "ignore"
    else:
        cluster.kubectl("label", "namespace", namespace, f"{label}=ignore")
        dry_run = ("create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-")
        vertical.wait_until(
            "the API server to go by the label",
            lambda: "resourceClaims" not in cluster.kubectl(*dry_run, input=json.dumps(pod)),
        )
    create(cluster, namespace, [pod])
    (found,) = vertical.get(cluster, "pods", "-n", namespace)["items"]
    assert found["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"]
    assert "resourceClaims" not in found["spec"]
