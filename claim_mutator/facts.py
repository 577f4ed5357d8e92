"""What the conversion needs to know of the cluster: its cards, what the server can do, who is trusted.

Cards come from our own ResourceSlices, trusted namespaces from their label, both followed by reflectors; the
version, and whether the feature is on that shares need, are asked for at the start and now and then, because
API servers are upgraded under running Pods.
"""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from claim_mutator import capacity
from claim_mutator.cluster import OLDEST, Cluster, parse_version
from claim_mutator.names import DRIVER, TRUSTED_LABEL
from claim_mutator.slices import NOTHING, Stock, cluster_of, stock_of
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Unavailable
from kube.reflector import Change, Reflector

_log = logging.getLogger(__name__)

_VERSION_AGE = 600.0  # seconds


class UnsupportedServer(Exception):  # noqa: N818 - what it is
    """This release of Kubernetes can't do what is needed; the message says what to do."""


class ClusterFacts:
    """Followed by `run`."""

    def __init__(self, client: Client, namespace: str) -> None:
        """namespace: where we may create templates; only a dry run does."""
        self._client = client
        self._namespace = namespace
        self._drops_capacity = False
        self._stocks: dict[str, Stock] = {}
        self._version: tuple[int, int] | None = None
        self._cluster: Cluster | None = Cluster()
        self._sizes: tuple[int, ...] = ()
        self.slices = Reflector(
            client,
            paths.resource_slices(),
            params={"fieldSelector": f"spec.driver={DRIVER}"},
            on_change=self._slice_changed,
        )
        self.namespaces = Reflector(
            client,
            paths.namespaces(),
            params={"labelSelector": f"{TRUSTED_LABEL}=true"},
            on_change=lambda _: self._forget(),
        )

    @property
    def missing(self) -> str | None:
        """What is not known yet, or None."""
        if self._version is None:
            return "the API server's version is not known yet"
        if not self.slices.has_synced:
            return "the ResourceSlices are not listed yet"
        return None if self.namespaces.has_synced else "the trusted namespaces are not listed yet"

    async def run(self) -> NoReturn:
        """Raises UnsupportedServer, at the start only: a server that was good enough is not left later."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.slices.run(), name="resource slices")
            tasks.create_task(self.namespaces.run(), name="trusted namespaces")
            await self._follow_server()
        raise AssertionError("unreachable")

    async def _follow_server(self) -> NoReturn:
        backoff, failures = Backoff(), 0
        while True:
            try:
                version = parse_version(await self._client.get(paths.VERSION))
                drops = await self._sees_capacity_dropped()
            except ApiError as error:
                _log.warning("the API server's version and features: %s", error)
                failures += 1
                await asyncio.sleep(backoff.delay(failures, error.retry_after))
                continue
            failures = 0
            if self._version is None and version < OLDEST:
                raise UnsupportedServer(
                    f"Kubernetes {version[0]}.{version[1]} can't share devices reliably: upgrade to"
                    f" {OLDEST[0]}.{OLDEST[1]} or later"
                )
            if (version, drops) != (self._version, self._drops_capacity):
                _log.info("Kubernetes %d.%d", *version)
                self._version, self._drops_capacity = version, drops
                self._forget()
            await asyncio.sleep(_VERSION_AGE)

    async def _sees_capacity_dropped(self) -> bool:
        """Asks for a share, on a dry run, and looks whether it comes back. Raises Unavailable."""
        path = paths.resource_claim_templates(self._namespace)
        try:
            stored = await self._client.create(path, capacity.probe(), params={"dryRun": "All"})
        except Unavailable:
            raise
        except ApiError as error:
            _log.warning("whether the API server keeps capacity requests can't be seen: %s", error)
            return self._drops_capacity
        dropped = capacity.is_dropped(stored)
        if dropped:
            _log.error("Pods with GPUs are refused: %s", capacity.DROPPED)
        return dropped

    def _slice_changed(self, change: Change) -> None:
        stock = NOTHING if change.kind == "DELETED" else stock_of(change.object)
        if self._stocks.get(change.key, NOTHING) == stock:
            return
        if stock == NOTHING:
            del self._stocks[change.key]
        else:
            self._stocks[change.key] = stock
        self._forget()

    def _forget(self) -> None:
        self._cluster = None

    @property
    def cluster(self) -> Cluster:
        """The latest that is known. Made when asked for: at the start slices come by the thousand."""
        if self._cluster is None:
            trusted = frozenset(each["metadata"]["name"] for each in self.namespaces.objects.values())
            self._cluster = cluster_of(
                self._stocks.values(),
                self._version or Cluster.version,
                trusted,
                drops_capacity=self._drops_capacity,
            )
            self._say_sizes(self._cluster.card_sizes)
        return self._cluster

    def _say_sizes(self, sizes: tuple[int, ...]) -> None:
        if sizes != self._sizes:
            _log.info("memory sizes of the cluster's cards: %s MiB", [size >> 20 for size in sizes])
            self._sizes = sizes
