"""What replicas tell each other: the Pods that have been let in and are not to be seen yet.

One ConfigMap for each namespace that has a quota, in our own namespace, where tenants can't reach it. It is
written under its resource version, so of two replicas that let somebody in at the same time one has to count
again. It belongs to our Lease, and goes with it. If it is lost, so is the memory of the last second.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from claim_mutator.names import MANAGED_BY, MUTATOR
from claim_mutator.quota.usage import Reservation
from kube import paths
from kube.client import Client
from kube.errors import NotFound

_log = logging.getLogger(__name__)
_DATA = "reservations"
_OF = "tessera.dev/quota-of"


@dataclass(frozen=True)
class Page:
    """version: None for one that is not there yet."""

    reservations: tuple[Reservation, ...] = ()
    version: str | None = None
    document: dict[str, Any] = field(default_factory=dict)


class Ledger:
    """`lease`: the name of our Lease, the pages' owner."""

    def __init__(self, client: Client, namespace: str, lease: str) -> None:
        self._client = client
        self._namespace = namespace
        self._lease = lease
        self._owner: list[dict[str, Any]] | None = None

    async def read(self, namespace: str) -> Page:
        """Raises ApiError."""
        try:
            return _page(await self._client.get(paths.config_map(self._namespace, _name(namespace))))
        except NotFound:
            return Page()

    async def write(self, namespace: str, page: Page, reservations: Iterable[Reservation]) -> Page:
        """Raises Conflict or AlreadyExists where somebody else has written meanwhile, and NotFound."""
        kept = tuple(reservations)
        document = page.document | {"data": {_DATA: msgspec.json.encode(kept).decode()}}
        if page.version is None:
            document |= {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {
                    "name": _name(namespace),
                    "labels": {MANAGED_BY: MUTATOR, _OF: namespace},
                    "ownerReferences": await self._owners(),
                },
            }
            return _page(await self._client.create(paths.config_maps(self._namespace), document))
        path = paths.config_map(self._namespace, _name(namespace))
        return _page(await self._client.replace(path, document))

    async def forget(self, namespace: str) -> None:
        """The page of a namespace that has no quota any more."""
        with contextlib.suppress(NotFound):
            await self._client.delete(paths.config_map(self._namespace, _name(namespace)))

    async def _owners(self) -> list[dict[str, Any]]:
        if self._owner is None:
            try:
                lease = await self._client.get(paths.lease(self._namespace, self._lease))
            except NotFound:  # the next page has an owner again
                return []
            self._owner = [
                {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "name": self._lease,
                    "uid": lease["metadata"]["uid"],
                }
            ]
        return self._owner


def _name(namespace: str) -> str:
    return f"tessera-quota-{namespace}"


def _page(document: dict[str, Any]) -> Page:
    """What somebody made unreadable is as good as lost."""
    text = (document.get("data") or {}).get(_DATA) or "[]"
    try:
        found = msgspec.json.decode(text, type=tuple[Reservation, ...])
    except msgspec.DecodeError as error:
        _log.warning("ConfigMap %s can't be read, and is begun anew: %s", document["metadata"]["name"], error)
        found = ()
    return Page(found, document["metadata"]["resourceVersion"], document)
