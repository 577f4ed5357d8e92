"""What the conversion needs to know of the cluster: the cards' memory sizes, and what the server can do.

Sizes come from our own ResourceSlices, followed by a reflector; the version is asked for at the start and now
and then, because API servers are upgraded under running Pods.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from claim_mutator.names import CAPACITY_MEMORY, DRIVER
from claim_mutator.template import Cluster
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError
from kube.quantity import QuantityError, parse_quantity
from kube.reflector import Change, Reflector

_log = logging.getLogger(__name__)

OLDEST = (1, 35)
DISTINCT_COUNTS = (1, 36)
_VERSION_AGE = 600.0  # seconds


class UnsupportedServer(Exception):  # noqa: N818 - what it is
    """This release of Kubernetes can't do what is needed; the message says what to do."""


class ClusterFacts:
    """`cluster` is always the latest that is known."""

    def __init__(self, client: Client, device_class: str) -> None:
        self._client = client
        self._device_class = device_class
        self._sizes: dict[str, frozenset[int]] = {}
        self._version: tuple[int, int] | None = None
        self.cluster = Cluster(device_class=device_class)
        self.slices = Reflector(
            client,
            paths.resource_slices(),
            params={"fieldSelector": f"spec.driver={DRIVER}"},
            on_change=self._slice_changed,
        )

    @property
    def missing(self) -> str | None:
        """What is not known yet, or None."""
        if self._version is None:
            return "the API server's version is not known yet"
        return None if self.slices.has_synced else "the ResourceSlices are not listed yet"

    async def run(self) -> NoReturn:
        """Raises UnsupportedServer, at the start only: a server that was good enough is not left later."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.slices.run(), name="resource slices")
            await self._follow_version()
        raise AssertionError("unreachable")

    async def _follow_version(self) -> NoReturn:
        backoff, failures = Backoff(), 0
        while True:
            try:
                version = parse_version(await self._client.get(paths.VERSION))
            except ApiError as error:
                _log.warning("the API server's version: %s", error)
                failures += 1
                await asyncio.sleep(backoff.delay(failures, error.retry_after))
                continue
            failures = 0
            if self._version is None and version < OLDEST:
                raise UnsupportedServer(
                    f"Kubernetes {version[0]}.{version[1]} can't share devices reliably: upgrade to"
                    f" {OLDEST[0]}.{OLDEST[1]} or later"
                )
            if version != self._version:
                _log.info("Kubernetes %d.%d", *version)
                self._version = version
                self._update()
            await asyncio.sleep(_VERSION_AGE)

    def _slice_changed(self, change: Change) -> None:
        sizes = frozenset() if change.kind == "DELETED" else memory_sizes(change.object)
        if self._sizes.get(change.key, frozenset()) == sizes:
            return
        if sizes:
            self._sizes[change.key] = sizes
        else:
            del self._sizes[change.key]
        self._update()

    def _update(self) -> None:
        sizes = tuple(sorted(frozenset().union(*self._sizes.values())))
        if sizes != self.cluster.card_sizes:
            _log.info("memory sizes of the cluster's cards: %s MiB", [size >> 20 for size in sizes])
        distinct = self._version is None or self._version >= DISTINCT_COUNTS
        self.cluster = Cluster(sizes, distinct, self._device_class)


def parse_version(answer: Mapping[str, Any]) -> tuple[int, int]:
    """The body of /version → (1, 36); managed clusters write minor as `36+`."""
    numbers = [re.match(r"\d+", str(answer.get(key, ""))) for key in ("major", "minor")]
    major, minor = (int(number.group()) if number else 0 for number in numbers)
    return major, minor


def memory_sizes(resource_slice: Mapping[str, Any]) -> frozenset[int]:
    """Bytes of memory of the shareable devices of one ResourceSlice."""
    sizes = set()
    for device in (resource_slice.get("spec") or {}).get("devices") or ():
        memory = (device.get("capacity") or {}).get(CAPACITY_MEMORY)
        if memory is None or not device.get("allowMultipleAllocations"):
            continue
        try:
            size = int(parse_quantity(memory["value"]))
        except (QuantityError, KeyError, TypeError) as error:
            _log.warning("device %s: memory is not readable: %s", device.get("name"), error)
            continue
        if size > 0:
            sizes.add(size)
    return frozenset(sizes)
