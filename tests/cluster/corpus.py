"""Manifests of tests/corpus as they can run on a test cluster, and the cards they were written for. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from claim_mutator import workload

MANIFESTS = Path(__file__).parents[1] / "corpus" / "manifests"
LABEL = "app=corpus"
_UUID = "GPU-aaaaaaaa-0000-4000-8000-{:012d}"  # as manifests name them
_OF_ELSEWHERE = ("nodeSelector", "runtimeClassName")  # of a cluster that this one isn't
_NATIVE = ("cpu", "memory", "ephemeral-storage")


def uuid(number: int) -> str:
    return _UUID.format(number)


@dataclass(frozen=True)
class Card:
    """memory: MiB. instances: MiB of each MIG instance that it is cut into."""

    product: str
    memory: int
    uuid: str
    numa: int = 0
    instances: tuple[int, ...] = ()


CARDS: dict[str, tuple[Card, ...]] = {
    "one": (Card("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, uuid(11)),),
    "eight": tuple(Card("NVIDIA H100 80GB HBM3", 81920, uuid(n), numa=(n - 1) // 4) for n in range(1, 9)),
    "mixed": (
        *(Card("NVIDIA L40S", 46068, uuid(20 + n)) for n in range(4)),
        Card("NVIDIA A10G", 23028, uuid(24)),
        Card("NVIDIA L4", 23034, uuid(25)),
    ),
    "instances": (Card("NVIDIA A100-SXM4-80GB", 81920, uuid(3), instances=(40192, 9728, 9728)),),
}


def inventory(cards: Sequence[Card]) -> str:
    """A file as tests/fakegpu reads it."""
    lines = ["[driver]", "version = 570.124.06", "cuda = 12.8"]
    for number, card in enumerate(cards):
        lines += ["", "[card]", f"name = {card.product}", f"uuid = {card.uuid}", f"memory = {card.memory}Mi"]
        lines += [f"pci = 0000:{number + 1:02x}:00.0", f"numa_node = {card.numa}", "sms = 108"]
        lines += ["compute_capability = 8.9", *(["mig = 1"] if card.instances else [])]
        for instance, memory in enumerate(card.instances, 1):
            lines += ["", "[mig]", f"profile = {memory // 9728}g.{memory // 1000}gb", f"gi = {instance}"]
            lines += [f"uuid = MIG-{card.uuid[4:-1]}{instance}", f"memory = {memory}Mi", "sms = 14"]
    return "\n".join(lines) + "\n"


def documents(manifest: str) -> list[dict[str, Any]]:
    """As they are; `manifest` is the file's name without its ending."""
    found = yaml.safe_load_all((MANIFESTS / f"{manifest}.yaml").read_text())
    return [document for document in found if document]


def pods(manifest: str) -> list[dict[str, Any]]:
    """A manifest's Pods as they are, but for the name where a controller would give one."""
    found: list[dict[str, Any]] = []
    for template in _templates(manifest):
        metadata = {"name": f"p-{len(found)}"} | (template.get("metadata") or {})
        found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    assert found, "this kind has no Pod template that could be found"
    return found


def runnable(manifest: str) -> list[dict[str, Any]]:
    """A manifest's Pods, with images that are here and a command that goes on; nothing else is changed."""
    found = pods(manifest)
    for number, pod in enumerate(found):
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"] = {"name": f"p-{number}", "labels": {"app": "corpus"}, "annotations": annotations}
        make_runnable(pod["spec"])
    return found


def make_runnable(spec: dict[str, Any]) -> None:
    spec |= {"terminationGracePeriodSeconds": 1}
    for what in _OF_ELSEWHERE:
        spec.pop(what, None)
    if "securityContext" in spec:
        spec["securityContext"]["runAsUser"] = 65534  # who the image would run as
    for group in ("initContainers", "containers"):
        for container in spec.get(group) or ():
            is_init = group == "initContainers" and container.get("restartPolicy") != "Always"
            _made_runnable(container, ends=is_init)
    for volume in spec.get("volumes") or ():
        for kind in [key for key in volume if key != "name"]:
            del volume[kind]
        volume["emptyDir"] = {}


def _made_runnable(container: dict[str, Any], *, ends: bool) -> None:
    for key in ("command", "args", "envFrom", "ports", "securityContext", "workingDir"):
        container.pop(key, None)
    for probe in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
        container.pop(probe, None)
    if "env" in container:
        container["env"] = [variable for variable in container["env"] if "valueFrom" not in variable]
    container |= {"image": "localhost/cuda-test:1", "imagePullPolicy": "IfNotPresent"}
    container["command"] = ["true"] if ends else ["sleep", "infinity"]
    resources = container.get("resources") or {}
    for where in ("limits", "requests"):
        for name in _NATIVE:
            (resources.get(where) or {}).pop(name, None)


def _templates(manifest: str) -> Iterator[dict[str, Any]]:
    """Also of what an operator makes Pods of, which has containers as a Pod has them."""
    for document in documents(manifest):
        for pointer in workload.templates(document):
            yield copy.deepcopy(workload.at(document, pointer))
        for pointer in () if workload.is_accounting(document) else workload.pod_specs(document):
            held = workload.at(document, pointer)
            yield {"spec": {"containers": copy.deepcopy(held["containers"])}}
