"""Claims whose ledger entry can't be read: they run, and nobody knows what they hold. Pure.

Until such an entry is made again from the API server, no other claim gets a device that it may hold: the sum
over that device is not known. Which devices these are its CDI document still says, as far as it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from cdi.model import Spec
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.ledger import Stored
from dra_driver.errors import RetryableError
from dra_driver.names import ClaimUID


class _Node(msgspec.Struct):
    path: str


class _Edits(msgspec.Struct):
    nodes: tuple[_Node, ...] = msgspec.field(default=(), name="deviceNodes")


class _Device(msgspec.Struct):
    edits: _Edits = msgspec.field(name="containerEdits")


class _Document(msgspec.Struct):
    devices: tuple[_Device, ...]


def may_hold(document: bytes | None, wanted: Spec) -> bool:
    """Whether a claim with this CDI document may hold a device of those that `wanted` hands out."""
    if document is None:
        return True
    try:
        devices = msgspec.json.decode(document, type=_Document).devices
    except msgspec.MsgspecError:
        return True
    theirs = [{node.path for node in device.edits.nodes} for device in devices]
    ours = [{node.path for node in device.container_edits.device_nodes} for device in wanted.devices]
    # A device without a node of its own is named by another document, of which we know nothing.
    return not all(theirs) or not all(ours) or not set().union(*theirs).isdisjoint(set().union(*ours))


def refuse(ref: ClaimRef, wanted: Spec, unknown: Iterable[tuple[Stored, bytes | None]]) -> None:
    """`unknown`: entries that can't be read, each with its claim's document. Raises RetryableError."""
    for stored, document in unknown:
        if may_hold(document, wanted):
            raise RetryableError(
                f"ResourceClaim {ref}: {stored.path} can't be read ({stored.why}), so nobody knows how much"
                f" claim {stored.path.stem} holds of the same devices. It is made again from the API server"
                " as soon as that answers; where it can't be, delete the Pods that use that claim"
            )


def others(uncounted: Mapping[ClaimUID, Stored], ref: ClaimRef) -> tuple[Stored, ...]:
    """Those of other claims."""
    return tuple(stored for uid, stored in uncounted.items() if uid != ref.uid)
