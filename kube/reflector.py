"""A local copy of a collection of the API server that follows it through everything a network does.

Lists (in pages), then watches with bookmarks from the list's resource version. A stream that ends or breaks
is taken up again where it stopped; a version that is too old (410, in the stream or as an HTTP status) leads
to a new list, whose differences are reported as changes, so that no DELETED is ever lost. A stream on which
nothing arrives, not even a bookmark, is given up after `inactivity` seconds: a half-open connection looks
exactly like a quiet one. Every way to fail is slowed down by one jittered back-off, which a stream that lived
for a while resets. Meanwhile the last copy stays readable.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NoReturn

from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Gone

_log = logging.getLogger(__name__)
_NO_PARAMS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Change:
    """One object has come, changed or gone. `object` of a DELETED is its last known state."""

    kind: Literal["ADDED", "MODIFIED", "DELETED"]
    key: str
    object: dict[str, Any]
    old: dict[str, Any] | None


class Reflector:
    """`objects` maps `namespace/name`, or `name` for cluster-scoped objects, to the latest raw object.

    `on_change` is called synchronously, in order, with `objects` already up to date; what it raises ends
    `run`. `reduced` makes of an object what is worth keeping of it; namespace, name, uid and resourceVersion
    in its metadata have to stay.
    """

    def __init__(
        self,
        client: Client,
        path: str,
        *,
        params: Mapping[str, str] = _NO_PARAMS,
        on_change: Callable[[Change], None] | None = None,
        reduced: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
        inactivity: float = 75.0,
        page: int = 500,
        healthy_after: float = 5.0,
    ) -> None:
        self._client = client
        self._path = path
        self._params = dict(params)
        self._on_change = on_change
        self._reduced = reduced or (lambda item: item)
        self._clock = clock
        self._backoff = backoff
        self._inactivity = inactivity
        self._page = page
        self._healthy_after = healthy_after
        self._objects: dict[str, dict[str, Any]] = {}
        self._version: str | None = None
        self._synced = asyncio.Event()
        self._heard = clock()
        self._failures = 0
        self.last_error: ApiError | None = None

    @property
    def objects(self) -> Mapping[str, dict[str, Any]]:
        return MappingProxyType(self._objects)

    @property
    def has_synced(self) -> bool:
        """Whether the collection has been listed once."""
        return self._synced.is_set()

    @property
    def silence(self) -> float:
        """Seconds since the API server last said anything about this collection."""
        return self._clock() - self._heard

    async def synced(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - adds the reason
        """Returns after the first list; raises TimeoutError, which names the last failure."""
        try:
            async with asyncio.timeout(timeout):
                await self._synced.wait()
        except TimeoutError as error:
            reason = f": {self.last_error}" if self.last_error else ""
            raise TimeoutError(f"no list of {self._path} within {timeout} s{reason}") from error

    async def tell_until_synced(self, tell: Callable[[str], None], every: float = 5.0) -> None:
        """Returns after the first list; `tell` is told why there is none yet, every so many seconds."""
        while not self.has_synced:
            try:
                await self.synced(every)
            except TimeoutError as error:
                tell(str(error))

    async def run(self) -> NoReturn:
        """Follows the collection until cancelled."""
        while True:
            began = self._clock()
            retry_after = None
            try:
                if self._version is None:
                    await self._list()
                    began = self._clock()
                await self._follow()
            except ApiError as error:
                retry_after = error.retry_after
                if isinstance(error, Gone):
                    self._version = None
                # A quiet collection whose stream is cut now and then is nothing to report as a failure.
                level = (
                    logging.DEBUG if isinstance(error, Gone) or error.reason == "Silent" else logging.WARNING
                )
                _log.log(level, "%s: %s", self._path, error)
                self.last_error = error
            lived = self._clock() - began
            self._failures = 0 if lived >= self._healthy_after else self._failures + 1
            pause = max(self._backoff.delay(self._failures, retry_after), self._backoff.first / 2 - lived)
            await asyncio.sleep(pause)

    async def _list(self) -> None:
        found: dict[str, dict[str, Any]] = {}
        token = ""
        while True:
            page = {"limit": str(self._page)} | ({"continue": token} if token else {})
            answer = await self._client.get(self._path, params=self._params | page)
            self._heard = self._clock()
            found |= {_key(item): self._reduced(item) for item in answer.get("items") or ()}
            metadata = answer.get("metadata") or {}
            token = metadata.get("continue") or ""
            if not token:
                break
        for key in [key for key in self._objects if key not in found]:
            self._remove(key, self._objects[key])
        for key, item in found.items():
            self._store(key, item)
        self._version = metadata.get("resourceVersion") or ""
        self._synced.set()

    async def _follow(self) -> None:
        # The server ends the stream itself, at a time of its own for each client, so that they spread.
        seconds = random.randint(300, 600)  # noqa: S311 - spreads load, no secret
        params = self._params | {
            "resourceVersion": self._version or "",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        async for event in self._client.watch(self._path, params=params, inactivity=self._inactivity):
            self._heard = self._clock()
            item = event["object"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self._store(_key(item), self._reduced(item))
            elif event["type"] == "DELETED":
                self._remove(_key(item), self._reduced(item))
            version = (item.get("metadata") or {}).get("resourceVersion")
            if version:
                self._version = version

    def _store(self, key: str, item: dict[str, Any]) -> None:
        old = self._objects.get(key)
        if old is not None and _version(old) == _version(item):
            return  # seen before: a list after 410 repeats what has not changed
        self._objects[key] = item
        if old is not None and _uid(old) != _uid(item):
            # Deleted and made anew while nobody watched: two changes, not one.
            self._report(Change("DELETED", key, old, old))
            old = None
        self._report(Change("ADDED" if old is None else "MODIFIED", key, item, old))

    def _remove(self, key: str, item: dict[str, Any]) -> None:
        old = self._objects.pop(key, None)
        if old is not None:
            self._report(Change("DELETED", key, item, old))

    def _report(self, change: Change) -> None:
        if self._on_change is not None:
            self._on_change(change)


def _key(item: dict[str, Any]) -> str:
    metadata = item["metadata"]
    namespace = metadata.get("namespace")
    return f"{namespace}/{metadata['name']}" if namespace else str(metadata["name"])


def _version(item: dict[str, Any]) -> str | None:
    return (item.get("metadata") or {}).get("resourceVersion")


def _uid(item: dict[str, Any]) -> str | None:
    return (item.get("metadata") or {}).get("uid")
