"""What the agent knows of its node at this moment: the cards, or why there are none; the rules that hold for
it; the library, or why there is none.

Changed only on the event loop; values themselves never change, so whoever has one may keep it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dra_driver.cards import rules, taints
from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import Inventory
from dra_driver.cards.rules import Rules
from dra_driver.cards.taints import NO_AILMENTS, Ailments, Taint
from dra_driver.claims.library import InstalledLibrary
from dra_driver.errors import RetryableError
from dra_driver.names import DeviceName

_NOT_ASKED = "the NVIDIA driver has not been asked yet"


class Node:
    """`name`: the Node object's, which is also the pool's. `why_no_rules`: what `configure` waits for."""

    def __init__(self, name: str, rules: Rules, *, why_no_rules: str | None = None) -> None:
        self.name = name
        self._rules = rules
        self._why_no_rules = why_no_rules
        self._found: Inventory | None = None
        self._inventory: Inventory | None = None
        self._silence: str | None = _NOT_ASKED
        self._ailments = NO_AILMENTS
        self._seen: frozenset[DeviceName] = frozenset()
        self._listeners: list[Callable[[], None]] = []
        self._library: InstalledLibrary | None = None
        self._why_no_library = "the library has not been installed yet"

    @property
    def rules(self) -> Rules:
        """What an administrator has set for this node; changes while we run."""
        return self._rules

    @property
    def scales(self) -> Scales:
        return self._rules.scales

    @property
    def why_no_rules(self) -> str | None:
        """Why it is not known yet what holds for this node, so that nothing may be published."""
        return self._why_no_rules

    def configure(self, rules: Rules) -> None:
        """`rules` hold from now on."""
        if rules != self._rules or self._why_no_rules is not None:
            self._rules, self._why_no_rules = rules, None
            self._apply()
            self._tell()

    def not_configured(self, why: str) -> None:
        """Says what `configure` waits for; without meaning once it was called."""
        if self._why_no_rules is not None:
            self._why_no_rules = why

    @property
    def cards(self) -> Inventory | None:
        """The last known inventory, as the rules have it. It is kept when the driver stops answering: what
        was published stays."""
        return self._inventory

    @property
    def silence(self) -> str | None:
        """Why the inventory may be out of date: the driver, as last asked, gave none. None: it did."""
        return self._silence

    @property
    def was_asked(self) -> bool:
        """Whether the driver has been asked at all, whatever the answer."""
        return self._silence is not _NOT_ASKED

    @property
    def seen(self) -> frozenset[DeviceName]:
        """Every device that was ever in the inventory."""
        return self._seen

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called when inventory, silence, ailments or rules have changed."""
        self._listeners.append(listener)

    @property
    def ailments(self) -> Ailments:
        """What is known against the cards."""
        return self._ailments

    @property
    def taints(self) -> Mapping[DeviceName, tuple[Taint, ...]]:
        """Of every device that has any, by what is known now."""
        if self._inventory is None:
            return {}
        return taints.taints(self._inventory, self._ailments, self._rules.taint_effects)

    def recall(self, inventory: Inventory) -> None:
        """`inventory`: what an earlier agent had found; the driver has not been asked yet."""
        self._seen |= _names(inventory)
        self._set(inventory, self._silence)

    def found(self, inventory: Inventory) -> None:
        """`inventory`: as the driver told it, and what is lost."""
        self._seen |= _names(inventory)
        self._set(inventory, None)

    def ail(self, ailments: Ailments) -> None:
        """`ailments` are known from now on."""
        if ailments != self._ailments:
            self._ailments = ailments
            self._tell()

    def not_found(self, why: str) -> None:
        self._set(self._found, why)

    def _set(self, found: Inventory | None, silence: str | None) -> None:
        if (found, silence) != (self._found, self._silence):
            self._found, self._silence = found, silence
            self._apply()
            self._tell()

    def _apply(self) -> None:
        self._inventory = rules.apply(self._rules, self._found) if self._found is not None else None

    def _tell(self) -> None:
        for listener in self._listeners:
            listener()

    def installed(self, library: InstalledLibrary) -> None:
        self._library = library

    def not_installed(self, why: str) -> None:
        self._why_no_library = why

    def inventory(self) -> Inventory:
        """Raises RetryableError with the reason why there is none."""
        if self._why_no_rules is not None:
            raise RetryableError(f"node {self.name} is not configured yet: {self._why_no_rules}")
        if self._inventory is None:
            raise RetryableError(f"node {self.name} has no usable NVIDIA driver: {self._silence}")
        return self._inventory

    @property
    def library_version(self) -> str | None:
        return self._library.version if self._library else None

    def library(self) -> InstalledLibrary:
        """Raises RetryableError with the reason why there is none."""
        if self._library is None:
            raise RetryableError(f"node {self.name} can't limit shares: {self._why_no_library}")
        return self._library


def _names(inventory: Inventory) -> set[DeviceName]:
    return {card.name for card in (*inventory.cards, *(lost.card for lost in inventory.lost))}
