"""The JSON Patch that turns a Pod into its converted self: removes the old names, adds the claim. Pure.

Only what has to change is named, so everything else, fields that nobody here knows included, stays as it is
byte for byte. A converted Pod has nothing left to convert: applied again, the conversion is empty.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET

from claim_mutator import metadata as metadata_keys
from claim_mutator.container import Reading
from claim_mutator.names import CLAIM
from claim_mutator.pod import Container, Pod
from claim_mutator.refusal import Pointer
from claim_mutator.rules import Policy, Rules
from claim_mutator.template import Template
from claim_mutator.terms import PRIORITY

Operation: TypeAlias = dict[str, Any]

DEFAULT_SCHEDULER = "default-scheduler"
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def operations(
    pod: Pod,
    readings: Sequence[Reading],
    rules: Rules,
    template: Template | None = None,
    requests: Mapping[Pointer, Sequence[str]] | None = None,
) -> list[Operation]:
    """In the order in which they are to be applied. requests: of the template, by container."""
    containers: dict[Pointer, Container] = {
        ("spec", group, index): container for group, index, container in pod.all_containers()
    }
    claim, requests = _claim_name(pod), requests or {}
    changes: list[Operation] = []
    for reading in readings:
        base, container = _path(*reading.pointer), containers[reading.pointer]
        names = requests.get(reading.pointer, ())
        if reading.keys:
            changes += _without_keys(base, container, reading)
            changes += _with_claims(base, container, claim, names)
        changes += _with_variables(base, container, _variables(reading, container, rules, bool(names)))
    if not any(reading.keys for reading in readings):
        return []
    if template is not None:
        changes += _pod_claim(pod, {"name": claim, "resourceClaimTemplateName": template.name})
        if rules.runtime_class and not pod.spec.runtime_class_name:
            changes.append({"op": "add", "path": "/spec/runtimeClassName", "value": rules.runtime_class})
        if pod.spec.node_name and rules.node_name is Policy.CONVERT:
            changes += _scheduled_to(pod, pod.spec.node_name)
    if pod.spec.scheduler_name in rules.schedulers:
        changes.append({"op": "replace", "path": "/spec/schedulerName", "value": DEFAULT_SCHEDULER})
    return changes + _without_stale(pod)


def _variables(reading: Reading, container: Container, rules: Rules, has_cards: bool) -> dict[str, str]:
    """HAMi's own, for programs that read it (what counts is the class); and what hides cards of the node."""
    found: dict[str, str] = {}
    if reading.priority is not None:
        found[PRIORITY] = str(reading.priority)
    if rules.hide_cards and not has_cards and not container.has_claims:
        found[VISIBLE_DEVICES] = "none"
    return found


def _scheduled_to(pod: Pod, node: str) -> list[Operation]:
    """The scheduler has to allocate cards, so it gets the node as its only choice."""
    changes: list[Operation] = [{"op": "remove", "path": "/spec/nodeName"}]
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    selector = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    path, affinity = "/spec/affinity", pod.spec.affinity
    if not affinity:
        value: Any = {"nodeAffinity": {_REQUIRED: selector}}
        return [*changes, {"op": "add", "path": path, "value": value}]
    path += "/nodeAffinity"
    if not affinity.node_affinity:
        return [*changes, {"op": "add", "path": path, "value": {_REQUIRED: selector}}]
    path += f"/{_REQUIRED}"
    required = affinity.node_affinity.required
    if not required or not required.node_selector_terms:
        return [*changes, {"op": "add", "path": path, "value": selector}]
    for index, term in enumerate(required.node_selector_terms):  # one of them has to hold: so each gets it
        fields = f"{path}/nodeSelectorTerms/{index}/matchFields"
        if term.match_fields:
            changes.append({"op": "add", "path": f"{fields}/-", "value": field})
        else:
            changes.append({"op": "add", "path": fields, "value": [field]})
    return changes


def _without_stale(pod: Pod) -> list[Operation]:
    """What HAMi wrote about another Pod's cards."""
    metadata = pod.metadata
    if metadata is None:
        return []
    return [
        {"op": "remove", "path": _path("metadata", where, key)}
        for where, held in (("annotations", metadata.annotations), ("labels", metadata.labels))
        for key in metadata_keys.stale(held)
    ]


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


def _with_variables(base: str, container: Container, variables: Mapping[str, str]) -> list[Operation]:
    """Each in the place of the entry that counts, the last of its name, or behind all others."""
    entries = [{"name": name, "value": value} for name, value in variables.items()]
    if entries and not container.env:
        return [{"op": "add", "path": f"{base}/env", "value": entries}]
    changes: list[Operation] = []
    for entry in entries:
        held = [index for index, each in enumerate(container.env or ()) if each.name == entry["name"]]
        where = (
            {"op": "replace", "path": f"{base}/env/{held[-1]}"}
            if held
            else {
                "op": "add",
                "path": f"{base}/env/-",
            }
        )
        changes.append(where | {"value": entry})
    return changes


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
