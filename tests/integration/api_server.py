"""A fake API server: any collection, lists in pages, watches, conflicts, and faults on request.

It knows nothing of the objects' meaning (no validation, no controllers): where that matters, tests run a
real one.

    async with ApiServer() as api:
        api.put("/api/v1/nodes", {"metadata": {"name": "a"}})
        client = Client(api.connection, user_agent="test")
        api.refuse(503, retry_after=1, times=3)
"""

from __future__ import annotations

import asyncio
import copy
import json
import ssl
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import jsonpatch
from aiohttp import web

from kube.configuration import Connection
from tests.integration.api_objects import (
    Object,
    belongs,
    default_times,
    key_of,
    matches,
    merge_patch,
    split_path,
)


@dataclass(frozen=True)
class Seen:
    """One request that arrived."""

    at: float
    method: str
    path: str
    params: dict[str, str]
    headers: dict[str, str]

    @property
    def is_watch(self) -> bool:
        return self.params.get("watch") == "true"


@dataclass(frozen=True)
class _Event:
    version: int
    kind: str
    collection: str
    key: tuple[str, str]
    object: Object
    old: Object | None = None


@dataclass
class _Refusal:
    status: int
    when: Callable[[Seen], bool]
    times: int
    reason: str = "Injected"
    headers: dict[str, str] = field(default_factory=dict)


class ApiServer:
    """Listens on a free port of 127.0.0.1, with TLS if given; `stop` and `start` keep port and objects."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self.requests: list[Seen] = []
        self.watch_fault: Callable[[Seen], str | None] = lambda _: None
        """May answer 'silent', 'gone' (an ERROR event 410), 'close' or 'reset' for a watch that begins."""
        self.server_version = {"major": "1", "minor": "37", "gitVersion": "v1.37.2"}
        self._objects: dict[str, dict[tuple[str, str], Object]] = {}
        self._version = 100
        self._oldest = 0
        self._history: deque[_Event] = deque()
        self._changed = asyncio.Condition()
        self._refusals: list[_Refusal] = []
        self._delays: list[tuple[float, Callable[[Seen], bool]]] = []
        self._held: list[tuple[asyncio.Event, Callable[[Seen], bool]]] = []
        self._streams: dict[web.StreamResponse, web.Request] = {}
        self._ended: set[web.StreamResponse] = set()
        self._runner: web.AppRunner | None = None
        self.port = 0

    # --- for tests ----------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def connection(self) -> Connection:
        return Connection(server=self.url)

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for this server, for processes under test."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "fake", "cluster": {"server": self.url}}],
                    "users": [{"name": "fake", "user": {"token": "secret"}}],
                    "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
                    "current-context": "fake",
                }
            )
        )
        return path

    def put(self, collection: str, item: Object) -> Object:
        """Creates or replaces an object of `collection` (a path such as /api/v1/nodes), as if by somebody."""
        key = key_of(item)
        exists = key in self._objects.setdefault(collection, {})
        return self._store(collection, key, copy.deepcopy(item), "MODIFIED" if exists else "ADDED")

    def drop(self, collection: str, name: str, namespace: str = "") -> None:
        key = (namespace, name)
        gone = self._objects[collection].pop(key)
        self._version += 1
        gone["metadata"]["resourceVersion"] = str(self._version)
        self._record(_Event(self._version, "DELETED", collection, key, gone))

    def all(self, collection: str) -> list[Object]:
        """The collection's objects, of all namespaces for a path without one."""
        return [item for _, item in self._select(collection, {})]

    def compact(self) -> None:
        """Forgets the past: watches from before now are answered with 410."""
        self._history.clear()
        self._oldest = self._version

    def refuse(
        self,
        status: int,
        *,
        times: int = 1,
        when: Callable[[Seen], bool] = lambda _: True,
        reason: str = "Injected",
        retry_after: int | None = None,
    ) -> None:
        """Answers the next `times` requests that `when` picks with `status`."""
        headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
        self._refusals.append(_Refusal(status, when, times, reason, headers))

    def hold(self, *, when: Callable[[Seen], bool]) -> asyncio.Event:
        """Such requests are answered once the event is set."""
        released = asyncio.Event()
        self._held.append((released, when))
        return released

    def delay(self, seconds: float, *, when: Callable[[Seen], bool] = lambda _: True) -> None:
        """Answers requests that `when` picks so much later, from now on."""
        self._delays.append((seconds, when))

    async def end_streams(self) -> None:
        """Ends all running watches properly, as a server does at timeoutSeconds."""
        self._ended.update(self._streams)
        await self._wake()

    def reset_streams(self) -> None:
        """Cuts all running watches by a TCP reset."""
        for request in self._streams.values():
            if request.transport is not None:
                request.transport.abort()

    async def bookmark(self) -> None:
        """Sends a bookmark of the present version on all running watches."""
        for stream in list(self._streams):
            mark = {"kind": "Bookmark", "metadata": {"resourceVersion": str(self._version)}}
            await stream.write(json.dumps({"type": "BOOKMARK", "object": mark}).encode() + b"\n")

    @property
    def open_watches(self) -> int:
        return len(self._streams)

    # --- life ---------------------------------------------------------------------------------------------

    async def start(self) -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True, ssl_context=self._tls)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.port = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self.reset_streams()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    # --- requests -----------------------------------------------------------------------------------------

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        seen = Seen(time.monotonic(), request.method, path, dict(request.query), dict(request.headers))
        self.requests.append(seen)
        await asyncio.sleep(max((seconds for seconds, when in self._delays if when(seen)), default=0))
        for released, when in self._held:
            if when(seen):
                await released.wait()
        for refusal in self._refusals:
            if refusal.times > 0 and refusal.when(seen):
                refusal.times -= 1
                return _failure(refusal.status, refusal.reason, "injected by the test", refusal.headers)
        if path == "/version":
            return web.json_response(self.server_version)
        split = split_path(path)
        if split is None:
            return _failure(404, "NotFound", f"no such path: {path}")
        collection, namespace, name = split
        if name is None:
            if request.method == "POST":
                return await self._create(request, collection, namespace)
            if seen.is_watch:
                return await self._watch(request, seen)
            return self._list(path, seen.params)
        key = (namespace, name)
        found = self._objects.get(collection, {}).get(key)
        if found is None:
            return _failure(404, "NotFound", f"{path} not found")
        if request.method == "GET":
            return web.json_response(found)
        body = await request.json() if request.can_read_body else {}
        if request.method == "DELETE":
            return self._delete(collection, key, found, body)
        return self._change(request, collection, key, found, body)

    async def _create(self, request: web.Request, collection: str, namespace: str) -> web.Response:
        item = await request.json()
        metadata = item.setdefault("metadata", {})
        if namespace:
            metadata["namespace"] = namespace
        if "name" not in metadata:
            metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
        key = (namespace, metadata["name"])
        if key in self._objects.setdefault(collection, {}):
            return _failure(409, "AlreadyExists", f"{metadata['name']} already exists")
        if request.query.get("dryRun"):
            return web.json_response(item, status=201)
        return web.json_response(self._store(collection, key, item, "ADDED"), status=201)

    def _change(
        self, request: web.Request, collection: str, key: tuple[str, str], found: Object, body: Any
    ) -> web.Response:
        if request.method == "PUT":
            changed = body
        elif request.content_type == "application/json-patch+json":
            changed = jsonpatch.apply_patch(copy.deepcopy(found), body)
        else:
            changed = merge_patch(copy.deepcopy(found), body)
        wanted = changed.get("metadata", {}).get("resourceVersion")
        if wanted is not None and wanted != found["metadata"]["resourceVersion"]:
            return _failure(409, "Conflict", "the object has been modified")
        changed["metadata"]["uid"] = found["metadata"]["uid"]
        return web.json_response(self._store(collection, key, changed, "MODIFIED"))

    def _delete(self, collection: str, key: tuple[str, str], found: Object, body: Any) -> web.Response:
        for field_name, value in (body.get("preconditions") or {}).items():
            if found["metadata"].get(field_name) != value:
                return _failure(409, "Conflict", f"precondition failed: {field_name}")
        namespace, name = key
        self.drop(collection, name, namespace)
        return web.json_response({"kind": "Status", "status": "Success"})

    def _list(self, path: str, params: dict[str, str]) -> web.Response:
        items = [item for _, item in self._select(path, params)]
        offset, _, version = params.get("continue", "0:").partition(":")
        if version and int(version) < self._oldest:
            return _failure(410, "Expired", "the continue token is too old")
        limit = int(params.get("limit") or len(items) or 1)
        metadata = {"resourceVersion": version or str(self._version)}
        if int(offset) + limit < len(items):
            metadata["continue"] = f"{int(offset) + limit}:{metadata['resourceVersion']}"
        return web.json_response({"metadata": metadata, "items": items[int(offset) : int(offset) + limit]})

    async def _watch(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        since = int(seen.params.get("resourceVersion") or self._version)
        fault = self.watch_fault(seen)
        if since < self._oldest:
            return _failure(410, "Expired", f"too old resource version: {since} ({self._oldest})")
        stream = web.StreamResponse()
        stream.content_type = "application/json"
        await stream.prepare(request)
        self._streams[stream] = request
        try:
            if fault == "gone":
                status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
                await stream.write(json.dumps({"type": "ERROR", "object": status}).encode() + b"\n")
                return stream
            if fault == "reset" and request.transport is not None:
                await asyncio.sleep(0.01)
                request.transport.abort()
            while fault not in ("close", "reset") and stream not in self._ended:
                if fault != "silent":
                    since = await self._send(stream, request.path, seen.params, since)
                async with self._changed:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            await self._changed.wait()
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._streams.pop(stream, None)
        return stream

    async def _send(self, stream: web.StreamResponse, path: str, params: dict[str, str], since: int) -> int:
        for event in list(self._history):
            if event.version <= since or not belongs(event.collection, event.key, path):
                continue
            kind = event.kind
            if not matches(event.object, params):
                if event.old is None or not matches(event.old, params):
                    continue
                kind = "DELETED"  # for this watch it is gone
            await stream.write(json.dumps({"type": kind, "object": event.object}).encode() + b"\n")
        return self._version

    # --- objects ------------------------------------------------------------------------------------------

    def _store(self, collection: str, key: tuple[str, str], item: Object, kind: str) -> Object:
        self._version += 1
        metadata = item["metadata"]
        metadata["resourceVersion"] = str(self._version)
        old = self._objects.setdefault(collection, {}).get(key)
        metadata["uid"] = old["metadata"]["uid"] if old else metadata.get("uid") or str(uuid.uuid4())
        metadata.setdefault("creationTimestamp", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        default_times(item)
        self._objects[collection][key] = item
        self._record(_Event(self._version, kind, collection, key, copy.deepcopy(item), old))
        return item

    def _record(self, event: _Event) -> None:
        self._history.append(event)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _select(self, path: str, params: dict[str, str]) -> Iterator[tuple[tuple[str, str], Object]]:
        for collection, objects in self._objects.items():
            for key, item in sorted(objects.items()):
                if belongs(collection, key, path) and matches(item, params):
                    yield key, item


def _failure(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    status = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(status, status=code, headers=headers)
