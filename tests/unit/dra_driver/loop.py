from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from typing import Any

from dra_driver.claims import stock
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.reconcile import OUTCOMES, Reconciler
from dra_driver.conditions import Conditions
from dra_driver.names import ClaimUID
from tests.unit.dra_driver.allocations import NODE
from tests.unit.dra_driver.world import World


class Loop:
    """A reconciler on a world, with a clock that is turned by hand."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.now = 0.0
        self.conditions = Conditions()
        self.done: Counter[str] = Counter()
        self._something = asyncio.Event()
        self.restart()

    def restart(self) -> None:
        self.reconciler = Reconciler(
            node=NODE,
            ledger=self.world.ledger,
            directories=self.world.directories,
            store=self.world.store,
            preparer=self.world.preparer,
            lock=self.world.lock,
            lead=self.world.lead,
            conditions=self.conditions,
            fetch=self.fetch,
            search=self.search,
            tidy=self.tidy,
            count=self.count,
            period=60.0,
            clock=lambda: self.now,
        )

    async def fetch(self, ref: ClaimRef) -> dict[str, Any]:
        return await self.world.fetch(ref)

    async def search(self, uids: Collection[ClaimUID]) -> dict[ClaimUID, dict[str, Any]]:
        return await self.world.search(uids)

    def tidy(self) -> None:
        stock.tidy_library(self.world.root / "state", self.world.node, self.world.ledger)

    def count(self, action: str) -> None:
        assert action in OUTCOMES
        self.done[action] += 1
        self._something.set()

    async def has_done(self) -> None:
        async with asyncio.timeout(60):
            await self._something.wait()

    async def look(self, times: int = 1, seconds: float = 60.0) -> dict[str, int]:
        """What was done in so many rounds."""
        self.done.clear()
        for _ in range(times):
            await self.reconciler.look()
            self.now += seconds
        return dict(self.done)
