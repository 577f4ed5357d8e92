"""A node on a temporary directory: all that Prepare touches, real but for the API server and the cards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.store import Store
from dra_driver import library
from dra_driver.capacity import Scales
from dra_driver.claims import ClaimRef
from dra_driver.errors import GoneError
from dra_driver.grants import GrantDirectories
from dra_driver.ledger import Ledger
from dra_driver.names import CDI_KIND
from dra_driver.node import Node
from dra_driver.prepare import Preparer
from dra_driver.steps import Step, Steps
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.allocations import NODE
from tests.unit.dra_driver.cards import two_cards


@dataclass
class World:
    """`restart` makes a new agent from what is on disk, as after kill -9."""

    root: Path
    boot_id: str = "boot-1"
    claims: dict[str, dict[str, Any]] = field(default_factory=dict)
    reached: Callable[[Step], None] = lambda _step: None
    fetch_delay: float = 0.0

    def __post_init__(self) -> None:
        directory = self.root / "driver/usr/lib/x86_64-linux-gnu"
        write(directory / "libcuda.so.570.124.06", "libcuda.so.1")
        (self.root / "driver/dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (self.root / "driver/dev" / name).touch()
        (self.root / "source.so").write_bytes(b"library")
        self.times: list[Step] = []
        self.restart()

    def restart(self, *, library_installed: bool = True) -> None:
        self.node = Node(NODE, Scales())
        self.node.found(two_cards())
        if library_installed:
            self.node.installed(library.install(self.root / "source.so", "0.1.0", self.root / "state"))
        else:
            self.node.not_installed("no space left")
        self.ledger = Ledger(self.root / "state/ledger", self.boot_id)
        self.loaded = self.ledger.load()
        self.directories = GrantDirectories(self.root / "run")
        self.store = Store(self.root / "cdi", CDI_KIND)
        self.preparer = Preparer(
            node=self.node,
            driver=Driver(
                DriverRoot(PurePosixPath("/drv"), self.root / "driver"),
                devices=self.root / "none",
                machine="x86_64",
            ),
            ledger=self.ledger,
            directories=self.directories,
            store=self.store,
            steps=Steps(
                took=lambda step, _seconds: self.times.append(step),
                clock=time.monotonic,
                reached=self._reached,
            ),
            fetch=self.fetch,
        )

    def _reached(self, step: Step) -> None:
        self.reached(step)

    async def fetch(self, ref: ClaimRef) -> dict[str, Any]:
        await asyncio.sleep(self.fetch_delay)
        if ref.name not in self.claims:
            raise GoneError(f"ResourceClaim {ref} does not exist any more")
        return self.claims[ref.name]

    def put(self, raw: dict[str, Any]) -> None:
        self.claims[raw["metadata"]["name"]] = raw

    def files(self) -> set[str]:
        """Everything that is there for claims; the library and empty directories are not."""
        roots = (self.root / "state/ledger", self.root / "run", self.root / "cdi")
        return {
            str(path.relative_to(self.root))
            for root in roots
            for path in root.rglob("*")
            if not path.is_dir()
        } | {str(path.relative_to(self.root)) for path in (self.root / "run/claims").glob("*")}
