"""The JSON Patch that turns a Pod into its converted self: removes the old names, adds the claim. Pure.

Only what has to change is named, so everything else, fields that nobody here knows included, stays as it is
byte for byte. A converted Pod has nothing left to convert: applied again, the conversion is empty.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET

from claim_mutator.container import Reading
from claim_mutator.names import CLAIM
from claim_mutator.pod import Container, Pod
from claim_mutator.refusal import Pointer
from claim_mutator.shape import Assignment
from claim_mutator.template import Template

Operation: TypeAlias = dict[str, Any]

HAMI_SCHEDULER = "hami-scheduler"
PRIORITY_VARIABLE = "CUDA_TASK_PRIORITY"


def operations(
    pod: Pod, readings: Sequence[Reading], assignment: Assignment | None, template: Template | None
) -> list[Operation]:
    """In the order in which they are to be applied."""
    containers: dict[Pointer, Container] = {
        ("spec", group, index): container for group, index, container in pod.all_containers()
    }
    claim = _claim_name(pod)
    requests: dict[int, tuple[str, ...]] = {}
    if assignment is not None and template is not None:
        requests = {id(reading): template.request_names[share] for reading, share in assignment.users}
    changes: list[Operation] = []
    for reading in readings:
        if not reading.keys:
            continue
        base = _path(*reading.pointer)
        container = containers[reading.pointer]
        changes += _without_keys(base, container, reading)
        changes += _with_claims(base, container, claim, requests.get(id(reading), ()))
        changes += _with_priority(base, container, reading.priority)
    if requests and template is not None:
        changes += _pod_claim(pod, {"name": claim, "resourceClaimTemplateName": template.name})
    if changes and pod.spec.scheduler_name == HAMI_SCHEDULER:
        changes.append({"op": "replace", "path": "/spec/schedulerName", "value": "default-scheduler"})
    return changes


def apply(document: Any, changes: Sequence[Operation]) -> Any:
    """A changed copy of a parsed Pod; knows the operations that `operations` makes, and their paths."""
    document = copy.deepcopy(document)
    for change in changes:
        *parents, last = [_unescaped(step) for step in change["path"].split("/")[1:]]
        target = document
        for step in parents:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if change["op"] == "remove":
            del target[last]
        elif not isinstance(target, list):
            target[last] = change["value"]
        elif last == "-":
            target.append(change["value"])
        else:
            target[int(last)] = change["value"]
    return document


def _without_keys(base: str, container: Container, reading: Reading) -> list[Operation]:
    """Removes our names; a map that held nothing else goes whole."""
    changes = []
    for where in ("limits", "requests"):
        ours = [key for place, key in reading.keys if place == where]
        if not ours:
            continue
        held = getattr(container.resources, where)
        if len(ours) == len(held):
            changes.append({"op": "remove", "path": f"{base}/resources/{where}"})
        else:
            changes += [{"op": "remove", "path": f"{base}/resources/{where}/{_escaped(key)}"} for key in ours]
    return changes


def _with_claims(base: str, container: Container, claim: str, requests: Sequence[str]) -> list[Operation]:
    if not requests:
        return []
    entries = [{"name": claim, "request": request} for request in requests]
    held = getattr(container.resources, "claims", UNSET)
    if held is UNSET or held is None:
        return [{"op": "add", "path": f"{base}/resources/claims", "value": entries}]
    return [{"op": "add", "path": f"{base}/resources/claims/-", "value": entry} for entry in entries]


def _with_priority(base: str, container: Container, priority: int | None) -> list[Operation]:
    """HAMi's variable, for programs that read it; what counts is the class."""
    if priority is None:
        return []
    variable: Mapping[str, str] = {"name": PRIORITY_VARIABLE, "value": str(priority)}
    if not container.env:
        return [{"op": "add", "path": f"{base}/env", "value": [variable]}]
    for index, held in enumerate(container.env):
        if held.name == PRIORITY_VARIABLE:
            return [{"op": "replace", "path": f"{base}/env/{index}", "value": variable}]
    return [{"op": "add", "path": f"{base}/env/-", "value": variable}]


def _pod_claim(pod: Pod, entry: Mapping[str, str]) -> list[Operation]:
    if pod.spec.resource_claims is UNSET or pod.spec.resource_claims is None:
        return [{"op": "add", "path": "/spec/resourceClaims", "value": [entry]}]
    return [{"op": "add", "path": "/spec/resourceClaims/-", "value": entry}]


def _claim_name(pod: Pod) -> str:
    """`tessera`, or the first of tessera-2, … that the Pod has no claim of already."""
    taken = {claim.name for claim in pod.spec.resource_claims or ()}
    name, number = CLAIM, 1
    while name in taken:
        number += 1
        name = f"{CLAIM}-{number}"
    return name


def _path(*steps: str | int) -> str:
    return "".join(f"/{_escaped(str(step))}" for step in steps)


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")
