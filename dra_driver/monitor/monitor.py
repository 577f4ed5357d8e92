"""Reads the usage files of all cards' grants, ten times a second while somebody works, and writes the terms.

A file that can't be read or written leaves its grant out and harms no other. Only the agent that leads writes
(kubelet/lead.py). What is written ends with its lease, so nothing is to be taken back when the agent ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dra_driver.claims.grants import LIMITS, USAGE, GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.monitor.control import Grant, Memory, Process, Snapshot, Terms, control
from dra_driver.names import ClaimUID
from interposer import abi

PERIOD = 0.1
QUIET_PERIOD = 0.5
_log = logging.getLogger(__name__)


@dataclass
class Monitor:
    """`entries`: the ledger's. `leads`: whether this agent may write. `wrote`: is told of each write."""

    entries: Callable[[], Mapping[ClaimUID, Entry]]
    directories: GrantDirectories
    leads: Callable[[], bool]
    wrote: Callable[[], None] = lambda: None
    clock: Callable[[], int] = time.monotonic_ns
    _cards: dict[str, Memory] = field(default_factory=dict)

    async def run(self) -> None:
        """For ever."""
        while True:
            began = time.monotonic()
            is_quiet = True
            cards = by_card(self.entries().values())
            if cards and self.leads():
                is_quiet = await asyncio.to_thread(self.look, cards)
            period = QUIET_PERIOD if is_quiet else PERIOD
            await asyncio.sleep(max(period / 2, began + period - time.monotonic()))

    def look(self, cards: Mapping[str, Iterable[tuple[ClaimUID, GrantEntry]]]) -> bool:
        """Once at each card. Says whether nobody works with any. Blocks."""
        for uuid in self._cards.keys() - cards.keys():
            del self._cards[uuid]
        for uuid, grants in cards.items():
            found = {grant.name: (uid, grant) for uid, grant in grants}
            memory = self._cards.get(uuid, Memory())
            snapshot = Snapshot(self.clock(), tuple(self._read(found.values(), memory.seen_until)))
            self._cards[uuid], terms = control(memory, snapshot)
            for name, each in terms.items():
                self._write(*found[name], each)
        return all(memory.is_quiet for memory in self._cards.values())

    def known(self, uuid: str) -> frozenset[str]:
        """The grants of a card that could be looked at last."""
        return frozenset(self._cards.get(uuid, Memory()).grants)

    def _read(self, grants: Iterable[tuple[ClaimUID, GrantEntry]], since: int) -> Iterable[Grant]:
        for uid, grant in grants:
            directory = self.directories.directory(uid, grant.name)
            try:
                limits = abi.read_limits(directory / LIMITS)
                usage = abi.read_usage(directory / USAGE, since)
            except abi.AbiError as error:
                _log.debug("compute of %s is not looked after: %s", grant.name, error)
                continue
            yield Grant(
                name=grant.name,
                guaranteed=limits.guaranteed_cores,
                policy=limits.policy,
                priority=limits.priority,
                processes=tuple(_process(each) for each in usage.processes),
                spans=usage.spans,
            )

    def _write(self, uid: ClaimUID, grant: GrantEntry, terms: Terms) -> None:
        path = self.directories.directory(uid, grant.name) / LIMITS
        try:
            if abi.lend(path, terms.cores, terms.stretch, terms.until):
                self.wrote()
        except abi.AbiError as error:
            _log.debug("compute of %s is not looked after: %s", grant.name, error)


def by_card(entries: Iterable[Entry]) -> dict[str, list[tuple[ClaimUID, GrantEntry]]]:
    """The grants that a library limits, of claims that are prepared, by the UUID of their card."""
    cards: defaultdict[str, list[tuple[ClaimUID, GrantEntry]]] = defaultdict(list)
    for entry in entries:
        for grant in entry.grants:
            if grant.limited and entry.state is State.PREPARED:
                cards[grant.uuid].append((entry.uid, grant))
    return dict(cards)


def _process(process: abi.Process) -> Process:
    there = (process.resident_ns, process.resident_until) if process.resident_ns else None
    return Process(
        slot=process.slot,
        busy_ns=process.busy_ns,
        waited_ns=process.waited_ns,
        launches=process.launches,
        waiting=process.waiting > 0,
        short_ns=process.short_ns,
        there=there,
    )
