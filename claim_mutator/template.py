"""Shape → the spec of its ResourceClaimTemplate, and its name. Pure; equal shapes give equal bytes.

Names follow the content, so all replicas of a workload, and all workloads of a namespace that ask for the
same, share one template, and nobody has to remember which is whose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from claim_mutator.container import Percent, Request
from claim_mutator.names import (
    CAPACITY_CORES,
    CAPACITY_MEMORY,
    CAPACITY_SHARES,
    CONFIG_API_VERSION,
    DEVICE_CLASS,
    DRIVER,
    MANAGED_BY,
    MEBIBYTE,
    MUTATOR,
    WHOLE_CARD_SHARES,
)
from claim_mutator.selection import cel_string
from claim_mutator.shape import Shape, Share
from kube.quantity import format_bytes, format_number

NAME_PREFIX = "tessera-"
_GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Cluster:
    """What a template depends on beside the shape."""

    card_sizes: tuple[int, ...] = ()
    """Memory of the cluster's cards as published, bytes, ascending, each size once."""
    counts_are_distinct: bool = True
    """Whether `count: N` gives N different cards: from Kubernetes 1.36 on."""
    device_class: str = DEVICE_CLASS


@dataclass(frozen=True)
class Template:
    """A ResourceClaimTemplate without its namespace."""

    name: str
    spec: dict[str, Any]
    request_names: tuple[tuple[str, ...], ...]
    """For each share of the shape the names of the requests that a container refers to."""

    def document(self, namespace: str, *, managed: bool = True) -> dict[str, Any]:
        """managed: by the mutator, whose keeper removes it when no Pod uses it."""
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": self.name,
                **({"namespace": namespace} if namespace else {}),
                **({"labels": {MANAGED_BY: MUTATOR}} if managed else {}),
            },
            "spec": self.spec,
        }


def template_of(shape: Shape, cluster: Cluster) -> Template:
    """Percentages must be resolvable: at least one card size, at most eight."""
    requests: list[dict[str, Any]] = []
    constraints: list[dict[str, Any]] = []
    config: list[dict[str, Any]] = []
    request_names: list[tuple[str, ...]] = []
    for index, share in enumerate(shape.shares):
        names, each = _request_names(index, share.request.count, cluster)
        request_names.append(names)
        requests += [_request(name, each, share.request, shape, cluster) for name in names]
        if share.request.count > 1:
            constraints.append({"requests": list(names), "distinctAttribute": f"{DRIVER}/uuid"})
            if shape.same_numa_node:
                constraints.append({"requests": list(names), "matchAttribute": f"{DRIVER}/numaNode"})
        if share.caps:
            config.append({"requests": list(names), "opaque": _caps(share)})
    devices: dict[str, Any] = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    if config:
        devices["config"] = config
    spec = {"spec": {"devices": devices}}
    digest = hashlib.sha256(canonical(spec)).hexdigest()
    return Template(NAME_PREFIX + digest[:16], spec, tuple(request_names))


def canonical(spec: dict[str, Any]) -> bytes:
    """JSON with sorted keys, no spaces, UTF-8."""
    return msgspec.json.encode(spec, order="sorted")


def _request_names(index: int, count: int, cluster: Cluster) -> tuple[tuple[str, ...], int]:
    """The names, and how many cards each of them has."""
    if count == 1 or cluster.counts_are_distinct:
        return (f"g{index}",), count
    return tuple(f"g{index}-{card}" for card in range(count)), 1


def _request(name: str, count: int, request: Request, shape: Shape, cluster: Cluster) -> dict[str, Any]:
    common = {"deviceClassName": cluster.device_class, "allocationMode": "ExactCount", "count": count}
    if not isinstance(request.memory, Percent):
        amounts = _selectors(shape.selectors) | _capacity(request.memory, request.cores)
        return {"name": name, "exactly": common | amounts}
    alternatives = []
    for size in cluster.card_sizes:
        share = max(1, size // MEBIBYTE * request.memory.value // 100)
        amounts = _selectors((_of_size(size), *shape.selectors)) | _capacity(share, request.cores)
        alternatives.append({"name": _size_name(size)} | common | amounts)
    return {"name": name, "firstAvailable": alternatives}


def _selectors(expressions: Sequence[str]) -> dict[str, Any]:
    return {"selectors": [{"cel": {"expression": text}} for text in expressions]} if expressions else {}


def _capacity(memory: int | None, cores: int) -> dict[str, Any]:
    """What is not mentioned takes the slice's default: all memory, no cores, the smallest share."""
    requests: dict[str, str] = {}
    if memory is not None:
        requests[CAPACITY_MEMORY] = format_bytes(memory * MEBIBYTE)
    if cores:
        requests[CAPACITY_CORES] = format_number(cores)
    if cores == 100:  # HAMi: needs an idle card, and nobody joins
        requests[CAPACITY_SHARES] = format_number(WHOLE_CARD_SHARES)
    return {"capacity": {"requests": requests}} if requests else {}


def _of_size(size: int) -> str:
    memory = f"device.capacity[{cel_string(DRIVER)}].{CAPACITY_MEMORY}"
    return f"has({memory}) && {memory}.compareTo(quantity({cel_string(format_bytes(size))})) == 0"


def _size_name(size: int) -> str:
    """s80 for 80 GiB, s24564mi for what is no whole number of GiB."""
    return f"s{size // _GIBIBYTE}" if size % _GIBIBYTE == 0 else f"s{size // MEBIBYTE}mi"


def _caps(share: Share) -> dict[str, Any]:
    caps = []
    for cap in share.caps:
        entry: dict[str, Any] = {"container": cap.container}
        if cap.memory is not None:
            entry["memory"] = format_bytes(cap.memory * MEBIBYTE)
        if cap.cores is not None:
            entry["cores"] = cap.cores
        caps.append(entry)
    parameters = {"apiVersion": CONFIG_API_VERSION, "kind": "ShareConfig", "caps": caps}
    return {"driver": DRIVER, "parameters": parameters}
