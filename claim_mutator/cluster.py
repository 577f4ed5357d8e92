"""What a conversion has to know of the cluster, as one value. Whoever gathers it is elsewhere (facts.py)."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

OLDEST = (1, 35)
"""Before, shared devices are broken."""
DISTINCT_COUNTS = (1, 36)
"""From here on `count: N` gives N different cards; before, the same card may come twice."""
DISTINCT_ACROSS = (1, 37)
"""From here on distinctAttribute holds between requests of more than one card, too."""


@dataclass(frozen=True, order=True)
class Card:
    """One that can be shared. size: of its memory as published, bytes."""

    node: str
    size: int
    uuid: str = ""
    product: str = ""


@dataclass(frozen=True)
class Cluster:
    """Nothing known is a valid state: then only percentages can't be resolved."""

    card_sizes: tuple[int, ...] = ()
    """Memory of the shareable cards as published, bytes, ascending, each size once."""
    version: tuple[int, int] = DISTINCT_ACROSS
    """Of the API server."""
    instance_sizes: tuple[int, ...] = ()
    """The same of MIG instances."""
    most_cards: int = 0
    """Cards of the node that has most of them; 0: not known."""
    uuids: frozenset[str] = frozenset()
    """Of cards and instances, and of the cards that instances are on."""
    products: frozenset[str] = frozenset()
    cores_are_scaled: bool = False
    """Every card has more, or less, than 100 percent to give: then 100 is not the card alone."""
    trusted_namespaces: frozenset[str] = frozenset()
    """Those whose Pods may loosen their limits."""
    most_alike: int = 0
    """Cards of one size, of the node that has most of these; 0: not known."""
    drops_capacity: bool = False
    """The API server does not keep how much of a card a claim asks for: each would get a whole one."""

    cards: tuple[Card, ...] = ()
    """Those that `card_sizes` are of; none: not known one by one."""
    is_narrowed: bool = False
    """`cards` are a part, and what is said of most of a node is of that."""

    @property
    def largest_card(self) -> int:
        """Bytes; 0: not known."""
        return max((card.size for card in self.cards), default=max(self.card_sizes, default=0))

    def narrowed(self, takes: Callable[[Card], bool]) -> Cluster:
        """For a Pod that may have some of the cards only. Itself, where these are not known."""
        cards = tuple(filter(takes, self.cards))
        if not cards:
            return self
        most, alike = most_of_a_node(cards)
        return replace(self, cards=cards, most_cards=most, most_alike=alike, is_narrowed=True)

    def lacks_alike(self, count: int) -> bool:
        """Whether no node has so many cards of one size, but some node has so many."""
        return 0 < self.most_alike < count <= self.most_cards

    @property
    def counts_are_distinct(self) -> bool:
        return self.version >= DISTINCT_COUNTS

    @property
    def counts_are_distinct_across_requests(self) -> bool:
        return self.version >= DISTINCT_ACROSS


def most_of_a_node(cards: Iterable[Card]) -> tuple[int, int]:
    """Cards of the node that has most of them, and of one size of the node that has most of these."""
    nodes: dict[str, Counter[int]] = defaultdict(Counter)
    for card in cards:
        nodes[card.node][card.size] += 1
    most = max((sizes.total() for sizes in nodes.values()), default=0)
    return most, max((max(sizes.values()) for sizes in nodes.values()), default=0)


def parse_version(answer: Mapping[str, Any]) -> tuple[int, int]:
    """The body of /version → (1, 36); managed clusters write minor as `36+`."""
    numbers = [re.match(r"\d+", str(answer.get(key, ""))) for key in ("major", "minor")]
    major, minor = (int(number.group()) if number else 0 for number in numbers)
    return major, minor
