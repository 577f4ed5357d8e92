"""A converted Pod that is updated from its old manifest (`kubectl apply`, `replace`) stays as it is. Pure.

The manifest still has the names that the conversion took away, and most of a Pod can't be changed: without us
the server would refuse the second `apply` of a manifest that nobody has touched. So what the conversion had
made of the Pod is put back, and nothing else; a real change is the server's to judge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from claim_mutator import metadata as metadata_keys
from claim_mutator import pod
from claim_mutator.cluster import Cluster
from claim_mutator.conversion import convert
from claim_mutator.patch import DEFAULT_SCHEDULER, Operation
from claim_mutator.refusal import Refused
from claim_mutator.rules import Policy, Rules
from claim_mutator.template import NAME_PREFIX

_GROUPS = ("initContainers", "containers")


def restored(new: Mapping[str, Any], old: Mapping[str, Any], rules: Rules) -> list[Operation]:
    """Empty for a Pod that we did not convert, or that has none of the names."""
    spec, held = _map(new, "spec"), _map(old, "spec")
    if not template_names(old) or not _has_names(spec, rules):
        return []
    changes: list[Operation] = []
    for group in _GROUPS:
        before = {_name(each): each for each in _maps(held, group)}
        for index, container in enumerate(_maps(spec, group)):
            if (same := before.get(_name(container))) is not None:
                for field in ("resources", "env"):
                    changes += _put_back(f"/spec/{group}/{index}", field, container, same)
    if set(template_names(old)) - set(template_names(new)):
        changes += _put_back("/spec", "resourceClaims", spec, held)
    if spec.get("schedulerName") in rules.schedulers and held.get("schedulerName") == DEFAULT_SCHEDULER:
        changes += _put_back("/spec", "schedulerName", spec, held)
    if rules.runtime_class and held.get("runtimeClassName") == rules.runtime_class:
        changes += _put_back("/spec", "runtimeClassName", spec, held)
    if rules.node_name is Policy.CONVERT:
        for field in ("nodeName", "affinity"):
            changes += _put_back("/spec", field, spec, held)
    for where in ("annotations", "labels"):
        for key in metadata_keys.stale(_map(_map(new, "metadata"), where)):
            path = f"/metadata/{where}/{key.replace('~', '~0').replace('/', '~1')}"
            changes.append({"op": "remove", "path": path})
    return changes


def warnings(
    new: Mapping[str, Any], old: Mapping[str, Any], rules: Rules, cluster: Cluster, namespace: str
) -> Sequence[str]:
    """Where the names now ask for something else than the Pod has."""
    try:
        wanted = convert(pod.from_manifest(new), rules, cluster, namespace).template
    except (Refused, msgspec.ValidationError):
        wanted = None
    if wanted is not None and wanted.name in template_names(old):
        return ()
    return ("the GPU resources of a Pod can't be changed, it keeps what it has: delete it, and make it anew",)


def template_names(document: Mapping[str, Any]) -> list[str]:
    """Of the templates of ours that a Pod has claims from."""
    names = (
        claim.get("resourceClaimTemplateName") for claim in _maps(_map(document, "spec"), "resourceClaims")
    )
    return [name for name in names if isinstance(name, str) and name.startswith(NAME_PREFIX)]


def _has_names(spec: Mapping[str, Any], rules: Rules) -> bool:
    return any(
        name in rules.names.roles
        for group in _GROUPS
        for container in _maps(spec, group)
        for where in ("limits", "requests")
        for name in _map(_map(container, "resources"), where)
    )


def _put_back(
    base: str, field: str, now: Mapping[str, Any], before: Mapping[str, Any]
) -> Iterator[Operation]:
    if now.get(field) == before.get(field):
        return
    if field in before:
        yield {"op": "add", "path": f"{base}/{field}", "value": before[field]}
    elif field in now:
        yield {"op": "remove", "path": f"{base}/{field}"}


def _map(holder: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = holder.get(key)
    return found if isinstance(found, Mapping) else {}


def _maps(holder: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """All entries, so that indexes stay right; what is no map counts as empty."""
    found = holder.get(key)
    return [each if isinstance(each, Mapping) else {} for each in found] if isinstance(found, list) else []


def _name(container: Mapping[str, Any]) -> str:
    return str(container.get("name") or "")
