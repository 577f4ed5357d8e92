"""The cards that the node has had since it booted, in `<state>/cards.json`.

Within a boot no card goes away by itself: one that the driver gives no longer is lost, and stays published
with a taint, also when the agent has been restarted meanwhile. A boot forgets; a card that was taken out of a
running node on purpose can be excluded by the node configuration until then.

Blocks: call it in a thread. Every crash leaves the old file or the new one; one that can't be read is none.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import msgspec

from cdi import durable
from dra_driver.cards.inventory import Inventory

VERSION = 1
_log = logging.getLogger(__name__)


class _File(msgspec.Struct, frozen=True):
    version: int
    boot_id: str
    inventory: Inventory


class RememberedCards:
    """`boot_id`: the present boot's."""

    def __init__(self, path: Path, boot_id: str) -> None:
        self._path = path
        self._boot_id = boot_id
        self._written: Inventory | None = None

    def read(self) -> Inventory | None:
        """What this boot has had so far, as far as it is known."""
        try:
            content = self._path.read_bytes()
            file = msgspec.json.decode(content, type=_File)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s can't be read; cards that are lost now are not known: %s", self._path, error)
            return None
        if file.version != VERSION or file.boot_id != self._boot_id:
            return None
        self._written = file.inventory
        return file.inventory

    def write(self, inventory: Inventory) -> None:
        """Only if the cards are other ones than last time. Raises OSError."""
        lasting = replace(inventory, faults=(), actions={})
        if lasting != self._written:
            content = msgspec.json.encode(_File(VERSION, self._boot_id, lasting))
            self._path.parent.mkdir(parents=True, exist_ok=True)
            durable.write(self._path, content + b"\n")
            self._written = lasting
