"""Short ways to write Pods in tests."""

from __future__ import annotations

from typing import Any

from claim_mutator import pod
from claim_mutator.cluster import Cluster
from claim_mutator.container import Reading, read
from claim_mutator.conversion import Conversion, convert
from claim_mutator.rules import Rules

GI = 1 << 30
TWO_SIZES = Cluster(card_sizes=(24 * GI, 80 * GI))
ONE_SIZE = Cluster(card_sizes=(40 * GI,))

_SHORT = {"gpu", "gpumem", "gpumem-percentage", "gpucores", "priority"}


def limits(**quantities: Any) -> dict[str, Any]:
    """`gpu=1, gpumem=3000, gpumem_percentage=50` → the keys that HAMi uses."""
    named = {key.replace("_", "-"): value for key, value in quantities.items()}
    return {f"nvidia.com/{key}" if key in _SHORT else key: value for key, value in named.items()}


def container(name: str = "work", /, **quantities: Any) -> dict[str, Any]:
    """A container with these limits; requests as the API server defaults them."""
    found = limits(**quantities)
    return {"name": name, "image": "i", "resources": {"limits": found, "requests": dict(found)}}


def manifest(*containers: dict[str, Any], **spec: Any) -> dict[str, Any]:
    annotations = spec.pop("annotations", None)
    metadata: dict[str, Any] = {"name": "p", "namespace": "n"}
    if annotations is not None:
        metadata["annotations"] = annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": list(containers), **spec},
    }


def converted(
    document: dict[str, Any], cluster: Cluster = TWO_SIZES, rules: Rules | None = None
) -> Conversion:
    return convert(pod.from_manifest(document), rules or Rules(), cluster)


def reading(document: dict[str, Any], rules: Rules | None = None) -> Reading:
    """Of the first container."""
    group, index, found = next(iter(pod.from_manifest(document).all_containers()))
    return read(group, index, found, rules or Rules())
