"""Remembered errors of cards on disk: `<state>/xids/<UUID>.json`, one small file each.

A file is there as long as its error stands. Removing one is how an administrator says that a card is well:
the agent sees it at its next look, and the taint goes. A file that can't be read counts as none, and is
replaced when the card reports an error again: what else is known of the card still holds.

Blocks: call it in a thread. Every crash leaves the old file or the new one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cdi import durable
from dra_driver.cards.xids import Xid

_log = logging.getLogger(__name__)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-zA-Z-]{1,80}")


class XidFiles:
    """`directory` is made by the first write."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, uuid: str) -> Path:
        return self.directory / f"{uuid}.json"

    def read(self) -> dict[str, Xid]:
        """By UUID. Raises OSError."""
        found = {}
        for path in sorted(self.directory.glob("*.json")):
            xid = _decode(path)
            if xid is not None:
                found[xid.uuid] = xid
        return found

    def write(self, before: Mapping[str, Xid], after: Mapping[str, Xid]) -> None:
        """What has changed. Raises OSError; writing again is safe."""
        for uuid, xid in after.items():
            if before.get(uuid) != xid and _UUID.fullmatch(uuid) is not None:
                self.directory.mkdir(parents=True, exist_ok=True)
                durable.write(self.path(uuid), msgspec.json.encode(xid) + b"\n")
        for uuid in before.keys() - after.keys():
            if _UUID.fullmatch(uuid) is not None:
                durable.remove(self.path(uuid))


def _decode(path: Path) -> Xid | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None  # removed this very moment
    try:
        xid = msgspec.json.decode(content, type=Xid)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        _log.warning("%s can't be read and counts for nothing: %s", path, error)
        return None
    return xid if xid.uuid == path.stem else None
