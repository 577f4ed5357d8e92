"""The control loop of one card, without IO: snapshot after snapshot, what is in force for each grant.

A grant that waits, or works with what it was lent, wants more; one that does neither is lent from. What is
lent ends by itself soon after the agent has ended (`LEASE`). With the shares goes the stretch: how much
longer the grant's kernels take than alone, since other grants' run too; without it a library would charge its
own processes for their neighbours' time, and the grant would get less than its share. When nothing is lent
any more, kernels take less long: still reckoned as before, grants would get more than their share.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dra_driver.monitor.shares import WHOLE, Wish, shares
from dra_driver.monitor.turns import Had, Stay, Table, had
from interposer.abi import Policy, Span

MILLISECOND = 1_000_000
LEASE = 1_000 * MILLISECOND
MEASURED = 30_000 * MILLISECOND
"""So long after a lease `stretch_unlent` counts (interposer/src/limits.c)."""
_MEMORY = 400 * MILLISECOND  # what is older counts less and less
_SHORTEST_DELAY, _LONGEST_DELAY = 30 * MILLISECOND, 500 * MILLISECOND
_SLACK = 1.25  # who uses so much may use a quarter more, so that a growing load is not held back
_UNSEEN = 0.05  # of the card's time: less is noise
_NO_STRETCH = 1000


@dataclass(frozen=True)
class Process:
    """One process of a grant; counters since its start. `there`: on the card from when to when, by now."""

    slot: int
    busy_ns: int
    waited_ns: int
    launches: int
    waiting: bool
    short_ns: int = 0
    """Of busy_ns, for kernels that no span tells of."""
    there: tuple[int, int] | None = None


@dataclass(frozen=True)
class Terms:
    """What is in force for a grant, until `until`; `stretch_unlent` afterwards. Stretches are thousandths."""

    cores: int
    stretch: int
    stretch_unlent: int
    until: int


@dataclass(frozen=True)
class Grant:
    """One grant at a moment."""

    name: str
    guaranteed: int
    """Percent; 0: what is left over."""
    policy: Policy
    priority: int
    processes: tuple[Process, ...]
    spans: tuple[Span, ...] = ()
    """All that end after `Memory.seen_until`."""
    told: Terms | None = None
    """What its file says: another agent's, where this one has just begun."""


@dataclass(frozen=True)
class Snapshot:
    """The grants of a card. `now`: ns of CLOCK_MONOTONIC."""

    now: int
    grants: tuple[Grant, ...]


@dataclass(frozen=True)
class Known:
    """What is remembered of a grant; `busy`, `short`, `had`: of the last `_MEMORY`, faded, in ns."""

    processes: Mapping[int, Process] = field(default_factory=dict)
    busy: float = 0.0
    short: float = 0.0
    had: Had = field(default_factory=Had)
    is_at_work: bool = False
    is_waiting: bool = False
    terms: Terms | None = None


@dataclass(frozen=True)
class Memory:
    """What is remembered of a card. `passed`: ns, faded as the rest is."""

    looked: int = 0
    passed: float = 0.0
    seen_until: int = 0
    """Who had the card is known up to here."""
    table: Table = field(default_factory=Table)
    grants: Mapping[str, Known] = field(default_factory=dict)

    @property
    def is_quiet(self) -> bool:
        """Whether nobody works with the card."""
        return not any(known.is_at_work for known in self.grants.values())


def control(memory: Memory, snapshot: Snapshot) -> tuple[Memory, dict[str, Terms]]:
    """What to remember, and the terms that are to be written now: few, where little has changed."""
    since = snapshot.now - memory.looked
    if memory.looked == 0 or since <= 0:
        return _first(snapshot), {}
    fade = math.exp(-since / _MEMORY)
    weight = _MEMORY * (1 - fade) / since  # of what is new: the same share, however often one looks
    seen_until, turns, table = _turns(memory, snapshot)
    known = {}
    for grant in snapshot.grants:
        before = memory.grants.get(grant.name, _new(grant, snapshot.now))
        known[grant.name] = _known(before, grant, turns.get(grant.name, Had()), fade, weight)
    passed = memory.passed * fade + since * weight
    new: dict[str, Terms] = {}
    for name, terms in _terms(snapshot, known, passed).items():
        if _is_news(known[name].terms, terms, snapshot.now):
            new[name] = terms
            known[name] = replace(known[name], terms=terms)
    return Memory(snapshot.now, passed, seen_until, table, known), new


def _first(snapshot: Snapshot) -> Memory:
    known = {
        grant.name: replace(_new(grant, snapshot.now), processes=_by_slot(grant)) for grant in snapshot.grants
    }
    return Memory(snapshot.now, 0.0, snapshot.now, Table(), known)


def _new(grant: Grant, now: int) -> Known:
    told = grant.told
    return Known(terms=told if told is not None and now < told.until + MEASURED else None)


def _by_slot(grant: Grant) -> dict[int, Process]:
    return {process.slot: process for process in grant.processes}


def _known(before: Known, grant: Grant, turns: Had, fade: float, weight: float) -> Known:
    busy = short = 0
    is_at_work = is_waiting = False
    for process in grant.processes:
        was = before.processes.get(process.slot)
        if was is None or process.launches < was.launches:  # another one
            was = Process(process.slot, 0, 0, 0, waiting=False)
        busy += max(0, process.busy_ns - was.busy_ns)
        short += max(0, process.short_ns - was.short_ns)
        is_waiting |= process.waiting or process.waited_ns > was.waited_ns
        is_at_work |= process.launches > was.launches or process.there is not None
    return Known(
        processes=_by_slot(grant),
        busy=before.busy * fade + busy * weight,
        short=before.short * fade + short * weight,
        had=Had(before.had.there * fade + turns.there * weight, before.had.own * fade + turns.own * weight),
        is_at_work=is_at_work or is_waiting,
        is_waiting=is_waiting,
        terms=before.terms,
    )


def _turns(memory: Memory, snapshot: Snapshot) -> tuple[int, dict[str, Had], Table]:
    """Who had the card, up to the moment for which all that ran has told so by now."""
    stays = [
        Stay(grant.name, span.slot, span.start_ns, span.end_ns)
        for grant in snapshot.grants
        for span in grant.spans
    ]
    longest = max((stay.end - stay.start for stay in stays), default=0)
    for grant in snapshot.grants:
        for process in grant.processes:
            if process.there is not None:
                start, end = process.there
                stays.append(Stay(grant.name, process.slot, start, min(end, snapshot.now)))
    delay = min(max(2 * longest, _SHORTEST_DELAY), _LONGEST_DELAY)
    until = max(memory.seen_until, snapshot.now - delay)
    return until, *had(stays, memory.seen_until, until, memory.table)


def _is_capped(grant: Grant) -> bool:
    """Whether its library can be told anything about compute."""
    return grant.policy is not Policy.DISABLE and grant.guaranteed < WHOLE


def _wants(grant: Grant, known: Known, passed: float) -> float:
    is_lent = known.terms is not None
    if known.is_waiting or (grant.guaranteed == 0 and known.is_at_work and not is_lent):
        return WHOLE
    return min(WHOLE, known.busy / passed * WHOLE * _SLACK + 2) if known.is_at_work else 0.0


def _terms(snapshot: Snapshot, known: Mapping[str, Known], passed: float) -> dict[str, Terms]:
    """Of those who work: nobody else needs any."""
    wishes = [
        Wish(
            grant.name,
            grant.guaranteed,
            _wants(grant, known[grant.name], passed),
            grant.priority,
            grant.policy is Policy.DEFAULT,
        )
        for grant in snapshot.grants
        if _is_capped(grant)
    ]
    allowed = shares(wishes)
    used = {grant.name: _used(grant, known[grant.name], passed) for grant in snapshot.grants}
    unseen = {grant.name: _unseen(grant, known[grant.name], passed) for grant in snapshot.grants}
    found = {}
    for grant in snapshot.grants:
        if not _is_capped(grant) or not known[grant.name].is_at_work:
            continue
        others = [part for name, part in unseen.items() if name != grant.name and part > _UNSEEN]
        stretch = _stretch(known[grant.name], others, passed)
        unlent = _unlent(stretch, [part for name, part in used.items() if name != grant.name])
        cores = max(1, round(allowed[grant.name]))
        found[grant.name] = Terms(cores, stretch, unlent, snapshot.now + LEASE)
    return found


def _used(grant: Grant, known: Known, passed: float) -> tuple[float, float]:
    """The part of the card's time that it takes, and takes at most when nothing is lent."""
    now = _part(grant, known, known.busy, passed)
    return now, min(now, grant.guaranteed / WHOLE) if _is_capped(grant) and grant.guaranteed else now


def _unlent(stretch: int, others: list[tuple[float, float]]) -> int:
    """The stretch that is left of it when nothing is lent: by as much less as the others take less."""
    now, then = sum(now for now, _ in others), sum(then for _, then in others)
    return stretch if now <= 0 else _NO_STRETCH + round((stretch - _NO_STRETCH) * then / now)


def _unseen(grant: Grant, known: Known, passed: float) -> float:
    """The part of the card's time that it takes with kernels too short, or too free, to be told of."""
    return _part(grant, known, known.short, passed)


def _part(grant: Grant, known: Known, taken: float, passed: float) -> float:
    """The part of the time that so many ns of it are; of who has no limit, and is not counted, all may be."""
    if not _is_capped(grant):
        return 1.0 if known.is_at_work else 0.0
    return min(1.0, taken / passed)


def _stretch(known: Known, unseen: list[float], passed: float) -> int:
    turns = known.had
    if known.terms is not None and (turns.own <= 0 or passed < _MEMORY / 2):
        return max(known.terms.stretch, _NO_STRETCH)  # little is known so far, less than who told this
    if turns.own <= 0:
        return _NO_STRETCH
    # When the others were there is not known: while this one was, they had no more than they took, no more
    # than their turns, and no less than what didn't fit into the rest of the time. The middle is taken.
    there = min(turns.there / passed, 1.0)
    most = min(sum(unseen), len(unseen) / (1 + len(unseen)))
    least = min(max(0.0, sum(unseen) + there - 1) / there, most)
    left = 1 - (least + most) / 2
    return round(max(1.0, turns.there / (turns.own * left)) * _NO_STRETCH)


def _is_news(before: Terms | None, terms: Terms, now: int) -> bool:
    if before is None or before.until - now < LEASE / 2:
        return True
    return before.cores != terms.cores or abs(before.stretch - terms.stretch) * 100 > before.stretch
