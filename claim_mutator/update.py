"""A converted Pod that is updated from its old manifest (`kubectl apply`, `replace`) stays as it is. Pure.

The manifest still has the names that the conversion took away, and most of a Pod can't be changed: without us
the server would refuse the second `apply` of a manifest that nobody has touched. So what the conversion had
made of the Pod is put back, and nothing else; a real change is the server's to judge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from claim_mutator import metadata as metadata_keys
from claim_mutator import pod
from claim_mutator.cluster import Cluster
from claim_mutator.conversion import convert
from claim_mutator.names import Role
from claim_mutator.patch import DEFAULT_SCHEDULER, VISIBLE_DEVICES, Operation
from claim_mutator.refusal import Refused
from claim_mutator.rules import Policy, Rules
from claim_mutator.template import NAME_PREFIX
from claim_mutator.terms import PRIORITY

_GROUPS = ("initContainers", "containers")


def restored(new: Mapping[str, Any], old: Mapping[str, Any], rules: Rules) -> list[Operation]:
    """Empty for a Pod that we did not convert, or that has none of the names."""
    spec, held = _map(new, "spec"), _map(old, "spec")
    if not template_names(old) or not _has_names(spec, rules):
        return []
    claims = {_name(claim) for claim in _maps(held, "resourceClaims") if _is_ours(claim)}
    changes: list[Operation] = []
    for group in _GROUPS:
        before = {_name(each): each for each in _maps(held, group)}
        for index, container in enumerate(_maps(spec, group)):
            if (same := before.get(_name(container))) is not None:
                changes += _container(f"/spec/{group}/{index}", container, same, rules, claims)
    if _without(_maps(spec, "resourceClaims"), claims) == _without(_maps(held, "resourceClaims"), claims):
        changes += _put_back("/spec", "resourceClaims", spec, held)
    if spec.get("schedulerName") in rules.schedulers and held.get("schedulerName") == DEFAULT_SCHEDULER:
        changes += _put_back("/spec", "schedulerName", spec, held)
    if held.get("runtimeClassName") == rules.runtime_class and not spec.get("runtimeClassName"):
        changes += _put_back("/spec", "runtimeClassName", spec, held)
    if rules.node_name is Policy.CONVERT:
        for field in ("nodeName", "affinity"):
            changes += _put_back("/spec", field, spec, held)
    for where in ("annotations", "labels"):
        for key in metadata_keys.stale(_map(_map(new, "metadata"), where)):
            path = f"/metadata/{where}/{key.replace('~', '~0').replace('/', '~1')}"
            changes.append({"op": "remove", "path": path})
    return changes


def _container(
    base: str, now: Mapping[str, Any], before: Mapping[str, Any], rules: Rules, claims: Collection[str]
) -> Iterator[Operation]:
    """What else has changed in a field is a real change: then all of it stays for the server to refuse."""
    if _other_resources(now, rules, claims) == _other_resources(before, rules, claims):
        yield from _put_back(base, "resources", now, before)
    variables = {VISIBLE_DEVICES} if rules.hide_cards else set()
    limits = _map(_map(now, "resources"), "limits")
    if any(rules.names.roles.get(name) is Role.PRIORITY for name in limits):
        variables.add(PRIORITY)
    if _without(_maps(now, "env"), variables) == _without(_maps(before, "env"), variables):
        yield from _put_back(base, "env", now, before)


def _other_resources(container: Mapping[str, Any], rules: Rules, claims: Collection[str]) -> list[Any]:
    held = _map(container, "resources")
    amounts = [
        {name: amount for name, amount in _map(held, where).items() if name not in rules.names.roles}
        for where in ("limits", "requests")
    ]
    return [*amounts, _without(_maps(held, "claims"), claims)]


def _without(entries: list[Mapping[str, Any]], names: Collection[str]) -> list[Mapping[str, Any]]:
    return [each for each in entries if _name(each) not in names]


def warnings(
    new: Mapping[str, Any], old: Mapping[str, Any], rules: Rules, cluster: Cluster, namespace: str
) -> Sequence[str]:
    """Where the names now ask for something else than the Pod has."""
    spec = dict(_map(new, "spec"))
    spec.pop("nodeName", None)  # by now the scheduler has written one, which is no preset
    try:
        wanted = convert(pod.from_manifest({**new, "spec": spec}), rules, cluster, namespace).template
    except (Refused, msgspec.ValidationError):
        wanted = None
    if wanted is not None and wanted.name in template_names(old):
        return ()
    return ("the GPU resources of a Pod can't be changed, it keeps what it has: delete it, and make it anew",)


def template_names(document: Mapping[str, Any]) -> list[str]:
    """Of the templates of ours that a Pod has claims from."""
    claims = _maps(_map(document, "spec"), "resourceClaims")
    return [str(claim["resourceClaimTemplateName"]) for claim in claims if _is_ours(claim)]


def _is_ours(claim: Mapping[str, Any]) -> bool:
    return str(claim.get("resourceClaimTemplateName") or "").startswith(NAME_PREFIX)


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


def _name(entry: Mapping[str, Any]) -> str:
    return str(entry.get("name") or "")
