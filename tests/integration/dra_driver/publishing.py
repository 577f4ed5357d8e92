"""A publisher of ResourceSlices that runs against a fake API server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from prometheus_client import CollectorRegistry

from dra_driver.cards.capacity import Scales
from dra_driver.cards.inventory import inventory
from dra_driver.cards.rules import Effect
from dra_driver.cards.taints import Taint
from dra_driver.conditions import Condition, Conditions
from dra_driver.metrics.counters import Metrics
from dra_driver.slices.documents import DeviceLists, device_lists
from dra_driver.slices.publisher import Publisher
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from tests.integration.api_objects import Object
from tests.integration.api_server import ApiServer
from tests.unit.dra_driver.cards import many

NODE = "node-a"
SLICES = paths.resource_slices()
QUIET = 1.2  # seconds in which a write that is wrong would have come


class Setting:
    """A publisher that runs against a fake API server."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.conditions = Conditions()
        self.registry = CollectorRegistry()
        self.publisher = Publisher(
            client=client,
            node=NODE,
            conditions=self.conditions,
            metrics=Metrics(self.registry),
            backoff=Backoff(0.05, 0.2),
            clock=lambda: time.monotonic() + self.ahead,
        )
        self.ahead = 0.0

    @property
    def slices(self) -> list[Object]:
        return self.api.all(SLICES)

    @property
    def writes(self) -> int:
        return sum(seen.method in ("POST", "PUT", "DELETE", "PATCH") for seen in self.api.requests)

    def taints(self) -> list[dict[str, str]]:
        return [
            taint
            for item in self.slices
            for device in item["spec"]["devices"]
            for taint in device.get("taints", ())
        ]

    def devices(self) -> list[str]:
        return [device["name"] for item in self.slices for device in item["spec"]["devices"]]

    async def until(self, what: Any, seconds: float = 60.0) -> None:
        async with asyncio.timeout(seconds):
            while not what():  # noqa: ASYNC110 - the fake server has no events to wait for
                await asyncio.sleep(0.02)

    async def until_published(self) -> None:
        """And it knows: the slices are there before it has the server's answer."""
        await self.until(lambda: self.slices and self.conditions[Condition.SLICES].holds)

    async def is_quiet(self) -> bool:
        before = self.writes
        await asyncio.sleep(QUIET)
        return self.writes == before


def wanted(count: int = 2, *taints: Taint, scales: Scales = Scales()) -> DeviceLists:  # noqa: B008 - immutable
    """So many cards, the first of which has the taints."""
    cards = many(count)
    found = inventory("570.124.06", "12.8.0", cards)
    return device_lists(found, scales, taints={cards[0].name: taints} if cards else {})


XID = Taint("gpu.tessera.dev/xid", "79", Effect.NO_SCHEDULE)
TOLD = Taint("gpu.tessera.dev/unmonitored", "no-events", Effect.NONE)
LOST = Taint("gpu.tessera.dev/lost", "", Effect.NO_SCHEDULE)
