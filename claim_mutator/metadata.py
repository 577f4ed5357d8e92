"""Annotations and labels that HAMi's users write, those that HAMi wrote, and keys that look alike. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping

from claim_mutator.names import IGNORE_LABELS, ResourceNames
from claim_mutator.pod import Pod
from claim_mutator.refusal import Notice, annotation
from claim_mutator.spelling import intended

USE_UUID = "nvidia.com/use-gpuuuid"
NO_USE_UUID = "nvidia.com/nouse-gpuuuid"
USE_TYPE = "nvidia.com/use-gputype"
NO_USE_TYPE = "nvidia.com/nouse-gputype"
NUMA_BIND = "nvidia.com/numa-bind"
MODE = "nvidia.com/vgpu-mode"
CARD_POLICY = "hami.io/gpu-scheduler-policy"
NODE_POLICY = "hami.io/node-scheduler-policy"
WEIGHTS = "hami.io/device-scoring-weights"

KNOWN = (USE_UUID, NO_USE_UUID, USE_TYPE, NO_USE_TYPE, NUMA_BIND, MODE, CARD_POLICY, NODE_POLICY, WEIGHTS)

_UNSUPPORTED = {
    "nvidia.com/mig-profile-preference": "the smallest MIG instance that has the memory is taken; write"
    " gpumem for the size that is wanted",
    "hami.io/vulkan": "limits hold for CUDA; Vulkan is not limited",
}
_STALE = re.compile(
    r"hami\.io/(vgpu-node|vgpu-time|bind-time|bind-phase|vgpu-mig-allocations|.+-devices-(to-)?allocated?)"
)
_DOMAINS = ("nvidia.com", "hami.io")
_ALIKE = 0.85


def stale(keys: Mapping[str, str] | None) -> list[str]:
    """What HAMi's scheduler wrote on another Pod, and a copy brought along. As input it is never trusted."""
    return [key for key in keys or () if _STALE.fullmatch(key)]


def notices(pod: Pod, names: ResourceNames) -> Iterator[Notice]:
    """Keys of a Pod's metadata that have no effect where they are, or as they are written."""
    for key, value in pod.annotations.items():
        if text := _useless(key, value, names):
            yield Notice(annotation(key), f"annotation {key}{text}")
    for key in pod.labels:
        if key in KNOWN:
            yield Notice(
                ("metadata", "labels", key),
                f"label {key} has no effect: write it into metadata.annotations",
            )
    if found := [*stale(pod.annotations), *stale(pod.labels)]:
        yield Notice(
            ("metadata",),
            f"{', '.join(dict.fromkeys(found))} removed: HAMi wrote it for another Pod, nobody reads it here",
        )


def resources(pod: Pod, names: ResourceNames) -> Iterator[Notice]:
    """Amounts that a Pod without any in its containers has in its annotations."""
    for key, value in pod.annotations.items():
        if key in names.roles:
            yield Notice(annotation(key), f"annotation {key}{_useless(key, value, names)}")


def misplaced(annotations: Mapping[str, str], labels: Mapping[str, str], inner: Pod) -> list[tuple[str, str]]:
    """("annotations", key), ("labels", key) of a workload that only its Pod template could give effect."""
    return [
        *(("annotations", key) for key in KNOWN if key in annotations and key not in inner.annotations),
        *(("labels", key) for key in IGNORE_LABELS if key in labels and key not in inner.labels),
    ]


def _useless(key: str, value: str, names: ResourceNames) -> str | None:
    """What to say of the annotation, after its name; None if it is in order, or somebody else's."""
    if key in KNOWN or _STALE.fullmatch(key):
        return None
    if key in names.roles:
        return f" has no effect: write {key}: {value} into resources.limits"
    if key in _UNSUPPORTED:
        return f": {value} has no effect: {_UNSUPPORTED[key]}"
    if key in IGNORE_LABELS:
        return f" has no effect: write {key}: {value} into metadata.labels"
    domain, _, name = key.partition("/")
    if not name or (domain not in _DOMAINS and domain not in names.domains):
        return None
    for other in sorted(names.domains):
        resource = f"{other}/{name}"
        meant = resource if resource in names.roles else intended(resource, names, beside_ours=False)
        if meant is not None:
            return f" has no effect: write {meant} into resources.limits"
    if meant := _alike(key, name):
        return f" is not a name that is known here: write {meant}"
    return None


def _alike(key: str, name: str) -> str | None:
    for known in KNOWN:
        if known.partition("/")[2] == name.lower():
            return known
    return next(iter(difflib.get_close_matches(key.lower(), KNOWN, n=1, cutoff=_ALIKE)), None)
