"""charts/tessera of this working tree, as a test cluster installs it: pure functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.cluster import images

CHART = Path(__file__).resolve().parents[2] / "charts" / "tessera"
NAMESPACE = "tessera-system"
GPU_POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "webhook-answers", "namespace": "default"},
    "spec": {
        "containers": [
            {"name": "c", "image": "localhost/none", "resources": {"limits": {"nvidia.com/gpu": 1}}}
        ]
    },
}
"""What the webhook is called for."""


def upgrade(timeout: str) -> list[str]:
    """helm's arguments: installs or upgrades with the values on its stdin, and waits until it is ready."""
    where = ["--namespace", NAMESPACE, "--create-namespace"]
    return [
        "upgrade",
        "--install",
        "tessera",
        str(CHART),
        *where,
        "--values",
        "-",
        "--wait",
        "--timeout",
        timeout,
    ]


def values(driver_root: str) -> dict[str, Any]:
    """What the chart has to be told on a test cluster: the image that is on the nodes, the fake driver."""
    image = {"repository": "localhost/tessera", "tag": images.project_version(), "pullPolicy": "Never"}
    return {
        "image": image,
        "driver": {"driverRoot": driver_root, "sysRoot": f"{driver_root}/sys"},
        "mutator": {"replicas": 1},
    }


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Values over values, maps key by key, as Helm does."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return merged
