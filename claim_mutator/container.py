"""One container's limits and requests → what it asks for. HAMi's rules (v2.10), pure.

| limits | means |
| --- | --- |
| count alone, or percentage 100, without cores | the card alone: whole memory, cores 100 |
| any of memory, percentage, cores without count | the default count (0: refused) |
| neither memory nor percentage above 0 | the default memory (0: all of it) |
| no cores, and not the card alone | the default cores (0: no limit) |
| memory and percentage | memory, if it is above 0 |
| memory 0, percentage 0 | as if not given, but no default of cores |
| cores 0 | no limit of compute, said explicitly |
| count 0 alone | no card |
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from msgspec import UNSET

from claim_mutator import amounts
from claim_mutator.amounts import AmountError
from claim_mutator.names import Role
from claim_mutator.pod import Container, Quantities, Resources
from claim_mutator.refusal import Notice, Pointer, Problem
from claim_mutator.rules import Rules
from claim_mutator.spelling import intended
from kube.quantity import QuantityError, parse_quantity


class Kind(enum.Enum):
    """When a container runs."""

    INIT = "init"
    SIDECAR = "sidecar"
    APP = "app"


@dataclass(frozen=True)
class Percent:
    """A share of the memory of whichever card it will be."""

    value: int


@dataclass(frozen=True)
class Request:
    """`count` different cards, each with the same share."""

    count: int
    memory: int | Percent | None
    """MiB, or None: all of it."""
    cores: int
    """Percent; 0: no limit. 100: nobody else on the card."""


@dataclass(frozen=True)
class Reading:
    """What was found in one container."""

    pointer: Pointer
    name: str
    kind: Kind
    request: Request | None
    priority: int | None
    keys: tuple[tuple[str, str], ...]
    """What a conversion removes: ("limits" or "requests", name)."""
    problems: tuple[Problem, ...] = ()
    notices: tuple[Notice, ...] = ()

    def key(self, role: Role, rules: Rules) -> str:
        """The name that this container uses for a role, or else the one to recommend."""
        found = (name for where, name in self.keys if where == "limits" and rules.names.roles[name] is role)
        return next(found, rules.names.preferred(role))

    def limit(self, key: str) -> Pointer:
        return (*self.pointer, "resources", "limits", key)


def kind_of(group: str, container: Container) -> Kind:
    if group == "containers":
        return Kind.APP
    return Kind.SIDECAR if container.restart_policy == "Always" else Kind.INIT


def read(group: str, index: int, container: Container, rules: Rules) -> Reading:
    """Never raises: what is wrong is in `problems`, all of it."""
    pointer: Pointer = ("spec", group, index)
    resources = container.resources
    if resources is UNSET or resources is None:
        resources = Resources()
    limits, requests = resources.limits or {}, resources.requests or {}
    return _ContainerReader(pointer, container, rules, limits, requests).reading(kind_of(group, container))


class _ContainerReader:
    """Collects problems while it reads, so that one refusal names them all."""

    def __init__(
        self, pointer: Pointer, container: Container, rules: Rules, limits: Quantities, requests: Quantities
    ) -> None:
        self._pointer = pointer
        self._name = container.name
        self._rules = rules
        self._limits = limits
        self._requests = requests
        self._problems: list[Problem] = []
        self._notices: list[Notice] = []

    def reading(self, kind: Kind) -> Reading:
        roles = self._rules.names.roles
        keys = tuple(
            (where, key)
            for where, quantities in (("limits", self._limits), ("requests", self._requests))
            for key in quantities
            if key in roles
        )
        self._check_spelling(beside_ours=bool(keys))
        self._check_requests()
        values = {role: self._value(role) for role in Role} if keys else {}
        request = self._request(values) if keys and not self._problems else None
        return Reading(
            self._pointer,
            self._name,
            kind,
            request,
            values.get(Role.PRIORITY),
            keys,
            tuple(self._problems),
            tuple(self._notices),
        )

    def _request(self, values: dict[Role, int | None]) -> Request | None:
        count, memory = values[Role.COUNT], values[Role.MEMORY]
        percentage, cores = values[Role.PERCENTAGE], values[Role.CORES]
        shared = [role for role in (Role.MEMORY, Role.PERCENTAGE, Role.CORES) if values[role] is not None]
        if count is None:
            if not shared:
                return None  # a priority alone asks for nothing
            count = self._rules.default_count
            if count == 0:
                self._refuse_share_without_count(shared)
                return None
        if count == 0:
            self._refuse_share_of_nothing([role for role in shared if values[role]])
            return None
        if memory and percentage:
            kept, useless = self._key(Role.MEMORY), self._key(Role.PERCENTAGE)
            self._note(useless, f"{useless} has no effect beside {kept}: remove one of them")
        alone = percentage == 100 or (memory is None and percentage is None)
        if cores is None:
            cores = 100 if alone else self._rules.default_cores
        if not memory and not percentage:
            memory = self._rules.default_memory
        if memory:
            return Request(count, memory, cores)
        if percentage and percentage < 100:
            return Request(count, Percent(percentage), cores)
        return Request(count, None, cores)

    def _refuse_share_without_count(self, shared: list[Role]) -> None:
        key = self._key(shared[0])
        count = self._rules.names.preferred(Role.COUNT)
        self._refuse(key, self._limits[key], f"names no number of cards: write {count}: 1 beside it")

    def _refuse_share_of_nothing(self, shared: list[Role]) -> None:
        for role in shared:
            count = self._key(Role.COUNT)
            self._refuse(count, 0, f"asks for no card, beside {self._key(role)}: write 1, or leave both out")

    def _value(self, role: Role) -> int | None:
        """The number of this role in limits, None if it isn't there (or is a problem)."""
        read_amount = {
            Role.COUNT: amounts.cards,
            Role.MEMORY: lambda value: amounts.mebibytes(value, self._rules.memory_factor),
            Role.PERCENTAGE: amounts.percent_of_memory,
            Role.CORES: amounts.percent_of_cores,
            Role.PRIORITY: amounts.priority,
        }[role]
        present = [name for name in self._rules.names.of(role) if name in self._limits]
        if len(present) > 1:
            self._refuse(
                present[1], self._limits[present[1]], f"means the same as {present[0]}: keep one of them"
            )
        for name in present[:1]:
            try:
                return read_amount(self._limits[name])
            except AmountError as error:
                self._refuse(name, self._limits[name], str(error))
        return None

    def _check_spelling(self, *, beside_ours: bool) -> None:
        for where, key, value in self._entries():
            meant = intended(key, self._rules.names, beside_ours=beside_ours)
            if meant is not None:
                self._refuse(key, value, f"is not a name that is known here: write {meant}", where)

    def _check_requests(self) -> None:
        """Request = limit for extended resources: the server checks it after us, when ours are gone."""
        for key, value in self._requests.items():
            if key not in self._rules.names.roles:
                continue
            if key not in self._limits:
                self._refuse(key, value, "is in requests only: write it in limits", "requests")
                continue
            if value == self._limits[key]:
                continue
            try:
                same = _number(value) == _number(self._limits[key])
            except QuantityError:
                same = False
            if not same:
                self._refuse(
                    key,
                    value,
                    f"differs from the limit {self._limits[key]}: write the same in both",
                    "requests",
                )

    def _entries(self) -> Iterator[tuple[str, str, str | int | float]]:
        seen = set()
        for where, quantities in (("limits", self._limits), ("requests", self._requests)):
            for key, value in quantities.items():
                if key not in seen:
                    seen.add(key)
                    yield where, key, value

    def _key(self, role: Role) -> str:
        return next((name for name in self._rules.names.of(role) if name in self._limits), role.value)

    def _note(self, key: str, text: str) -> None:
        pointer = (*self._pointer, "resources", "limits", key)
        self._notices.append(Notice(pointer, f"container {self._name!r}: {text}"))

    def _refuse(self, key: str, value: object, reason: str, where: str = "limits") -> None:
        self._problems.append(
            Problem(
                (*self._pointer, "resources", where, key),
                f"container {self._name!r}, {where}: {key}: {value} {reason}",
            )
        )


def _number(value: str | float) -> Fraction:
    return parse_quantity(repr(value) if isinstance(value, float) else value)
