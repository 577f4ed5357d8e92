"""A node on a temporary directory: all that Prepare touches, real but for the API server and the cards."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.store import Store
from dra_driver.cards.rules import Rules
from dra_driver.claims import library
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.prepare import Preparer
from dra_driver.claims.steps import Step, Steps
from dra_driver.errors import GoneError
from dra_driver.kubelet.lead import Lead
from dra_driver.kubelet.node_lock import NodeLock
from dra_driver.names import CDI_KIND, ClaimUID
from dra_driver.node import Node
from interposer import abi
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.allocations import NODE
from tests.unit.dra_driver.cards import two_cards

DRIVER_DOCUMENT = "gpu.tessera.dev-driver_files.json"


@dataclass
class World:
    """`restart` makes a new agent from what is on disk, as after kill -9; `other` one beside this one."""

    root: Path
    boot_id: str = "boot-1"
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    reached: Callable[[Step], None] = lambda _step: None
    fetch_delay: float = 0.0
    restore_limit: float = 0.3
    name: str = "dra.sock"
    alive: set[Path] = field(default_factory=set)

    def __post_init__(self) -> None:
        directory = self.root / "driver/usr/lib/x86_64-linux-gnu"
        write(directory / "libcuda.so.570.124.06", "libcuda.so.1")
        (self.root / "driver/dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (self.root / "driver/dev" / name).touch()
        (self.root / "source.so").write_bytes(b"library")
        self.times: list[Step] = []
        self.restart()

    def other(self, name: str, library_content: bytes = b"library") -> World:
        """Another agent of the same node, maybe of another release."""
        other = copy.copy(self)
        other.name = name
        other.times = []
        other.reached = lambda _step: None
        (self.root / "source.so").write_bytes(library_content)
        other.restart()
        return other

    def restart(self, *, library_installed: bool = True, has_looked: bool = True) -> None:
        self.node = Node(NODE, Rules())
        if has_looked:
            self.node.found(two_cards())
        if library_installed:
            self.node.installed(library.install(self.root / "source.so", {}, "0.1.0", self.root / "state"))
        else:
            self.node.not_installed("no space left")
        self.directories = GrantDirectories(self.root / "run")
        self.store = Store(self.root / "cdi", CDI_KIND)
        self.ledger = Ledger(
            self.root / "state/ledger",
            self.boot_id,
            has_files=lambda uid: self.directories.exists(uid) or self.store.path(uid).exists(),
        )
        self.loaded = self.ledger.load()
        self.lock = NodeLock(self.root / "serialize.lock", self.ledger)
        socket = self.root / self.name
        self.alive.add(socket)
        self.lead = Lead(self.root / "leader", socket, is_alive=self.alive.__contains__)
        self.preparer = Preparer(
            node=self.node,
            base=BaseEdits(
                Driver(
                    DriverRoot(PurePosixPath("/drv"), self.root / "driver"),
                    devices=self.root / "none",
                    machine="x86_64",
                )
            ),
            ledger=self.ledger,
            directories=self.directories,
            store=self.store,
            steps=Steps(
                took=lambda step, _seconds: self.times.append(step),
                clock=time.monotonic,
                reached=self._reached,
            ),
            lock=self.lock,
            fetch=self.fetch,
            restore_limit=self.restore_limit,
            room_limit=0.3,
        )

    def _reached(self, step: Step) -> None:
        self.reached(step)

    async def search(self, uids: Collection[ClaimUID]) -> dict[ClaimUID, dict[str, Any]]:
        return {uid: raw for raw in self.claims.values() if (uid := raw["metadata"]["uid"]) in uids}

    async def fetch(self, ref: ClaimRef, _at_least: str | None = None, /) -> dict[str, Any]:
        await asyncio.sleep(self.fetch_delay)
        if ref.name not in self.claims:
            raise GoneError(f"ResourceClaim {ref} does not exist any more")
        return self.claims[ref.name]

    def put(self, raw: dict[str, Any]) -> None:
        self.claims[raw["metadata"]["name"]] = raw

    def content(self) -> dict[str, Any]:
        """Of all files but the usage, which is the tenant's."""
        return {name: _content(self.root / name) for name in self.files()}

    def files(self) -> set[str]:
        """All that is there for claims: not the library, the driver's document, and empty directories."""
        roots = (self.root / "state/ledger", self.root / "run", self.root / "cdi")
        return {
            str(path.relative_to(self.root))
            for root in roots
            for path in root.rglob("*")
            if not path.is_dir() and path.name != DRIVER_DOCUMENT
        } | {str(path.relative_to(self.root)) for path in (self.root / "run/claims").glob("*")}


def _content(path: Path) -> Any:
    if path.is_dir() or path.name == "usage":
        return None
    return abi.read_limits(path) if path.name == "limits" else path.read_bytes()
