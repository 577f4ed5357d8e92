"""What an administrator has set for this node, and what it makes of the cards. Pure.

The settings give defaults, the node configuration file (node_configuration.py) goes before them, and both end
up here. A rule never takes a card from claims that run on it: such a card is withheld, which means that it is
not published and takes no new claims.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from dra_driver.cards.capacity import Scales, capacity_of
from dra_driver.cards.inventory import Card, CardFault, Inventory, LostCard
from dra_driver.names import MEBIBYTE
from kube.quantity import format_bytes


class Placement(enum.Enum):
    """In which order the scheduler tries the cards of the node: it takes the first that fits."""

    BINPACK = "binpack"
    """Always the same order, so that a card fills up before the next one is begun."""
    SPREAD = "spread"
    """The least used first."""


class Interposition(enum.Enum):
    """How the library gets between a container's programs and the driver."""

    PRELOAD = "preload"
    """The loader loads it into every program before all else."""
    SHIM = "shim"
    """It also lies where programs look for the driver's libraries: nothing comes past it by dlsym or path."""


class MemoryOverflow(enum.Enum):
    """What happens to an allocation within its share that the card has no room for.

    It can come to that where `memory_scaling` promises more memory than there is.
    """

    REFUSE = "refuse"
    """It is out of memory, as on a full card."""
    SPILL = "spill"
    """It is made in managed memory, which lies on the host and comes to the card by pages: slower."""


class Effect(enum.Enum):
    """Of a taint on a device, as the API spells it."""

    NONE = "None"
    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True)
class CardMatch:
    """Cards by one of the three. `model`: a glob for the product's name; `index`: as nvidia-smi counts."""

    uuid: str | None = None
    index: int | None = None
    model: str | None = None

    def matches(self, card: Card) -> bool:
        """An instance is matched by its own UUID or by what matches its GPU."""
        if self.uuid is not None:
            return self.uuid.lower() in (card.uuid.lower(), card.gpu_uuid.lower())
        if self.index is not None:
            return self.index == card.index
        return self.model is not None and fnmatch.fnmatchcase(card.product_name, self.model)

    def __str__(self) -> str:
        name, value = next(
            (name, value) for name in ("uuid", "index", "model") if (value := getattr(self, name)) is not None
        )
        return f"{name}: {value}"


@dataclass(frozen=True)
class Rules:
    """All that can differ from node to node and change while the agent runs.

    `unified_memory`: bytes that a card without a memory of its own publishes. `taint_effects`: by taint key;
    a key that is not there has its default. `interposition` and `memory_overflow`: of shares whose
    class or claim says nothing.
    """

    scales: Scales = field(default_factory=Scales)
    unified_memory: int | None = None
    excluded: tuple[CardMatch, ...] = ()
    placement: Placement = Placement.BINPACK
    taint_effects: Mapping[str, Effect] = field(default_factory=dict)
    interposition: Interposition = Interposition.PRELOAD
    memory_overflow: MemoryOverflow = MemoryOverflow.SPILL


def apply(rules: Rules, found: Inventory) -> Inventory:
    """The cards as they are published: some withheld, some with a memory that the driver does not know."""
    cards: list[Card] = []
    lost: list[LostCard] = []
    faults = list(found.faults)
    for card in found.cards:
        known = _apply(rules, card)
        if known is not None:
            cards.append(known)
        else:
            reason = (
                "has no memory of its own, the driver says (it is the host's): write how much of it"
                " containers may have as unifiedMemory in the node configuration"
            )
            faults.append(CardFault(card.uuid, reason))
    for one in found.lost:
        known = _apply(rules, one.card)
        if known is not None:
            lost.append(replace(one, card=known))
    return replace(found, cards=tuple(cards), faults=tuple(faults), lost=tuple(lost))


def _apply(rules: Rules, card: Card) -> Card | None:
    """None: it has no memory that could be published."""
    if card.memory_bytes == 0:
        if rules.unified_memory is None:
            return None
        card = replace(card, memory_bytes=rules.unified_memory)
    return replace(card, withheld=_why_withheld(rules, card))


def _why_withheld(rules: Rules, card: Card) -> str | None:
    match = next((match for match in rules.excluded if match.matches(card)), None)
    if match is not None:
        return f"is excluded by the node configuration ({match})"
    if capacity_of(card, rules.scales).memory < MEBIBYTE:
        reserved = format_bytes(rules.scales.reserved_memory)
        return (
            f"has {format_bytes(card.memory_bytes)} of memory, of which {reserved} are reserved: too little"
            " is left; write a smaller reservedMemory in the node configuration"
        )
    return card.withheld
