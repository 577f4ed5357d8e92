"""What the node has: its cards as plain values, read once and never changed.

A card is known by its UUID. Index and minor number move between reboots, so nothing that lasts is keyed by
them. A card that can't be described is a `CardFault` and takes no other card down with it. A card in MIG mode
is not there as a whole: each of its instances is a card, with a UUID and a memory of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from dra_driver.names import DeviceName, device_name

_PCI_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])")


@dataclass(frozen=True)
class Mig:
    """What makes a card a MIG instance: whose it is, and by which numbers the driver knows it."""

    parent_uuid: str
    gpu_instance: int
    compute_instance: int
    profile: str | None = None
    """Such as 1g.10gb, as `nvidia-smi -L` prints it."""
    sharers: int = 1
    """Compute instances of the GPU instance: its memory is one for all of them."""


@dataclass(frozen=True)
class Card:
    """One GPU, or one MIG instance of a GPU. What the driver could not tell is None and not published.

    Of an instance, `minor`, `index`, PCI bus id and place are those of the GPU that it is a part of. Versions
    are the driver's own spelling.
    """

    uuid: str
    minor: int
    memory_bytes: int
    """0: the driver has no figure, because the memory is the host's (`rules.apply` takes care of it)."""
    pci_bus_id: str
    product_name: str
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    nvlink_peers: tuple[str, ...] = ()
    """PCI bus ids at the other ends of its active NVLinks: cards, or switches."""
    index: int | None = None
    """As `nvidia-smi -L` counts."""
    mig: Mig | None = None
    withheld: str | None = None
    """Why it is not published, though claims that run on it are served: the rest of a sentence about it."""

    @property
    def name(self) -> DeviceName:
        return device_name(self.uuid)

    @property
    def gpu_uuid(self) -> str:
        """The physical card's, also of an instance."""
        return self.uuid if self.mig is None else self.mig.parent_uuid


@dataclass(frozen=True)
class CardFault:
    """A card that is not published. `card`: how the driver calls it; `reason`: a sentence.

    `unanswered`: the driver knows of the card and says nothing of it, as when it has fallen off the bus.
    """

    card: str
    reason: str
    unanswered: bool = False
    instance_of: str | None = None
    """Of a MIG instance that can't even give its UUID: its GPU's. Which instance it is, nobody can tell."""


@dataclass(frozen=True)
class LostCard:
    """A card that was there since the node booted, and of which the driver gives nothing now; and why."""

    card: Card
    reason: str


@dataclass(frozen=True)
class Inventory:
    """All cards of the node, in PCI order: the order in which the scheduler tries them."""

    driver_version: str
    cuda_driver_version: str
    cards: tuple[Card, ...]
    faults: tuple[CardFault, ...] = ()
    gpus: frozenset[str] = frozenset()
    """UUIDs of all physical cards that the driver answers for: those split by MIG or with a fault, too."""
    lost: tuple[LostCard, ...] = ()
    """They stay published, with a taint, but nobody can be given one."""
    actions: Mapping[str, int] = field(default_factory=dict)
    """GPU UUID → NVML's number for what must be done to recover it, where the driver can tell; 0: nothing."""

    def by_device(self) -> Mapping[DeviceName, Card]:
        return {card.name: card for card in self.cards}

    @property
    def published(self) -> tuple[Card, ...]:
        """The cards that take new claims, and those that did before they were lost."""
        cards = (*self.cards, *(lost.card for lost in self.lost))
        return tuple(card for card in sorted(cards, key=_place) if card.withheld is None)

    def answers(self, gpu_uuid: str) -> bool:
        """Whether the driver says what there is to say of a physical card."""
        return gpu_uuid in self.gpus and not any(
            fault.card == gpu_uuid and fault.unanswered for fault in self.faults
        )


def inventory(
    driver_version: str,
    cuda_driver_version: str,
    cards: Iterable[Card],
    faults: Iterable[CardFault] = (),
    gpus: Iterable[str] = (),
) -> Inventory:
    """Sorts the cards; of two with one UUID (seen while a driver is reset) the later one is a fault.

    `gpus`: UUIDs of physical cards that are not among the cards.
    """
    kept: dict[str, Card] = {}
    found_faults = list(faults)
    for card in sorted(cards, key=_place):
        if card.uuid in kept:
            reason = f"has the same UUID as the card at {kept[card.uuid].pci_bus_id}, {card.uuid}"
            found_faults.append(CardFault(card.pci_bus_id, reason))
        else:
            kept[card.uuid] = card
    there = frozenset(gpus) | {card.gpu_uuid for card in kept.values()}
    return Inventory(driver_version, cuda_driver_version, tuple(kept.values()), tuple(found_faults), there)


def with_lost(before: Inventory | None, found: Inventory) -> Inventory:
    """`found`, and what it lacks of `before`: cards and instances whose GPU the driver does not answer for.

    An instance that is no more, or a card that became instances, is not lost: its GPU answers.
    """
    if before is None:
        return found
    there = {card.uuid for card in found.cards}
    known = (*before.cards, *(lost.card for lost in before.lost))
    lost = tuple(
        LostCard(card, _why_lost(card, found))
        for card in known
        if card.uuid not in there and _is_lost(card, found)
    )
    return replace(found, lost=lost)


def with_unlisted(found: Inventory, driven: int) -> Inventory:
    """`found`, and a fault for the cards of which NVML says nothing, though the kernel driver has them.

    So it is for a while when a driver starts, and for good with a card that could not be initialised.
    `driven`: how many cards the kernel driver has.
    """
    listed = found.gpus | {lost.card.gpu_uuid for lost in found.lost}
    nameless = sum(fault.unanswered and fault.card.startswith("GPU ") for fault in found.faults)
    missing = driven - max(len(listed), len(found.gpus) + nameless)
    if missing <= 0:
        return found
    fault = CardFault(
        f"{missing} of {driven} cards", "of the NVIDIA kernel driver are not listed by NVML", unanswered=True
    )
    return replace(found, faults=(*found.faults, fault))


def _is_lost(card: Card, found: Inventory) -> bool:
    own = any(
        fault.card == card.uuid or (card.mig is not None and fault.instance_of == card.gpu_uuid)
        for fault in found.faults
        if fault.unanswered
    )
    return own or not found.answers(card.gpu_uuid)


def _why_lost(card: Card, found: Inventory) -> str:
    own = [fault for fault in found.faults if fault.card in (card.uuid, card.gpu_uuid)]
    # A card that is too far gone to give its UUID is a fault by number; which one, nobody can tell.
    nameless = [
        fault
        for fault in found.faults
        if fault.unanswered and (fault.card.startswith("GPU ") or fault.instance_of == card.gpu_uuid)
    ]
    words = [f"{fault.card} {fault.reason}" for fault in own or nameless]
    return "; ".join(words if own else ["the NVIDIA driver does not list the card any more", *words])


def _place(card: Card) -> tuple[str, int, int, str]:
    instance = (card.mig.gpu_instance, card.mig.compute_instance) if card.mig is not None else (-1, -1)
    return (card.pci_bus_id, *instance, card.uuid)


def normalise_pci_bus_id(text: str) -> str | None:
    """NVML's `00000000:3B:00.0` → `0000:3b:00.0`, the standard attribute's form; None if it can't be one."""
    match = _PCI_BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}" if domain <= 0xFFFF else None


def nvlink_domains(cards: Iterable[Card]) -> Mapping[str, str]:
    """Card UUID → the lowest PCI bus id of the cards that NVLink joins it with, directly or through switches.

    A card that is joined with no other has no domain; nor has a MIG instance: NVLink does not reach it.
    """
    found = tuple(card for card in cards if card.mig is None)
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            node = parent[node]
        return node

    for card in found:
        for peer in card.nvlink_peers:
            parent[root(peer)] = root(card.pci_bus_id)
    members: dict[str, list[Card]] = {}
    for card in found:
        members.setdefault(root(card.pci_bus_id), []).append(card)
    return {
        card.uuid: min(member.pci_bus_id for member in group)
        for group in members.values()
        if len(group) > 1
        for card in group
    }
