"""What a claim costs a quota: cards, MiB of memory, percent of compute. Pure.

Before its allocation a claim costs the most that it could come to, as with Kubernetes' own quota of devices;
afterwards, what it came to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from claim_mutator.names import CAPACITY_CORES, CAPACITY_MEMORY, DRIVER, MEBIBYTE, Role
from kube.quantity import QuantityError, parse_quantity

ROLES = (Role.COUNT, Role.MEMORY, Role.CORES)
"""What a quota can limit. A percentage is no amount, and a priority none either."""


@dataclass(frozen=True)
class Cost:
    """memory: MiB of all cards together. cores: percent of one card, of all together."""

    cards: int = 0
    memory: int = 0
    cores: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.cards + other.cards, self.memory + other.memory, self.cores + other.cores)

    def of(self, role: Role) -> int:
        return {Role.COUNT: self.cards, Role.MEMORY: self.memory, Role.CORES: self.cores}[role]


NOTHING = Cost()


@dataclass(frozen=True)
class Form:
    """One alternative of a request, of each of its cards. memory: MiB, None: all of the card's."""

    count: int
    memory: int | None
    cores: int
    instance: bool = False


Demand: TypeAlias = tuple[tuple[Form, ...], ...]
"""Of a claim: its requests, each with its alternatives."""


@dataclass(frozen=True)
class Sizes:
    """MiB of the cluster's cards and MIG instances."""

    cards: Collection[int] = ()
    instances: Collection[int] = ()

    def of(self, form: Form) -> Collection[int]:
        return self.instances if form.instance else self.cards


UNKNOWN = Sizes((0,), (0,))
"""For quotas that don't limit memory."""


def demand_of(spec: Mapping[str, Any], instance_class: str) -> Demand:
    """The `spec` of a ResourceClaim. What can't be read asks for a whole card: never for nothing."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return tuple(tuple(_forms(request, instance_class)) for request in requests)


def most(demand: Demand, sizes: Sizes) -> Cost | None:
    """The most that it can come to; None where that needs the size of cards, and none is known."""
    total = Cost()
    for forms in demand:
        if any(form.memory is None and not sizes.of(form) for form in forms):
            return None
        memory = max(form.count * _memory(form, sizes) for form in forms)
        total += Cost(
            max(form.count for form in forms), memory, max(form.count * form.cores for form in forms)
        )
    return total


def is_settled(demand: Demand, sizes: Sizes) -> bool:
    """Whether an allocation can come to nothing else than `most`."""
    for forms in demand:
        if any(form.memory is None and len(sizes.of(form)) != 1 for form in forms):
            return False
        if len({(form.count, _memory(form, sizes), form.cores) for form in forms}) > 1:
            return False
    return True


def allocated(claim: Mapping[str, Any]) -> Cost | None:
    """What a ResourceClaim has been given of our driver; None while it has nothing."""
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        return None
    total = Cost()
    for result in (allocation.get("devices") or {}).get("results") or ():
        if result.get("driver") == DRIVER:
            consumed = result.get("consumedCapacity") or {}
            memory = _amount(consumed, CAPACITY_MEMORY) or 0
            total += Cost(1, memory // MEBIBYTE, _amount(consumed, CAPACITY_CORES) or 0)
    return total


def _forms(request: Mapping[str, Any], instance_class: str) -> Iterator[Form]:
    for body in request.get("firstAvailable") or (request.get("exactly") or {},):
        wanted = (body.get("capacity") or {}).get("requests") or {}
        memory = _amount(wanted, CAPACITY_MEMORY)
        count = body.get("count")
        yield Form(
            count if isinstance(count, int) else 1,
            None if memory is None else -(-memory // MEBIBYTE),
            _amount(wanted, CAPACITY_CORES) or 0,
            body.get("deviceClassName") == instance_class,
        )


def _memory(form: Form, sizes: Sizes) -> int:
    return max(sizes.of(form)) if form.memory is None else form.memory


def _amount(amounts: Mapping[str, Any], name: str) -> int | None:
    try:
        return int(parse_quantity(amounts[name]))
    except (KeyError, TypeError, QuantityError):
        return None
