"""How much of a card there is to give: the figures that slices publish and that Prepare checks against."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from dra_driver.cards.inventory import Card
from dra_driver.names import MEBIBYTE, SHARES_OF_A_CARD


@dataclass(frozen=True)
class Scales:
    """The node's settings. Scaling above 1 promises more than there is; the library makes up for it."""

    split_count: int = 10
    memory_scaling: Fraction = Fraction(1)
    core_scaling: Fraction = Fraction(1)
    reserved_memory: int = 0
    """Bytes of each whole card that nobody is given."""


@dataclass(frozen=True)
class Amounts:
    """Bytes, percent of one card, per mille of its share slots: consumed, or there to be consumed."""

    memory: int
    cores: int
    shares: int

    def __add__(self, other: Amounts) -> Amounts:
        return Amounts(self.memory + other.memory, self.cores + other.cores, self.shares + other.shares)

    def fits_in(self, other: Amounts) -> bool:
        return self.memory <= other.memory and self.cores <= other.cores and self.shares <= other.shares


NOTHING = Amounts(0, 0, 0)


def own_memory(card: Card, scales: Scales) -> int:
    """The bytes of a card that there are to give. Nothing is reserved of an instance: nobody else is on it.

    Compute instances of one GPU instance have one memory between them, of which each is given its part.
    """
    if card.mig is not None:
        return card.memory_bytes // card.mig.sharers
    return max(card.memory_bytes - scales.reserved_memory, 0)


def capacity_of(card: Card, scales: Scales) -> Amounts:
    """What a card publishes. Memory is rounded down to a mebibyte, the step in which it is given out."""
    memory = int(own_memory(card, scales) * scales.memory_scaling)
    return Amounts(
        memory=memory - memory % MEBIBYTE, cores=int(100 * scales.core_scaling), shares=SHARES_OF_A_CARD
    )


def smallest_share(scales: Scales) -> int:
    """What a sharer takes of the slots when its claim does not say: the card takes `split_count` of them."""
    return SHARES_OF_A_CARD // scales.split_count
