"""Kueue on a cluster: its own chart, and its own controllers in an image that is made here.

Its visibility API is left out: it only shows what is waiting, and an aggregated API server needs certificates
that these clusters don't have.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.cluster import binaries, images, toolchain
from tests.cluster.cluster import Cluster

COMPONENT = "kueue"
NAMESPACE = "kueue-system"
IMAGE = "localhost/kueue:1"
MEMORY = "gpu.tessera.dev/memory"
"""What a queue's quota calls the memory of our shares: bytes."""
TOTALS = {"nvidia.com/gpumem": "nvidia.com/total-gpumem", "nvidia.com/gpucores": "nvidia.com/total-gpucores"}
"""HAMi's names say what each card gives; a quota counts all cards of a Pod."""


def install(cluster: Cluster) -> None:
    """Returns when its webhooks answer. It ends with the cluster."""
    module = binaries.source(binaries.KUEUE, toolchain.MODULES / COMPONENT)
    image = images.of_program(IMAGE, binaries.kueue(), "/manager")
    for node in cluster.nodes:
        node.import_images([image])
    where = ("--namespace", NAMESPACE, "--create-namespace")
    options = ("--values", "-", "--wait", "--timeout", "240s")
    chart = str(module / "charts" / "kueue")
    cluster.helm("upgrade", "--install", COMPONENT, chart, *where, *options, input=json.dumps(values()))
    cluster.kubectl("delete", "apiservices", "-l", f"app.kubernetes.io/instance={COMPONENT}")


def values() -> dict[str, Any]:
    """Of its chart: the image that is here, a Pod that this cluster has room for, soon ready."""
    repository, tag = IMAGE.split(":")
    manager = {
        "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
        "podSecurityContext": {"runAsUser": 65534},
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
    }
    gates = [
        {"name": "KueueDRAIntegrationConsumableCapacity", "enabled": True},
        {"name": "VisibilityOnDemand", "enabled": False},
    ]
    return {
        "controllerManager": {
            "manager": manager,
            "featureGates": gates,
            "readinessProbe": {"initialDelaySeconds": 1, "periodSeconds": 1},
        },
        "managerConfig": {"controllerManagerConfigYaml": yaml.safe_dump(configuration())},
    }


def configuration() -> dict[str, Any]:
    """Its settings as claim_mutator/README.md tells them: HAMi's names where it reads what an author wrote,
    our capacities where it reads Pods, which are converted by then.
    """
    transformations = [
        {"input": name, "strategy": "Replace", "multiplyBy": "nvidia.com/gpu", "outputs": {total: "1"}}
        for name, total in TOTALS.items()
    ]
    every = {"cel": {"expression": "true"}}
    capacity = {"name": "memory", "driver": "gpu.tessera.dev", "deviceSelector": every}
    mapping = {
        "name": MEMORY,
        "deviceClassNames": ["gpu.tessera.dev"],
        "sources": [{"capacity": capacity}],
    }
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": ":8081"},
        "metrics": {"bindAddress": ":8443"},
        "webhook": {"port": 9443},
        "leaderElection": {"leaderElect": False},
        "integrations": {"frameworks": ["batch/job", "pod"]},
        "resources": {"transformations": transformations, "deviceClassMappings": [mapping]},
    }
