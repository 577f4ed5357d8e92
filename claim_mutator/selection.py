"""HAMi's annotations on a Pod → which cards it may have (CEL), and what of them has no effect here. Pure.

The expressions never raise, whatever attributes a device has or lacks: an error in one would stop the Pod's
scheduling on every node.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from claim_mutator.names import DRIVER, ResourceNames
from claim_mutator.refusal import Problem

USE_UUID = "nvidia.com/use-gpuuuid"
NO_USE_UUID = "nvidia.com/nouse-gpuuuid"
USE_TYPE = "nvidia.com/use-gputype"
NO_USE_TYPE = "nvidia.com/nouse-gputype"
NUMA_BIND = "nvidia.com/numa-bind"
MODE = "nvidia.com/vgpu-mode"

_LONGEST_EXPRESSION = 10 * 1024  # bytes: the API's limit
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False", "")
_PLACEMENT = {
    "hami.io/gpu-scheduler-policy": "the order of a node's cards is set for the cluster (placement)",
    "hami.io/node-scheduler-policy": "nodes are chosen by the Kubernetes scheduler; use affinity",
    "hami.io/device-scoring-weights": "cards are not scored; their order is set for the cluster (placement)",
}


@dataclass(frozen=True)
class Selection:
    """`selectors` are CEL expressions that all have to hold for a card."""

    selectors: tuple[str, ...] = ()
    same_numa_node: bool = False
    problems: tuple[Problem, ...] = ()
    warnings: tuple[str, ...] = ()


def read(annotations: Mapping[str, str], names: ResourceNames) -> Selection:
    """Never raises: what can't be honoured is in `problems`, what has no effect in `warnings`."""
    uuid, product = _attribute("uuid"), _attribute("productName")
    selectors = []
    for key, exclude in ((USE_UUID, False), (NO_USE_UUID, True)):
        if terms := _terms(annotations.get(key)):
            selectors.append(_either(uuid, f"{uuid} in [{', '.join(map(cel_string, terms))}]", exclude))
    for key, exclude in ((USE_TYPE, False), (NO_USE_TYPE, True)):
        if terms := _terms(annotations.get(key)):
            # HAMi shows types as NVIDIA-<product>, and people copy them from there.
            shown = f'("nvidia-" + {product}.lowerAscii())'
            found = (f"{shown}.contains({cel_string(_lower(term))})" for term in terms)
            selectors.append(_either(product, f"({' || '.join(found)})", exclude))
    numa_bind = annotations.get(NUMA_BIND, "")
    return Selection(
        tuple(selectors),
        numa_bind in _TRUE,
        tuple(_problems(annotations, selectors, numa_bind)),
        tuple(_warnings(annotations, names)),
    )


def _problems(annotations: Mapping[str, str], selectors: list[str], numa_bind: str) -> list[Problem]:
    problems = []
    if numa_bind not in _TRUE + _FALSE:
        problems.append(_problem(NUMA_BIND, numa_bind, "is not a truth value: write true or false"))
    mode = annotations.get(MODE, "").strip()
    if mode and "hami-core" not in mode:
        problems.append(
            _problem(MODE, mode, "is not offered here: write hami-core, or remove the annotation")
        )
    if any(len(selector.encode()) > _LONGEST_EXPRESSION for selector in selectors):
        longest = max(
            (USE_UUID, NO_USE_UUID, USE_TYPE, NO_USE_TYPE), key=lambda key: len(annotations.get(key, ""))
        )
        problems.append(_problem(longest, annotations[longest][:40] + "…", "is too long: list fewer cards"))
    return problems


def _warnings(annotations: Mapping[str, str], names: ResourceNames) -> list[str]:
    warnings = [
        f"annotation {key}: {annotations[key]} has no effect: {instead}"
        for key, instead in _PLACEMENT.items()
        if annotations.get(key)
    ]
    warnings += [
        f"annotation {key} has no effect: write {key}: {annotations[key]} into resources.limits"
        for key in names.roles
        if key in annotations
    ]
    return warnings


def _problem(key: str, value: str, reason: str) -> Problem:
    return Problem(("metadata", "annotations", key), f"annotation {key}: {value} {reason}")


def _attribute(name: str) -> str:
    return f"device.attributes[{cel_string(DRIVER)}].{name}"


def _either(attribute: str, condition: str, exclude: bool) -> str:
    expression = f"has({attribute}) && {condition}"
    return f"!({expression})" if exclude else expression


def _terms(value: str | None) -> list[str]:
    return [term.strip() for term in (value or "").split(",") if term.strip()]


def _lower(text: str) -> str:
    """As CEL's lowerAscii: other letters stay."""
    return "".join(char.lower() if char.isascii() else char for char in text)


def cel_string(text: str) -> str:
    """A JSON string is a CEL string, as long as it has no surrogate pairs."""
    return json.dumps(text, ensure_ascii=False)
