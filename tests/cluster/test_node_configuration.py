"""The node configuration as the chart brings it: taken up without a restart; spreading; over-commitment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS

pytestmark = pytest.mark.cluster

SMALL, LARGE = 24 * 1024, 80 * 1024  # MiB, tests/fakegpu/inventories/two-cards.ini
GIB = 1 << 30
NAMESPACES = ("spread-a", "spread-b")


def install(cluster: Cluster, **configuration: Any) -> None:
    """A claim's own words need no webhook."""
    cluster.install_chart({"mutator": {"enabled": False}, "driver": {"nodeConfiguration": configuration}})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(version=VERSIONS[-1]) as made:
        install(made, reservedMemory="1Gi")
        yield made


def agent(cluster: Cluster) -> tuple[str, int]:
    """Its Pod's name, and how often its container was restarted."""
    (pod,) = vertical.get(cluster, "pods", "-n", vertical.SYSTEM_NAMESPACE)["items"]
    return pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"]


def memory(cluster: Cluster) -> list[int]:
    return [card.memory for card in vertical.cards(cluster)]


def order(cluster: Cluster) -> list[str]:
    return [card.device for card in vertical.cards(cluster)]


def look_now(cluster: Cluster) -> None:
    """The kubelet looks at the ConfigMap with its next look at the Pod, which may be a minute away."""
    looked = f"tessera.dev/looked-at={time.monotonic_ns()}"
    cluster.kubectl(
        "annotate", "pod", agent(cluster)[0], "-n", vertical.SYSTEM_NAMESPACE, looked, "--overwrite"
    )


def test_an_upgrade_reaches_a_running_agent(cluster: Cluster) -> None:
    before = agent(cluster)
    assert memory(cluster) == [SMALL - 1024, LARGE - 1024]
    install(cluster, reservedMemory="2Gi", placement="spread")
    look_now(cluster)
    expected = [SMALL - 2048, LARGE - 2048]
    vertical.wait_until("the changed cards", lambda: memory(cluster) == expected)
    assert agent(cluster) == before


def test_spread_fills_the_least_used_card(cluster: Cluster) -> None:
    """The first Pod's card goes to the end of the line, and the second Pod gets the other one."""
    first, second = order(cluster)
    taken = []
    try:
        for namespace in NAMESPACES:
            vertical.apply(cluster, namespace, "native.yaml")
            vertical.running(cluster, namespace, "app=native", 1)
            taken += [share.device for share in vertical.shares(cluster, namespace)]
            vertical.wait_until("the other order", lambda: order(cluster) == [second, first])
    finally:
        for namespace in NAMESPACES:
            vertical.delete(cluster, namespace)
    assert taken == [first, second]
    vertical.wait_until("the first order", lambda: order(cluster) == [first, second])


def pod(cluster: Cluster, name: str, card: int, memory: str, **config: str) -> str:
    """A Pod with so much of the card at that place of the slice, as YAML; `config`: of its ShareConfig."""
    uuid = vertical.cards(cluster)[card].uuid
    request = {
        "deviceClassName": "gpu.tessera.dev",
        "capacity": {"requests": {"memory": memory}},
        "selectors": [{"cel": {"expression": f"device.attributes['gpu.tessera.dev'].uuid == '{uuid}'"}}],
    }
    parameters = {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "ShareConfig", **config}
    devices = {
        "requests": [{"name": "card", "exactly": request}],
        "config": [{"opaque": {"driver": "gpu.tessera.dev", "parameters": parameters}}],
    }
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }
    work = {
        "name": "work",
        "image": "localhost/cuda-test:1",
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "infinity"],
        "resources": {"claims": [{"name": "share"}]},
    }
    spec = {
        "terminationGracePeriodSeconds": 1,
        "resourceClaims": [{"name": "share", "resourceClaimTemplateName": name}],
        "containers": [work],
    }
    labels = {"app": "memory"}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [template, made]})


def test_memory_beyond_the_cards(cluster: Cluster) -> None:
    """`memoryScaling` above 1: a share larger than its card goes on in the host's memory, or ends there."""
    namespace = "memory"
    out_of_memory = "CUDA_ERROR_OUT_OF_MEMORY"
    try:
        install(cluster, memoryScaling=1.5)
        look_now(cluster)
        vertical.wait_until("half as much again", lambda: memory(cluster) == [SMALL * 3 // 2, LARGE * 3 // 2])
        vertical.apply_text(cluster, namespace, pod(cluster, "spills", 0, "30Gi"))
        vertical.apply_text(
            cluster, namespace, pod(cluster, "its-claim-refuses", 1, "100Gi", memoryOverflow="refuse")
        )
        vertical.running(cluster, namespace, "app=memory", 2)
        spilled = vertical.allocate(cluster, namespace, "spills")
        assert (spilled.held, spilled.total, spilled.refusal) == (30 * GIB, 30 * GIB, out_of_memory)
        refused = vertical.allocate(cluster, namespace, "its-claim-refuses")
        assert (refused.held, refused.total, refused.refusal) == (80 * GIB, 80 * GIB, out_of_memory)

        install(cluster, memoryScaling=1.25, memoryOverflow="refuse")
        look_now(cluster)
        vertical.wait_until("a quarter more", lambda: memory(cluster) == [SMALL * 5 // 4, LARGE * 5 // 4])
        cluster.kubectl("delete", "pods", "--all", "-n", namespace)
        vertical.apply_text(cluster, namespace, pod(cluster, "the-node-refuses", 0, "28Gi"))
        vertical.running(cluster, namespace, "app=memory", 1)
        refused = vertical.allocate(cluster, namespace, "the-node-refuses")
        assert (refused.held, refused.total, refused.refusal) == (24 * GIB, 24 * GIB, out_of_memory)
    finally:
        vertical.delete(cluster, namespace)
