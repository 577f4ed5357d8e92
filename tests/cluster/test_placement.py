"""What the scheduler makes of our claims' forms: near cards, one NUMA node, MIG instances, split shares.

The cards are only published, on Nodes without a kubelet: what is asserted is the allocation. Nothing else is
scheduled there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster

pytestmark = pytest.mark.cluster

NAMESPACE = "placement"
TRUSTED = "placement-trusted"
TAINT = "tests.tessera.dev/published-only"
LINKED, PLAIN = "published-linked", "published-plain"

TOPOLOGY = {"hami.io/gpu-scheduler-policy": "topology-aware"}
NUMA_BIND = {"nvidia.com/numa-bind": "true"}
MIG = {"nvidia.com/vgpu-mode": "mig"}


def device(name: str, size: str, **attributes: str | int) -> dict[str, Any]:
    def amount(value: str, default: str, low: str, **more: str) -> dict[str, Any]:
        return {"value": value, "requestPolicy": {"default": default, "validRange": {"min": low} | more}}

    typed = {
        key: {"int": value} if isinstance(value, int) else {"string": value}
        for key, value in attributes.items()
    }
    return {
        "name": name,
        "allowMultipleAllocations": True,
        "attributes": typed,
        "capacity": {
            "memory": amount(size, size, "1Mi", step="1Mi", max=size),
            "cores": amount("100", "0", "0", step="1"),
            "shares": amount("1000", "100", "100"),
        },
    }


def linked() -> list[dict[str, Any]]:
    """Two pairs, crosswise: 0 and 2, 1 and 3."""
    found = []
    for index in range(4):
        pair = index % 2
        name = {"uuid": f"GPU-{index}", "productName": "NVIDIA A100-SXM4-80GB", "type": "gpu"}
        found.append(device(f"gpu-{index}", "80Gi", numaNode=pair, nvlinkDomain="ab"[pair], **name))
    return found


def plain() -> list[dict[str, Any]]:
    """Cards that tell nothing of themselves, and a card cut in three, the large instance first."""
    cards = [device(f"gpu-{index}", "24Gi", uuid=f"GPU-{index}", type="gpu") for index in (8, 9)]
    sizes = {"mig-c": "20Gi", "mig-a": "10Gi", "mig-b": "10Gi"}
    return cards + [
        device(name, size, uuid=name.upper(), parentUUID="GPU-7", type="mig") for name, size in sizes.items()
    ]


@pytest.fixture(scope="module")
def published(installed_cluster: Cluster) -> Iterator[Cluster]:
    cluster = installed_cluster
    resources = {"cpu": "64", "memory": "256Gi", "pods": "200"}
    status = {
        "capacity": resources,
        "allocatable": resources,
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    taint = [{"key": TAINT, "effect": "NoSchedule"}]
    documents: list[dict[str, Any]] = []
    for node, devices in ((LINKED, linked()), (PLAIN, plain())):
        metadata = {"name": node, "labels": {"kubernetes.io/hostname": node}}
        documents.append(
            {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taint}}
        )
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": vertical.DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        documents.append(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}
        )
    for name, labels in ((NAMESPACE, {}), (TRUSTED, {"tessera.dev/trusted": "true"})):
        metadata = {"name": name, "labels": labels}
        documents.append({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})
    try:
        cluster.kubectl("apply", "-f", "-", input=text)
        for node in (LINKED, PLAIN):
            patch = json.dumps({"status": status})
            cluster.kubectl("patch", "node", node, "--subresource=status", "--type=merge", "-p", patch)
        for namespace in (NAMESPACE, TRUSTED):
            vertical.until_usable(cluster, namespace)
        yield cluster
    finally:
        cluster.kubectl("delete", "-f", "-", "--ignore-not-found", "--wait=false", input=text)
        for namespace in (NAMESPACE, TRUSTED):
            # No kubelet ends these Pods, and their namespaces wait for them.
            options = ("--all", "--force", "--grace-period=0", "--wait=false")
            cluster.kubectl("delete", "pods", "-n", namespace, *options, check=False)


def container(name: str, **quantities: int) -> dict[str, Any]:
    limits = {f"nvidia.com/{key.replace('_', '-')}": str(value) for key, value in quantities.items()}
    return {"name": name, "image": "none.example/none", "resources": {"limits": limits}}


def pod(
    name: str,
    node: str,
    app: dict[str, Any],
    annotations: dict[str, str] | None = None,
    *,
    namespace: str = NAMESPACE,
    init: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": annotations or {}},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "tolerations": [{"operator": "Exists"}],
            "initContainers": init or [],
            "containers": [app],
        },
    }


def allocated(cluster: Cluster, document: dict[str, Any]) -> list[tuple[str, str]]:
    """Creates the Pod; request (and form) and device of each result, when the scheduler has found some."""
    metadata = document["metadata"]
    cluster.kubectl("create", "-f", "-", input=json.dumps(document))

    def results() -> list[tuple[str, str]] | None:
        for claim in vertical.get(cluster, "resourceclaims", "-n", metadata["namespace"])["items"]:
            owners = [owner["name"] for owner in claim["metadata"].get("ownerReferences", ())]
            if metadata["name"] in owners and "allocation" in claim.get("status", {}):
                found = claim["status"]["allocation"]["devices"]["results"]
                return [(result["request"], result["device"]) for result in found]
        return None

    return vertical.wait_until(f"an allocation for {metadata['name']}", results)


# On 1.35 each card is a request of its own, and no cards are preferred to others.
BEFORE_COUNTS = {
    "near": [("g0-0", "gpu-0"), ("g0-1", "gpu-1")],
    "near-3": [("g0-0", "gpu-0"), ("g0-1", "gpu-1"), ("g0-2", "gpu-2")],
    "near-plain": [("g0-0", "gpu-8"), ("g0-1", "gpu-9")],
    "numa": [("g0-0/numa", "gpu-0"), ("g0-1/numa", "gpu-2")],
    "numa-plain": [("g0-0/nonuma", "gpu-8"), ("g0-1/nonuma", "gpu-9")],
}


@pytest.mark.parametrize(
    ("name", "node", "app", "annotations", "expected"),
    [
        pytest.param(
            "near", LINKED, container("c", gpu=2, gpumem=1000), TOPOLOGY,
            [("g0/nvlink", "gpu-0"), ("g0/nvlink", "gpu-2")], id="linked cards are preferred",
        ),
        pytest.param(
            "near-3", LINKED, container("c", gpu=3, gpumem=1000), TOPOLOGY,
            [("g0/any", "gpu-0"), ("g0/any", "gpu-1"), ("g0/any", "gpu-2")], id="where there are enough",
        ),
        pytest.param(
            "near-plain", PLAIN, container("c", gpu=2, gpumem=1000), TOPOLOGY,
            [("g0/any", "gpu-8"), ("g0/any", "gpu-9")], id="cards that tell nothing will do",
        ),
        pytest.param(
            "numa", LINKED, container("c", gpu=2, gpumem=1000), NUMA_BIND,
            [("g0/numa", "gpu-0"), ("g0/numa", "gpu-2")], id="one NUMA node",
        ),
        pytest.param(
            "numa-plain", PLAIN, container("c", gpu=2, gpumem=1000), NUMA_BIND,
            [("g0/nonuma", "gpu-8"), ("g0/nonuma", "gpu-9")], id="NUMA nodes that nobody knows",
        ),
        pytest.param(
            "type", PLAIN, container("c", gpumem=100), {"nvidia.com/nouse-gputype": "A100"},
            [("g0", "gpu-8")], id="an expression over what a card lacks",
        ),
        pytest.param(
            "instance", PLAIN, container("c", gpumem=8000), MIG,
            [("g0/m10", "mig-a")], id="the smallest instance",
        ),
        pytest.param(
            "instance-of", PLAIN, container("c", gpumem=12000), MIG | {"nvidia.com/use-gpuuuid": "GPU-7"},
            [("g0", "mig-c")], id="an instance of a card",
        ),
    ],
)  # fmt: skip
def test_cards_of_one_container(
    *,
    published: Cluster,
    name: str,
    node: str,
    app: dict[str, Any],
    annotations: dict[str, str],
    expected: list[tuple[str, str]],
) -> None:
    if published.binaries.minor < 36:
        expected = BEFORE_COUNTS.get(name, expected)
    assert sorted(allocated(published, pod(name, node, app, annotations))) == expected


@pytest.mark.parametrize(
    ("name", "app", "annotations"),
    [
        pytest.param("numa-3", container("c", gpu=3, gpumem=1000), NUMA_BIND, id="three of one NUMA node"),
        pytest.param(
            "elsewhere", container("c", gpumem=100), {"nvidia.com/use-gpuuuid": "GPU-8"},
            id="B025: another node's card",
        ),
    ],
)  # fmt: skip
def test_what_no_node_has_pends(
    *, published: Cluster, name: str, app: dict[str, Any], annotations: dict[str, str]
) -> None:
    published.kubectl("create", "-f", "-", input=json.dumps(pod(name, LINKED, app, annotations)))

    def why() -> str | None:
        status = vertical.get(published, "pod", name, "-n", NAMESPACE)["status"]
        waits = (each for each in status.get("conditions", ()) if each["type"] == "PodScheduled")
        return next((each["message"] for each in waits if each["status"] == "False"), None)

    assert "cannot allocate all claims" in vertical.wait_until("the scheduler's answer", why)


def test_an_init_container_uses_one_of_three_cards(published: Cluster) -> None:
    """Before 1.37 as three requests: distinctAttribute between counts is wrong there."""
    init = [container("i", gpu=1, gpumem=3000)]
    found = allocated(published, pod("split", LINKED, container("c", gpu=3, gpumem=2000), init=init))
    assert len({card for _, card in found}) == len(found) == 3
    spec = vertical.get(published, "pod", "split", "-n", NAMESPACE)["spec"]
    (lent,) = spec["initContainers"][0]["resources"]["claims"]
    assert lent in spec["containers"][0]["resources"]["claims"]


@pytest.mark.parametrize(
    ("namespace", "device_class"),
    [(NAMESPACE, "gpu.tessera.dev"), (TRUSTED, "trusted.gpu.tessera.dev")],
    ids=["no", "yes"],
)
def test_limits_are_loosened_where_it_is_allowed(
    published: Cluster, namespace: str, device_class: str
) -> None:
    app = container("c", gpumem=1000) | {"env": [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]}

    def chosen() -> str | None:
        document = pod("loose", PLAIN, app, namespace=namespace)
        published.kubectl("create", "-f", "-", input=json.dumps(document))
        spec = vertical.get(published, "pod", "loose", "-n", namespace)["spec"]
        name = spec["resourceClaims"][0]["resourceClaimTemplateName"]
        template = vertical.get(published, "resourceclaimtemplate", name, "-n", namespace)
        found: str = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
        if found == device_class:
            return found
        # The mutator learns of a new label within moments.
        published.kubectl("delete", "pod", "loose", "-n", namespace, "--force", "--grace-period=0")
        return None

    assert vertical.wait_until(f"a claim of {device_class}", chosen) == device_class


@pytest.mark.parametrize("form", ["exactly", "firstAvailable"])
def test_nobody_loosens_limits_by_hand(published: Cluster, form: str) -> None:
    body: Any = {"deviceClassName": "trusted.gpu.tessera.dev"}
    request = {"name": "x", form: body if form == "exactly" else [body | {"name": "a"}]}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "by-hand"},
        "spec": {"devices": {"requests": [request]}},
    }
    for namespace, created in ((NAMESPACE, False), (TRUSTED, True)):
        command = ("create", "-n", namespace, "--dry-run=server", "-o", "name", "-f", "-")
        answer = published.kubectl(*command, input=json.dumps(claim), check=False)
        assert ("by-hand" in answer) is created


@pytest.mark.parametrize("kind", ["Deployment", "CronJob"])
def test_authors_of_workloads_are_told_and_nothing_is_changed(published: Cluster, kind: str) -> None:
    bad = {"name": "bad", "image": "i", "resources": {"limits": {"nvidia.com/gpumem": "3Gi"}}}
    pod_spec: dict[str, Any] = {"containers": [container("good", gpumem=3000), bad]}
    template: dict[str, Any] = {"metadata": {"labels": {"app": "told"}}, "spec": pod_spec}
    spec: dict[str, Any] = {"replicas": 0, "selector": {"matchLabels": {"app": "told"}}, "template": template}
    if kind == "CronJob":
        pod_spec["restartPolicy"] = "Never"
        spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}}
    document = {
        "apiVersion": "batch/v1" if kind == "CronJob" else "apps/v1",
        "kind": kind,
        "metadata": {"name": "told", "namespace": NAMESPACE, "annotations": NUMA_BIND},
        "spec": spec,
    }
    answer = published.program("kubectl", "create", "-o", "json", "-f", "-", input=json.dumps(document))
    assert "its Pods will be refused: container 'bad', limits: nvidia.com/gpumem: 3Gi" in answer.stderr
    assert "annotation nvidia.com/numa-bind has no effect here" in answer.stderr
    assert '"claims"' not in answer.stdout
