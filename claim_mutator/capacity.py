"""Whether the API server keeps what a claim asks of a card. Pure.

Where the feature gate is off, a request loses its capacity without a word, and whoever asked for a share gets
a whole card. It is off by default before 1.36, and an administrator may switch it off later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claim_mutator.names import CAPACITY_MEMORY, DEVICE_CLASS

GATE = "DRAConsumableCapacity"
DROPPED = (
    f"this Kubernetes drops the memory and compute that claims ask for, as its feature gate {GATE} is off,"
    " and each share would be a whole card: switch it on for kube-apiserver, kube-controller-manager,"
    " kube-scheduler and the kubelets"
)


def probe() -> dict[str, Any]:
    """A template with a share, for a dry run."""
    request = {"deviceClassName": DEVICE_CLASS, "capacity": {"requests": {CAPACITY_MEMORY: "1Gi"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"generateName": "tessera-probe-"},
        "spec": {"spec": {"devices": {"requests": [{"name": "share", "exactly": request}]}}},
    }


def is_dropped(stored: Mapping[str, Any]) -> bool:
    """stored: how the server answered the probe."""
    (request,) = stored["spec"]["spec"]["devices"]["requests"]
    return not request["exactly"].get("capacity")
