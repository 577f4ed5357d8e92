"""Who had the card, when several processes had kernels on it at once.

The card lets processes with work take turns (2 ms is NVIDIA's default): who comes waits until whoever is on
has had his turn; a turn that nobody waits for goes on, and ends with the kernel. A library sees its own
grant's processes; what other grants take in between only the agent can tell, by letting them take turns again
on paper. Times are ns.
"""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

TURN = 2_000_000
_GAP = 1_000  # rounding too; any real pause between two kernels ends the turn
_ROUNDING = 100_000  # spans are placed on the host's clock by bounds

ProcessName = tuple[str, int]
"""Grant and slot."""


@dataclass(frozen=True)
class Stay:
    """A process had kernels on the card from `start` to `end`."""

    grant: str
    slot: int
    start: int
    end: int


@dataclass(frozen=True)
class Had:
    """`there`: while the grant had kernels on the card; `own`: what the card gave it of that."""

    there: float = 0.0
    own: float = 0.0


@dataclass(frozen=True)
class Table:
    """Who is at the card, whose turn it is first, and since when that has been so."""

    order: tuple[ProcessName, ...] = ()
    since: int = 0


def had(stays: Iterable[Stay], begin: int, end: int, before: Table) -> tuple[dict[str, Had], Table]:
    """What each grant had between two moments. Stays of one process may overlap. `before`: how it began."""
    own: defaultdict[str, float] = defaultdict(float)
    there: defaultdict[str, float] = defaultdict(float)
    stays = tuple(stays)
    changes = sorted(_changes(stays, begin, end))
    names = {change.name for change in changes}
    order, since, last = [name for name in before.order if name in names], before.since, begin
    for change in [*changes, _Change(end, _Kind.NOTHING, ("", 0))]:
        for grant in {grant for grant, _ in order}:
            there[grant] += change.moment - last
        since = _pass(order, since, last, change.moment, own)
        last = change.moment
        since = _changed(order, since, change)
    return {grant: Had(there[grant], own[grant]) for grant in there}, Table(tuple(order), since)


class _Kind(enum.IntEnum):
    """In the order in which changes of one moment happen."""

    ENDS = 0
    """A kernel; its process may have more."""
    LEAVES = 1
    COMES = 2
    NOTHING = 3


class _Change(NamedTuple):
    moment: int
    kind: _Kind
    name: ProcessName


def _changes(stays: Iterable[Stay], begin: int, end: int) -> Iterator[_Change]:
    found: defaultdict[ProcessName, list[tuple[int, int]]] = defaultdict(list)
    for stay in stays:
        start, stop = max(stay.start, begin), min(stay.end, end)
        if start < stop:
            found[stay.grant, stay.slot].append((start, stop))
    for name, each in found.items():
        for start, stop in _merged(sorted(each)):
            yield _Change(start, _Kind.COMES, name)
            if stop < end:  # else it may be there still
                yield _Change(stop, _Kind.LEAVES, name)
        yield from (_Change(stop, _Kind.ENDS, name) for _, stop in each)


def _changed(order: list[ProcessName], since: int, change: _Change) -> int:
    """Who is at the card after a change; says since when the turn goes."""
    moment, kind, name = change
    if kind is _Kind.COMES and name not in order:
        order.append(name)
        return since if len(order) > 1 else moment
    if kind is _Kind.LEAVES and name in order:
        had_turn = order[0] == name
        order.remove(name)
        return moment if had_turn else since
    if kind is _Kind.ENDS and order == [name] and moment - since >= TURN - _ROUNDING:
        return moment
    return since


def _pass(order: list[ProcessName], since: int, now: int, until: int, own: dict[str, float]) -> int:
    """Time goes by and turns end; says since when the last one goes."""
    while order and now < until:
        turn_ends = max(since + TURN, now) if len(order) > 1 else until
        stop = min(turn_ends, until)
        own[order[0][0]] += stop - now
        now = stop
        if now < until or (len(order) > 1 and turn_ends == until):
            order.append(order.pop(0))
            since = now
    return since


def _merged(stays: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Stays of one process in their order, without overlaps and short gaps."""
    whole: tuple[int, int] | None = None
    for start, stop in stays:
        if whole is not None and start <= whole[1] + _GAP:
            whole = whole[0], max(whole[1], stop)
            continue
        if whole is not None:
            yield whole
        whole = start, stop
    if whole is not None:
        yield whole
