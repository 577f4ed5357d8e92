"""What a claim was handed out as, and by what looks one sees that this still holds.

A repeated Prepare owes the kubelet an answer that is true now, and making everything again is the slow way to
know. `Handed` has all that goes into a claim's files besides the claim itself, and how each file was left: as
long as nothing of that is another, making them again would change nothing. What no look tells: a change in
place within the kernel's tick (4 ms) in which a file was left, by somebody who keeps its size.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from cdi.driver_shim import Covered
from dra_driver.cards.inventory import Card, Inventory
from dra_driver.cards.rules import Rules
from dra_driver.claims.base_edits import BaseEdits, NativeEdits
from dra_driver.claims.document import cdi_ids
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.plan import DriverFiles, Plan
from dra_driver.node import Node


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """What the kubelet is told of one grant."""

    request: str
    pool: str
    device: str
    cdi_ids: tuple[str, ...]
    share_id: str | None


def prepared_devices(plan: Plan) -> tuple[PreparedDevice, ...]:
    """The whole answer."""
    return tuple(
        PreparedDevice(
            request=grant.request,
            pool=grant.pool,
            device=grant.device,
            cdi_ids=cdi_ids(grant, plan.files),
            share_id=grant.share_id,
        )
        for grant in plan.grants
    )


@dataclass(frozen=True, slots=True)
class DriverEdits:
    """What the NVIDIA driver's files and nodes add to a claim's documents.

    `native`: None where the toolkit's document has them. `covered`: what a shim takes the place of, if any.
    """

    native: NativeEdits | None
    covered: tuple[Covered, ...]


@dataclass(frozen=True, slots=True)
class DriverNeeds:
    """The part of a plan that `DriverEdits` depend on."""

    cards: tuple[Card, ...]
    shimmed: tuple[Card, ...]
    toolkit: bool

    @classmethod
    def of(cls, plan: Plan) -> DriverNeeds:
        return cls(
            cards=tuple(grant.card for grant in plan.grants),
            shimmed=tuple(grant.card for grant in plan.grants if grant.needs_shim),
            toolkit=plan.files is DriverFiles.TOOLKIT,
        )

    def edits(self, base: BaseEdits) -> DriverEdits:
        """As of now. Blocks on the disk. Raises DriverNotReadyError, OSError."""
        return DriverEdits(
            native=None if self.toolkit else base.native(self.cards),
            covered=base.covered(self.shimmed, toolkit=self.toolkit) if self.shimmed else (),
        )


@dataclass(frozen=True, slots=True)
class LeftFiles:
    """How files were left: `seen` is another number after any change of what is there, or of its rights."""

    paths: tuple[str, ...]
    is_tenants: bool
    seen: int

    @classmethod
    def as_now(cls, paths: Iterable[str], *, is_tenants: bool = False) -> Self:
        """`is_tenants`: a tenant writes to them, so their inode and size alone count."""
        paths = tuple(paths)
        return cls(paths, is_tenants, _seen(paths, is_tenants))

    def are_so(self) -> bool:
        """Blocks on the disk. Raises OSError."""
        return self.seen == _seen(self.paths, self.is_tenants)


def _seen(paths: tuple[str, ...], is_tenants: bool) -> int:
    return hash(tuple(_stamp(path, is_tenants) for path in paths))


def _stamp(path: str, is_tenants: bool) -> tuple[int, int, int] | None:
    """None for nothing."""
    try:
        found = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - a third of pathlib's time
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, 0 if is_tenants else found.st_ctime_ns, found.st_size


@dataclass(frozen=True, slots=True)
class Left:
    """How a claim's files were left, and what they came from."""

    needs: DriverNeeds
    edits: DriverEdits
    files: LeftFiles
    tenants: LeftFiles

    def is_so(self, base: BaseEdits) -> bool:
        """Whether all is as it was. Blocks on the disk. Raises DriverNotReadyError, OSError."""
        return self.files.are_so() and self.tenants.are_so() and self.needs.edits(base) == self.edits


@dataclass(frozen=True, slots=True)
class Handed:
    """What a claim was handed out as, and the rest of what that came from: objects that are replaced, never
    changed, so the very same one means that nothing has changed.
    """

    devices: tuple[PreparedDevice, ...]
    left: Left
    inventory: Inventory | None
    rules: Rules
    library: InstalledLibrary | None

    def is_of(self, node: Node) -> bool:
        """Whether the node is the one that it was."""
        return (
            node.cards is self.inventory
            and node.rules is self.rules
            and (self.library is None or node.library() is self.library)
        )
