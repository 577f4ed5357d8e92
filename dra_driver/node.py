"""What the agent knows of its node at this moment: the cards, or why there are none; the library, or why not.

Changed only on the event loop; values themselves never change, so whoever has one may keep it.
"""

from __future__ import annotations

from collections.abc import Callable

from dra_driver.capacity import Scales
from dra_driver.errors import RetryableError
from dra_driver.inventory import Inventory
from dra_driver.library import InstalledLibrary
from dra_driver.names import DeviceName


class Node:
    """`name`: the Node object's, which is also the pool's."""

    def __init__(self, name: str, scales: Scales) -> None:
        self.name = name
        self.scales = scales
        self._inventory: Inventory | None = None
        self._silence: str | None = "the NVIDIA driver has not been asked yet"
        self._seen: frozenset[DeviceName] = frozenset()
        self._listeners: list[Callable[[], None]] = []
        self._library: InstalledLibrary | None = None
        self._why_no_library = "the library has not been installed yet"

    @property
    def cards(self) -> Inventory | None:
        """The last known inventory; kept when the driver stops answering: what was published stays."""
        return self._inventory

    @property
    def silence(self) -> str | None:
        """Why the inventory may be out of date: the driver, as last asked, gave none. None: it did."""
        return self._silence

    @property
    def seen(self) -> frozenset[DeviceName]:
        """Every device that was ever in the inventory."""
        return self._seen

    def listen(self, listener: Callable[[], None]) -> None:
        """`listener` is called when inventory or silence have changed."""
        self._listeners.append(listener)

    def found(self, inventory: Inventory) -> None:
        self._seen |= {card.name for card in inventory.cards}
        self._set(inventory, None)

    def not_found(self, why: str) -> None:
        self._set(self._inventory, why)

    def _set(self, inventory: Inventory | None, silence: str | None) -> None:
        if (inventory, silence) != (self._inventory, self._silence):
            self._inventory, self._silence = inventory, silence
            for listener in self._listeners:
                listener()

    def installed(self, library: InstalledLibrary) -> None:
        self._library = library

    def not_installed(self, why: str) -> None:
        self._why_no_library = why

    def inventory(self) -> Inventory:
        """Raises RetryableError with the reason why there is none."""
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
