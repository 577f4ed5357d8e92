"""What the node has: its cards as plain values, read once and never changed.

A card is known by its UUID. Index and minor number move between reboots, so nothing that lasts is keyed by
them. A card that can't be described is a `CardFault` and takes no other card down with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dra_driver.names import DeviceName, device_name

_PCI_BUS_ID = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})\.([0-9a-f])")


@dataclass(frozen=True)
class Card:
    """One GPU. What the driver could not tell is None and not published; versions are the driver's."""

    uuid: str
    minor: int
    memory_bytes: int
    pci_bus_id: str
    product_name: str
    brand: str | None = None
    architecture: str | None = None
    compute_capability: str | None = None
    pcie_root: str | None = None
    numa_node: int | None = None
    nvlink_peers: tuple[str, ...] = ()
    """PCI bus ids at the other ends of its active NVLinks: cards, or switches."""

    @property
    def name(self) -> DeviceName:
        return device_name(self.uuid)


@dataclass(frozen=True)
class CardFault:
    """A card that is not published. `card`: how the driver calls it; `reason`: a sentence."""

    card: str
    reason: str


@dataclass(frozen=True)
class Inventory:
    """All cards of the node, in PCI order: the order in which the scheduler tries them."""

    driver_version: str
    cuda_driver_version: str
    cards: tuple[Card, ...]
    faults: tuple[CardFault, ...] = ()

    def by_device(self) -> Mapping[DeviceName, Card]:
        return {card.name: card for card in self.cards}


def inventory(
    driver_version: str, cuda_driver_version: str, cards: Iterable[Card], faults: Iterable[CardFault] = ()
) -> Inventory:
    """Sorts the cards; of two with one UUID (seen while a driver is reset) the later one is a fault."""
    kept: dict[str, Card] = {}
    found_faults = list(faults)
    for card in sorted(cards, key=lambda card: (card.pci_bus_id, card.uuid)):
        if card.uuid in kept:
            reason = f"has the same UUID as the card at {kept[card.uuid].pci_bus_id}, {card.uuid}"
            found_faults.append(CardFault(card.pci_bus_id, reason))
        else:
            kept[card.uuid] = card
    return Inventory(driver_version, cuda_driver_version, tuple(kept.values()), tuple(found_faults))


def normalise_pci_bus_id(text: str) -> str | None:
    """NVML's `00000000:3B:00.0` → `0000:3b:00.0`, the standard attribute's form; None if it can't be one."""
    match = _PCI_BUS_ID.fullmatch(text.strip().lower())
    if match is None:
        return None
    domain = int(match[1] or "0", 16)
    return f"{domain:04x}:{match[2]}:{match[3]}.{match[4]}" if domain <= 0xFFFF else None


def nvlink_domains(cards: Iterable[Card]) -> Mapping[str, str]:
    """Card UUID → the lowest PCI bus id of the cards that NVLink joins it with, directly or through switches.

    A card that is joined with no other has no domain.
    """
    found = tuple(cards)
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
