"""The order in which a spreading node lists its devices: the scheduler takes the first that fits.

`least_used_first` is pure. `Spread` looks at what the node has given out every few seconds, so a burst of
claims costs one write of the slices and not one for each claim, and writes only where the order is really
another one. Claims that are scheduled before that was written still find the old order, and pack.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import NoReturn

from dra_driver.cards.capacity import NOTHING, Amounts, Scales, capacity_of
from dra_driver.cards.inventory import Card
from dra_driver.cards.rules import Placement
from dra_driver.names import DeviceName
from dra_driver.node import Node

SETTLE = 3.0  # seconds


def least_used_first(
    cards: Iterable[Card], held: Mapping[DeviceName, Amounts], scales: Scales
) -> tuple[DeviceName, ...]:
    """By the part of their memory that is held, then of their compute; equals stay in the order given."""

    def use(card: Card) -> tuple[Fraction, Fraction]:
        amounts, there = held.get(card.name, NOTHING), capacity_of(card, scales)
        return Fraction(amounts.memory, max(there.memory, 1)), Fraction(amounts.cores, max(there.cores, 1))

    return tuple(card.name for card in sorted(cards, key=use))


class Spread:
    """`held`: what the claims of this node hold of each device. `changed` is called when `order` has."""

    def __init__(
        self,
        *,
        node: Node,
        held: Callable[[], Mapping[DeviceName, Amounts]],
        changed: Callable[[], None],
        settle: float = SETTLE,
    ) -> None:
        self._node = node
        self._held = held
        self._changed = changed
        self._settle = settle
        self._order: tuple[DeviceName, ...] = ()

    def order(self) -> tuple[DeviceName, ...]:
        """Of all published devices; empty where the node packs. Not newer than the last look."""
        names = self._names()
        if not names:
            self._order = ()
        elif set(names) != set(self._order):
            self._order = self._now()
        return self._order

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._settle)
            self.look()

    def look(self) -> None:
        """Once."""
        before = self.order()
        if before and (now := self._now()) != before:
            self._order = now
            self._changed()

    def _names(self) -> list[DeviceName]:
        inventory = self._node.cards
        if inventory is None or self._node.rules.placement is not Placement.SPREAD:
            return []
        return [card.name for card in inventory.published]

    def _now(self) -> tuple[DeviceName, ...]:
        inventory = self._node.cards
        if inventory is None:
            return ()
        return least_used_first(inventory.published, self._held(), self._node.scales)
