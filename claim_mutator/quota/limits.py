"""A ResourceQuota → the limits in it that are ours to keep, and which Pods they are for. Pure.

Keys are `limits.` or `requests.` before a resource name of this cluster; the two mean the same, as for all
extended resources. A number that can't be read lets nobody in: it never means 'unlimited'.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from claim_mutator.names import ResourceNames, Role
from claim_mutator.quota.cost import ROLES, Cost
from kube.quantity import QuantityError, parse_quantity

PREFIXES = ("limits.", "requests.")
_NATIVE = ("cpu", "memory")


@dataclass(frozen=True)
class Limit:
    """`most`: cards, MiB or percent; `text`: as it is written in the quota, in units of `unit`."""

    key: str
    role: Role
    most: Fraction
    text: str
    unit: int = 1

    def shown(self, amount: int) -> str:
        """In the quota's own unit; what is no whole number of it is rounded up."""
        return str(-(-amount // self.unit))


@dataclass(frozen=True)
class Traits:
    """What a quota's scopes ask of a Pod."""

    has_deadline: bool = False
    best_effort: bool = False
    priority_class: str = ""


ANY_POD = Traits()


@dataclass(frozen=True)
class Selector:
    """One scope of a quota. An unknown one is for every Pod."""

    scope: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()

    def matches(self, pod: Traits) -> bool:
        known = {
            "Terminating": pod.has_deadline,
            "NotTerminating": not pod.has_deadline,
            "BestEffort": pod.best_effort,
            "NotBestEffort": not pod.best_effort,
        }
        if self.scope != "PriorityClass":
            return known.get(self.scope, True)
        found = pod.priority_class
        return {
            "Exists": bool(found),
            "DoesNotExist": not found,
            "In": found in self.values,
            "NotIn": found not in self.values,
        }.get(self.operator, True)


@dataclass(frozen=True)
class Quota:
    """`mistakes`: keys that can't be honoured, whole sentences; `is_broken`: so nobody is let in."""

    namespace: str
    name: str
    limits: tuple[Limit, ...]
    selectors: tuple[Selector, ...] = ()
    mistakes: tuple[str, ...] = ()
    is_broken: bool = False
    uid: str = ""
    used: tuple[tuple[str, str], ...] = ()
    """Of our keys, what its status says."""

    def covers(self, pod: Traits) -> bool:
        return all(selector.matches(pod) for selector in self.selectors)


def read(document: Mapping[str, Any], names: ResourceNames, memory_factor: int = 1) -> Quota | None:
    """None for a quota that limits nothing of ours."""
    metadata, spec = document["metadata"], document.get("spec") or {}
    limits: list[Limit] = []
    mistakes: list[str] = []
    broken = False
    for key, value in sorted((spec.get("hard") or {}).items()):
        role = role_of(key, names)
        if role is None:
            continue
        if role not in ROLES:
            wanted = key.partition(".")[0] + "." + names.preferred(Role.MEMORY)
            mistakes.append(f"{key}: {value} is not kept, because it is no amount: write {wanted}")
            continue
        unit = memory_factor if role is Role.MEMORY else 1
        try:
            limits.append(Limit(key, role, _number(value) * unit, str(value), unit))
        except QuantityError as error:
            mistakes.append(f"{key}: {value} {error}")
            broken = True
    if not limits and not mistakes:
        return None
    status = (document.get("status") or {}).get("used") or {}
    ours = {limit.key for limit in limits}
    return Quota(
        str(metadata.get("namespace") or ""),
        str(metadata["name"]),
        tuple(limits),
        tuple(_selectors(spec)),
        tuple(mistakes),
        broken,
        str(metadata.get("uid") or ""),
        tuple(sorted((key, str(value)) for key, value in status.items() if key in ours)),
    )


def role_of(key: str, names: ResourceNames) -> Role | None:
    for prefix in PREFIXES:
        if key.startswith(prefix):
            return names.roles.get(key.removeprefix(prefix))
    return None


def excess(quota: Quota, used: Cost, wanted: Cost) -> str | None:
    """Kubernetes' own words for a Pod that is too much, or None."""
    if quota.is_broken:
        return f"quota {quota.name} can't be kept: {'; '.join(quota.mistakes)}"
    over = [
        limit
        for limit in quota.limits
        if wanted.of(limit.role) and used.of(limit.role) + wanted.of(limit.role) > limit.most
    ]
    if not over:
        return None
    return (
        f"exceeded quota: {quota.name},"
        f" requested: {_listed(over, wanted)}, used: {_listed(over, used)},"
        f" limited: {','.join(f'{limit.key}={limit.text}' for limit in over)}"
    )


def needs_sizes(quota: Quota) -> str | None:
    """Why a whole card can't be measured by a quota, in a cluster where no card is known."""
    for limit in quota.limits:
        if limit.role is Role.MEMORY:
            name = limit.key.partition(".")[2]
            return (
                f"quota {quota.name} limits {limit.key}, and no card of the cluster is known, so the memory"
                f" of a whole one is not: write {name} in MiB"
            )
    return None


def traits_of(pod: Mapping[str, Any]) -> Traits:
    spec = pod.get("spec") or {}
    return Traits(
        spec.get("activeDeadlineSeconds") is not None,
        _is_best_effort(spec),
        str(spec.get("priorityClassName") or ""),
    )


def _listed(limits: Iterable[Limit], cost: Cost) -> str:
    return ",".join(f"{limit.key}={limit.shown(cost.of(limit.role))}" for limit in limits)


def _number(value: Any) -> Fraction:
    """Raises QuantityError, whose text goes on after `key: value`."""
    if isinstance(value, str) and value.endswith("i"):
        try:
            meant = -int(-parse_quantity(value) // (1 << 20))
        except QuantityError:
            meant = 0
        raise QuantityError(f"has a binary suffix, and this key counts MiB or pieces: write {max(1, meant)}")
    try:
        return parse_quantity(value)
    except (QuantityError, TypeError) as error:
        raise QuantityError("is not a quantity: write a plain number such as 3000") from error


def _selectors(spec: Mapping[str, Any]) -> Iterator[Selector]:
    for scope in spec.get("scopes") or ():
        yield Selector(str(scope))
    for each in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        yield Selector(
            str(each.get("scopeName")),
            str(each.get("operator") or "Exists"),
            tuple(str(value) for value in each.get("values") or ()),
        )


def _is_best_effort(spec: Mapping[str, Any]) -> bool:
    held = [spec.get("resources") or {}]
    for group in ("initContainers", "containers"):
        held += [(container or {}).get("resources") or {} for container in spec.get(group) or ()]
    return not any(
        name in (resources.get(where) or {})
        for resources in held
        for where in ("limits", "requests")
        for name in _NATIVE
    )
