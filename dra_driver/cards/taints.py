"""What is known against a card → the taints of its device. Pure.

Level-based: the taints follow from what is known now, for every publication anew, so none can be lost or left
behind. When something began is not known here: the time of a taint is kept where slices are compared.

| key               | value              | why                                       | default effect |
| ----------------- | ------------------ | ----------------------------------------- | -------------- |
| `…/xid`           | the error's number | the card has reported an error (xids.py)  | NoSchedule     |
| `…/lost`          | (none)             | the driver does not answer for the card   | NoSchedule     |
| `…/unmonitored`   | `silent`           | the driver as a whole has not answered    | NoSchedule     |
| `…/unmonitored`   | `no-events`        | errors of this card are not reported      | None           |
| `…/device-plugin` | (none)             | a device plugin hands out cards here, too | NoSchedule     |

A card without events works as it always did, so that is only told; a driver that is silent for minutes most
likely starts no container either. Each key has one effect, which the node configuration may set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dra_driver.cards.inventory import Card, Inventory
from dra_driver.cards.rules import Effect
from dra_driver.cards.xids import Xid
from dra_driver.names import DRIVER, DeviceName

XID = f"{DRIVER}/xid"
LOST = f"{DRIVER}/lost"
UNMONITORED = f"{DRIVER}/unmonitored"
DEVICE_PLUGIN = f"{DRIVER}/device-plugin"
KEYS = (XID, LOST, UNMONITORED, DEVICE_PLUGIN)
SILENT, NO_EVENTS = "silent", "no-events"
_DEFAULT_EFFECTS = {
    (XID, None): Effect.NO_SCHEDULE,
    (LOST, None): Effect.NO_SCHEDULE,
    (UNMONITORED, SILENT): Effect.NO_SCHEDULE,
    (UNMONITORED, NO_EVENTS): Effect.NONE,
    (DEVICE_PLUGIN, None): Effect.NO_SCHEDULE,
}


@dataclass(frozen=True)
class Taint:
    """As the API has it, but for the time. `value` may be empty."""

    key: str
    value: str
    effect: Effect

    def document(self) -> dict[str, Any]:
        found = {"key": self.key, "value": self.value, "effect": self.effect.value}
        return {name: text for name, text in found.items() if text}


@dataclass(frozen=True)
class Ailments:
    """What is known against the node's cards, beside those that are lost (`Inventory.lost`).

    `xids`, `unheard`: by UUID, of a GPU or of an instance; `unheard`: why errors of it are not reported.
    `is_silent`: the driver has not answered for so long that nothing can be relied upon.
    `has_device_plugin`: others hand out cards of this node; nobody says which.
    """

    xids: Mapping[str, Xid] = field(default_factory=dict)
    unheard: Mapping[str, str] = field(default_factory=dict)
    is_silent: bool = False
    has_device_plugin: bool = False

    def xid_of(self, card: Card) -> Xid | None:
        """An error of the whole GPU is one of each of its instances."""
        return self.xids.get(card.gpu_uuid) or self.xids.get(card.uuid)

    def unheard_of(self, card: Card) -> str | None:
        return self.unheard.get(card.gpu_uuid)


NO_AILMENTS = Ailments()


def taints(
    inventory: Inventory, ailments: Ailments, effects: Mapping[str, Effect]
) -> dict[DeviceName, tuple[Taint, ...]]:
    """Of every device that has any, sorted by key. `effects`: by key, where they are not the defaults."""
    lost = {one.card.name for one in inventory.lost}
    cards = (*inventory.cards, *(one.card for one in inventory.lost))
    found = {card.name: _taints(card, card.name in lost, ailments, effects) for card in cards}
    return {name: some for name, some in found.items() if some}


def _taints(
    card: Card, is_lost: bool, ailments: Ailments, effects: Mapping[str, Effect]
) -> tuple[Taint, ...]:
    def taint(key: str, value: str = "", kind: str | None = None) -> Taint:
        return Taint(key, value, effects.get(key) or _DEFAULT_EFFECTS[key, kind])

    found = []
    if ailments.has_device_plugin:
        found.append(taint(DEVICE_PLUGIN))
    xid = ailments.xid_of(card)
    if is_lost:
        found.append(taint(LOST))
    if ailments.is_silent:
        found.append(taint(UNMONITORED, SILENT, SILENT))
    elif ailments.unheard_of(card) is not None and not is_lost:
        found.append(taint(UNMONITORED, NO_EVENTS, NO_EVENTS))
    if xid is not None:
        found.append(taint(XID, str(xid.number)))
    return tuple(found)
