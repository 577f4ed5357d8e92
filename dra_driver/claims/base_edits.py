"""Where a container's card and driver files come from: our own reading of the driver root, or the toolkit's.

    native   our documents have everything, and need nothing else on the node
    toolkit  a second CDI id, `nvidia.com/gpu=<uuid>`, of a document that nvidia-ctk has written
    auto     toolkit where such documents are good for all cards of the node, else native: a container with
             two claims has the driver from one place then

A claim that is prepared keeps what it was prepared with: the kubelet remembers its CDI ids, and gives them to
containers that start later. `look` blocks on the disk; what it found is then asked on the event loop.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cdi import toolkit
from cdi.driver_files import Driver
from cdi.driver_shim import Covered, covered_by
from cdi.errors import DriverNotReadyError
from cdi.model import ContainerEdits, DeviceNode
from cdi.toolkit import Found, Toolkit
from dra_driver.cards.inventory import Card
from dra_driver.claims.ledger_file import Entry
from dra_driver.claims.plan import DriverFiles
from dra_driver.errors import RetryableError


class CdiMode(enum.Enum):
    """The setting's values."""

    AUTO = "auto"
    TOOLKIT = "toolkit"
    NATIVE = "native"


@dataclass(frozen=True, slots=True)
class NativeEdits:
    """`common`: what every container needs once; `nodes`: of each card, by UUID."""

    common: ContainerEdits
    nodes: Mapping[str, tuple[DeviceNode, ...]]


class BaseEdits:
    """Without a `documents` there is no toolkit to look for, and all is native."""

    def __init__(
        self, driver: Driver, documents: Toolkit | None = None, mode: CdiMode = CdiMode.NATIVE
    ) -> None:
        self._driver = driver
        self._documents = documents if mode is not CdiMode.NATIVE else None
        self._mode = mode
        self._found = Found()
        self._is_for_all = False

    def look(self, cards: Iterable[Card]) -> str:
        """What there is, in a sentence. `cards`: as last known. Raises DriverNotReadyError."""
        files = self._driver.files()
        installed = f"driver {files.version}, {len(files.libraries)} libraries"
        if self._documents is None:
            return f"{installed}; CDI edits are our own"
        self._found = self._documents.look(files.version)
        why_not = self._why_not(cards)
        self._is_for_all = why_not is None
        if why_not is None:
            return f"{installed}; CDI edits are the toolkit's, of {', '.join(map(str, self._found.files))}"
        if self._mode is CdiMode.AUTO:
            return f"{installed}; CDI edits are our own, since {why_not}"
        if not self._found.devices:
            raise DriverNotReadyError(f"CDI mode is toolkit, and {why_not}")
        # One card that is lacking takes no other down; who is given it, is told.
        return f"{installed}; CDI edits are the toolkit's, but {why_not}"

    def files(self, cards: Iterable[Card], before: Entry | None) -> DriverFiles:
        """Which document brings the driver to a claim with these cards. `before`: how it was prepared.

        Raises RetryableError where it should be the toolkit's, and can't.
        """
        if before is not None:
            return _files_of(before)
        if self._documents is None:
            return DriverFiles.BESIDE
        why_not = self._why_not(cards)
        if why_not is not None and self._mode is CdiMode.TOOLKIT:
            raise RetryableError(f"CDI mode is toolkit, and {why_not}")
        if self._mode is CdiMode.AUTO and not self._is_for_all:
            return DriverFiles.BESIDE
        return DriverFiles.TOOLKIT if why_not is None else DriverFiles.BESIDE

    def native(self, cards: Iterable[Card]) -> NativeEdits:
        """Blocks on the disk. Raises DriverNotReadyError, OSError."""
        return NativeEdits(self.common(), {card.uuid: self._nodes(card) for card in cards})

    def common(self) -> ContainerEdits:
        """The driver's files, in our own reading. Blocks on the disk. Raises DriverNotReadyError, OSError."""
        return self._driver.remembered().edits

    def covered(self, cards: Iterable[Card], *, toolkit: bool) -> tuple[Covered, ...]:
        """What a shim has to cover in containers with these cards. Blocks; raises DriverNotReadyError."""
        files = self._driver.remembered()
        mounts = files.edits.mounts
        if toolkit:
            mounts = tuple(mount for card in cards for mount in self._found.libraries.get(card.uuid, ()))
        own = {library.name: self._driver.root.on_host(library.inside) for library in files.libraries}
        return covered_by(own, mounts)

    def _nodes(self, card: Card) -> tuple[DeviceNode, ...]:
        if card.mig is None:
            return (self._driver.nodes.card(card.minor),)
        return self._driver.nodes.instance(card.minor, card.mig.gpu_instance, card.mig.compute_instance)

    def _why_not(self, cards: Iterable[Card]) -> str | None:
        """None where the toolkit's documents have all cards."""
        if not self._found.devices:
            return "; ".join(self._found.problems) or f"no CDI document names a device of {toolkit.KIND}"
        lacking = [card.uuid for card in cards if not self._found.has(card.uuid, card.minor)]
        if not lacking:
            return None
        files = ", ".join(map(str, self._found.files))
        reasons = "; ".join(self._found.problems) or "make it anew (nvidia-ctk cdi generate)"
        return f"{files} does not name {', '.join(lacking)} with the node that it has now: {reasons}"


def _files_of(entry: Entry) -> DriverFiles:
    """As a release before this one has prepared it, too: then its own document has all that it has."""
    if any(grant.toolkit for grant in entry.grants):
        return DriverFiles.TOOLKIT
    return DriverFiles.BESIDE if all(grant.beside for grant in entry.grants) else DriverFiles.WITHIN
