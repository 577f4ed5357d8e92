"""What the API server said of the claims that this process has prepared.

A claim's allocation doesn't change while a Pod has it, so a repeated Prepare goes by what is remembered,
while the API server is asked whether it still is so. That question is a cheap one: not older than what is
known here, so the server may answer it from its cache. What is remembered holds as long as the ledger has the
very entry that was made from it: Unprepare, a reconcile, another agent or a restart each make another one, or
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from dra_driver.claims.handed import Handed
from dra_driver.claims.ledger_file import Entry
from dra_driver.names import ClaimUID


@dataclass(frozen=True)
class Remembered:
    """A claim as far as Prepare goes by it, its resourceVersion then, and what it was handed out as."""

    entry: Entry
    raw: dict[str, Any]
    version: str | None
    handed: Handed

    def is_still(self, raw: Mapping[str, Any]) -> bool:
        """Whether the claim as it is now would be prepared in the same way."""
        return _essence(raw) == self.raw


class RememberedClaims:
    """Claims are kept as JSON: a fifth of what the objects take."""

    def __init__(self) -> None:
        self._known: dict[ClaimUID, tuple[Entry, str | None, bytes, Handed]] = {}

    def keep(self, entry: Entry, raw: Mapping[str, Any], version: str | None, handed: Handed) -> None:
        """`entry`: what was made of the claim, as the ledger has it."""
        self._known[entry.uid] = (entry, version, msgspec.json.encode(_essence(raw)), handed)

    def of(self, uid: ClaimUID, entry: Entry | None) -> Remembered | None:
        """None where the API server has to be asked first. `entry`: the ledger's, now."""
        known = self._known.get(uid)
        if known is None:
            return None
        if known[0] is not entry:
            del self._known[uid]
            return None
        return Remembered(known[0], msgspec.json.decode(known[2]), known[1], known[3])

    def renew(self, entry: Entry) -> Entry:
        """Another entry that says the same, for the ledger: of a claim that is known with this one."""
        renewed = msgspec.structs.replace(entry)
        self._known[entry.uid] = (renewed, *self._known[entry.uid][1:])
        return renewed

    def forget(self, uid: ClaimUID) -> None:
        """Of a claim that is not known too."""
        self._known.pop(uid, None)


def _essence(raw: Mapping[str, Any]) -> dict[str, Any]:
    metadata = raw.get("metadata") or {}
    return {
        "metadata": {"uid": metadata.get("uid"), "annotations": metadata.get("annotations")},
        "status": {"allocation": (raw.get("status") or {}).get("allocation")},
    }
