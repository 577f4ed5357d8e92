"""What a conversion has to know of the cluster, as one value. Whoever gathers it is elsewhere (facts.py)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OLDEST = (1, 35)
"""Before, shared devices are broken."""
DISTINCT_COUNTS = (1, 36)
"""From here on `count: N` gives N different cards; before, the same card may come twice."""
DISTINCT_ACROSS = (1, 37)
"""From here on distinctAttribute holds between requests of more than one card, too."""


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

    @property
    def counts_are_distinct(self) -> bool:
        return self.version >= DISTINCT_COUNTS

    @property
    def counts_are_distinct_across_requests(self) -> bool:
        return self.version >= DISTINCT_ACROSS


def parse_version(answer: Mapping[str, Any]) -> tuple[int, int]:
    """The body of /version → (1, 36); managed clusters write minor as `36+`."""
    numbers = [re.match(r"\d+", str(answer.get(key, ""))) for key in ("major", "minor")]
    major, minor = (int(number.group()) if number else 0 for number in numbers)
    return major, minor
