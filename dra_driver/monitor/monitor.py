"""Looks at the usage files of all cards' grants, and writes the terms.

A card that somebody works with is looked at ten times a second, another one twice, and nothing is reckoned
where nothing has happened. A file that can't be read or written leaves its grant out and harms no other. Only
the agent that leads writes (kubelet/lead.py). What is written ends with its lease, so nothing is to be taken
back when the agent ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.monitor.control import MILLISECOND, Memory, Snapshot, Terms, control
from dra_driver.monitor.grant_files import GrantFiles
from dra_driver.names import ClaimUID
from interposer import abi

PERIOD = 0.1
QUIET_PERIOD = 0.5
_QUIET = round(QUIET_PERIOD * 1000) * MILLISECOND - MILLISECOND  # timers are not that exact
_log = logging.getLogger(__name__)


@dataclass
class Card:
    """What is known of a card. `rested`: the last look, if it found nothing new; 0: it did. Times are ns."""

    memory: Memory = field(default_factory=Memory)
    files: dict[str, GrantFiles] = field(default_factory=dict)
    looked: int = -_QUIET
    rested: int = 0


@dataclass
class Monitor:
    """`entries`: the ledger's. `leads`: whether this agent may write. `wrote`: is told of each write."""

    entries: Callable[[], Mapping[ClaimUID, Entry]]
    directories: GrantDirectories
    leads: Callable[[], bool]
    wrote: Callable[[], None] = lambda: None
    clock: Callable[[], int] = time.monotonic_ns
    _cards: dict[str, Card] = field(default_factory=dict)

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
        """Once at each card for which it is time. Says whether nobody works with any. Blocks."""
        for uuid in self._cards.keys() - cards.keys():
            del self._cards[uuid]
        for uuid, grants in cards.items():
            card, now = self._cards.setdefault(uuid, Card()), self.clock()
            if not card.memory.is_quiet or now - card.looked >= _QUIET:
                self._follow(card, grants)
                self._look(card, now)
        return all(card.memory.is_quiet for card in self._cards.values())

    def known(self, uuid: str) -> frozenset[str]:
        """The grants of a card that could be looked at last."""
        return frozenset(self._cards[uuid].memory.grants if uuid in self._cards else ())

    def _follow(self, card: Card, grants: Iterable[tuple[ClaimUID, GrantEntry]]) -> None:
        """The grants that the card has now."""
        before, card.files = card.files, {}
        for uid, grant in grants:
            directory = self.directories.directory(uid, grant.name)
            card.files[grant.name] = before.get(grant.name) or GrantFiles(grant.name, directory)

    def _look(self, card: Card, now: int) -> None:
        before = tuple(files.seen for files in card.files.values() if files.seen is not None)
        grants = [files.look(card.memory.seen_until) for files in card.files.values()]
        card.looked = now
        is_new = any(files.is_new for files in card.files.values()) or len(before) != len(card.memory.grants)
        if card.memory.is_quiet and not is_new:
            card.rested = now
            return
        if card.rested:  # nothing had happened until then
            card.memory, _ = control(card.memory, Snapshot(card.rested, before))
            card.rested = 0
        there = tuple(grant for grant in grants if grant is not None)
        card.memory, terms = control(card.memory, Snapshot(now, there))
        for name, each in terms.items():
            self._write(card.files[name], each)

    def _write(self, files: GrantFiles, terms: Terms) -> None:
        try:
            if abi.lend(files.limits, terms.cores, terms.stretch, terms.stretch_unlent, terms.until):
                self.wrote()
        except abi.AbiError as error:
            _log.debug("compute of %s is not looked after: %s", files.name, error)


def by_card(entries: Iterable[Entry]) -> dict[str, list[tuple[ClaimUID, GrantEntry]]]:
    """The grants that a library limits, of claims that are prepared, by the UUID of their card."""
    cards: defaultdict[str, list[tuple[ClaimUID, GrantEntry]]] = defaultdict(list)
    for entry in entries:
        for grant in entry.grants:
            if grant.limited and entry.state is State.PREPARED:
                cards[grant.uuid].append((entry.uid, grant))
    return dict(cards)
