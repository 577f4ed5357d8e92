"""One asynchronous client of the API server: raw JSON in, raw JSON out, errors by consequence.

Objects stay dictionaries, so fields that this release does not know survive. Nothing is retried here except a
request refused with 401 after the token file has changed; the caller knows whether a second try makes sense,
and when: what the server asked to wait is in the error. No limit of our own slows requests down.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, TypedDict

import msgspec

from kube import paths
from kube.configuration import Connection
from kube.errors import ApiError, Unavailable, from_response, from_status
from kube.transport import Response, Transport

_log = logging.getLogger(__name__)

_TOKEN_AGE = 60.0  # seconds; kubelet renews projected tokens long before they expire
_NO_PARAMS: Mapping[str, str] = {}
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Call:
    """One request; `code` is 200 for any success, 0 for no answer. A watch counts until its first byte.

    `verb` is RBAC's (get, list, watch, create, update, patch, delete), `resource` the plural, with `/status`
    for that subresource.
    """

    verb: str
    resource: str
    code: int
    seconds: float


class WatchEvent(TypedDict):
    """ADDED, MODIFIED, DELETED or BOOKMARK. An ERROR event is raised, never yielded."""

    type: str
    object: dict[str, Any]


class _Token:
    """The bearer token: read again when its file has changed, each minute, and on 401."""

    def __init__(self, connection: Connection) -> None:
        self._file = connection.token_file
        self._value = connection.token
        self._changed = 0.0
        self._read = float("-inf")

    def current(self) -> str | None:
        if self._file is not None:
            changed = self._file.stat().st_mtime
            if changed != self._changed or time.monotonic() - self._read > _TOKEN_AGE:
                self._value = self._file.read_text().strip()
                self._changed, self._read = changed, time.monotonic()
        return self._value

    def refreshed(self, refused: str | None) -> bool:
        """Reads the file again; says whether that brought another token than the refused one."""
        if self._file is None:
            return False
        self._read = float("-inf")
        return self.current() != refused


class _Tls:
    """What new connections are checked by: made again when its files have changed, as a cluster's CA does."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        files = (connection.ca_file, connection.client_cert, connection.client_key)
        self._files = [file for file in files if file is not None]
        self._changed: list[int] | None = None
        self._context: ssl.SSLContext | None = None

    def current(self) -> ssl.SSLContext:
        """Raises OSError; but once there was one it stays, whatever becomes of the files."""
        try:
            changed = [file.stat().st_mtime_ns for file in self._files]
            if self._context is None or changed != self._changed:
                self._context, self._changed = _tls(self._connection), changed
        except OSError as error:
            if self._context is None:
                raise
            _log.warning("the files of TLS can't be read anew: %s", error)
        return self._context


class Client:
    """Use as an asynchronous context manager; one per process is enough, it is safe for concurrent tasks."""

    def __init__(
        self,
        connection: Connection,
        *,
        user_agent: str,
        timeout: float = 10.0,
        observe: Callable[[Call], None] = lambda _: None,
    ) -> None:
        self.connection = connection
        self._token = _Token(connection)
        self._user_agent = user_agent
        self._timeout = timeout
        self._observe = observe
        self._transport: Transport | None = None

    async def __aenter__(self) -> Self:
        tls = _Tls(self.connection).current if self.connection.server.startswith("https:") else None
        if tls is not None:
            tls()  # what can't be used is told at once
        self._transport = Transport(self.connection.server, tls=tls, server_name=self.connection.server_name)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._transport is not None:
            self._transport.close()
            self._transport = None

    async def get(self, path: str, *, params: Mapping[str, str] = _NO_PARAMS) -> dict[str, Any]:
        """One object, or one page of a list."""
        return await self._call("GET", path, params=params)

    async def create(
        self, path: str, body: Mapping[str, Any], *, params: Mapping[str, str] = _NO_PARAMS
    ) -> dict[str, Any]:
        """POSTs to a collection; the object as stored. Raises AlreadyExists."""
        return await self._call("POST", path, body=body, params=params)

    async def replace(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """PUTs the whole object; with metadata.resourceVersion in it, raises Conflict if it moved on."""
        return await self._call("PUT", path, body=body)

    async def patch(
        self,
        path: str,
        body: Any,
        *,
        content_type: str = "application/merge-patch+json",
        params: Mapping[str, str] = _NO_PARAMS,
    ) -> dict[str, Any]:
        """Merge patch by default; `application/json-patch+json` takes a list of operations."""
        return await self._call("PATCH", path, body=body, content_type=content_type, params=params)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> None:
        """Deletes, if the object still is the one meant (else Conflict). Raises NotFound."""
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in expected.items() if value is not None}
        body = {"kind": "DeleteOptions", "apiVersion": "v1"} | (
            {"preconditions": preconditions} if preconditions else {}
        )
        await self._call("DELETE", path, body=body)

    async def watch(
        self, path: str, *, params: Mapping[str, str], inactivity: float = 75.0
    ) -> AsyncIterator[WatchEvent]:
        """The events of one watch request, bookmarks included; ends when the server ends the stream.

        Raises Gone (in the stream or as HTTP status), Unavailable when nothing at all arrives for
        `inactivity` seconds or the connection breaks, and other ApiErrors as the server answers.
        """
        asked = {**params, "watch": "true"}
        with self._asking("GET", path, asked):
            async with asyncio.timeout(self._timeout):
                response = await self._send("GET", path, params=asked, is_stream=True)
        with response:
            unfinished = bytearray()
            searched = 0
            try:
                async for chunk in response.chunks(silence=inactivity):
                    unfinished += chunk
                    while (end := unfinished.find(b"\n", searched)) >= 0:
                        line = bytes(unfinished[:end])
                        del unfinished[: end + 1]
                        searched = 0
                        if line.strip():
                            yield _event(line)
                    searched = len(unfinished)
            except TimeoutError as error:
                raise Unavailable(
                    0, "Silent", f"the watch of {path} was silent for {inactivity:g} s"
                ) from error
            except OSError as error:
                raise Unavailable(0, "ConnectionLost", f"the watch of {path} broke: {error!r}") from error

    async def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        content_type: str = "application/json",
        params: Mapping[str, str] = _NO_PARAMS,
    ) -> dict[str, Any]:
        with self._asking(method, path, params):
            async with asyncio.timeout(self._timeout):
                with await self._send(
                    method, path, params=params, body=body, content_type=content_type
                ) as response:
                    answer = await response.read()
        _show(method, path, body, answer)
        try:
            decoded = msgspec.json.decode(answer)
        except msgspec.DecodeError as error:
            raise Unavailable(0, "NotJson", f"{method} {path}: the answer is not JSON ({error})") from error
        if not isinstance(decoded, dict):
            raise Unavailable(0, "NotJson", f"{method} {path}: the answer is not an object")
        return decoded

    @contextmanager
    def _asking(self, method: str, path: str, params: Mapping[str, str]) -> Iterator[None]:
        """Tells who observes what became of the request; an OSError becomes an ApiError."""
        began = time.monotonic()
        code = 0
        try:
            yield
            code = 200
        except ApiError as error:
            code = error.status
            raise
        except OSError as error:
            raise _no_answer(method, path, error) from error
        finally:
            resource, is_named = paths.resource(path)
            verb = _VERBS.get(method) or _reading(is_named=is_named, is_watch="watch" in params)
            self._observe(Call(verb, resource, code, time.monotonic() - began))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        body: Any = None,
        content_type: str = "application/json",
        is_stream: bool = False,
    ) -> Response:
        """The response, its body unread, if its status is success. Raises OSError, and ApiError otherwise."""
        if self._transport is None:
            raise RuntimeError("the client is not open: use it in `async with`")
        data = None if body is None else msgspec.json.encode(body)
        headers = {"User-Agent": self._user_agent, "Accept": "application/json"}
        if data is not None:
            headers["Content-Type"] = content_type
        for attempt in (1, 2):
            token = self._token.current()
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            response = await self._transport.request(
                method, path, params=params, headers=headers, body=data, is_stream=is_stream
            )
            if response.status < 300:
                return response
            with response:
                refusal = await response.read()
            if response.status == 401 and attempt == 1 and self._token.refreshed(token):
                continue
            raise from_response(response.status, refusal, response.headers.get("retry-after"))
        raise AssertionError("unreachable")


def _reading(*, is_named: bool, is_watch: bool) -> str:
    if is_watch:
        return "watch"
    return "get" if is_named else "list"


def _show(method: str, path: str, body: Any, answer: bytes) -> None:
    """Payloads, for those who asked for debug lines; never those of Secrets."""
    if _log.isEnabledFor(logging.DEBUG) and "/secrets" not in path:
        sent = "" if body is None else f" {msgspec.json.encode(body).decode()}"
        _log.debug("%s %s%s: %s", method, path, sent, answer.decode(errors="replace"))


def _no_answer(method: str, path: str, error: Exception) -> ApiError:
    if isinstance(error, TimeoutError):
        return Unavailable(0, "Timeout", f"{method} {path}: no answer in time")
    return Unavailable(0, "NoConnection", f"{method} {path}: {error}")


def _event(line: bytes) -> WatchEvent:
    try:
        event = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise Unavailable(0, "NotJson", f"the watch sent a line that is not JSON ({error})") from error
    if not isinstance(event, dict) or not isinstance(event.get("object"), dict):
        raise Unavailable(0, "NotJson", "the watch sent a line that is not an event")
    if event.get("type") == "ERROR":
        raise from_status(event["object"])
    return WatchEvent(type=str(event.get("type")), object=event["object"])


def _tls(connection: Connection) -> ssl.SSLContext:
    context = ssl.create_default_context(
        cafile=None if connection.ca_file is None else str(connection.ca_file)
    )
    if not connection.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_cert is not None:
        key = None if connection.client_key is None else str(connection.client_key)
        context.load_cert_chain(str(connection.client_cert), key)
    return context
