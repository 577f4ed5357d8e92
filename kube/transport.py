"""HTTP/1.1 to one server: connections kept and used again, answers whole or as they arrive.

Only what a client of the API server needs: no redirects, proxies, cookies or compression. A general library
costs 8 MiB and a quarter of a second at start, which every node would pay. Everything that the network can
do is an OSError, a silence a TimeoutError. After a request its connection waits for the next one, the latest
used first. A server may close a waiting connection at any moment, so a GET that meets such an end before the
first byte of an answer is put once more.

Opening a connection with TLS takes longer than several requests: so of many requests at once, those above a
limit wait for a connection instead of opening one, and all are kept. Streams, which last, are not counted.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from asyncio import sslproto
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import quote, urlencode, urlsplit

import httptools

_KEPT = 60.0  # seconds that a connection may wait; API servers close them after 90 and more
_AHEAD = 1 << 20  # bytes of a body that wait for their reader before the server is made to wait
_LONGEST = 64 << 20  # bytes of an answer that is read as a whole
_AT_ONCE = 16  # requests; as many connections are kept, or every burst would pay for handshakes
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

# What asyncio sets aside for each connection with TLS, and once more for each read. Its own figure, 256 KiB,
# is for bulk; here answers have a few KiB, and a TLS record has at most 16.
sslproto.SSLProtocol.max_size = 1 << 15


class ProtocolError(OSError):
    """What arrived is not an answer in HTTP/1.1, or it was cut short."""


class _Connection(asyncio.Protocol):
    """One socket and the answer that it brings; asyncio calls the first methods, httptools those below."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._failure: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.since = 0.0
        self._begin()
        self.is_complete = True  # nothing has been asked yet

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.headers: dict[str, str] = {}
        self._body: deque[bytes] = deque()
        self._size = 0
        self.has_heard = False
        self.is_complete = False
        self._stays_open = False
        self._has_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream, asyncio says
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self.is_complete:
            self._fail(ProtocolError("the server sent what nobody has asked for"))
            return
        self.has_heard = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ProtocolError(f"the answer is not HTTP: {error}"))
        if self._size > _AHEAD and self._transport is not None:
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        has_length = "content-length" in self.headers or "transfer-encoding" in self.headers
        if exc is None and self._has_head and not has_length:
            self.is_complete = True  # an answer without a length ends with its connection
        why = exc if isinstance(exc, OSError) else ProtocolError("the connection was closed before the end")
        self._failure = self._failure or why
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200

    def on_body(self, chunk: bytes) -> None:
        self._body.append(chunk)
        self._size += len(chunk)

    def on_message_complete(self) -> None:
        if self._has_head:
            self.is_complete = True
            self._stays_open = self._parser.should_keep_alive()  # asked later, it always says no
        else:  # 100 Continue and the like: the answer itself is still to come
            self.headers.clear()

    @property
    def can_be_kept(self) -> bool:
        return self.is_complete and self._failure is None and self._stays_open

    def close(self) -> None:
        """At once: nobody waits for the other side's farewell."""
        if self._transport is not None:
            self._transport.abort()

    async def ask(self, message: bytes) -> None:
        """Sends a request and returns when the head of the answer is there. Raises OSError."""
        self._begin()
        if self._transport is not None and self._failure is None:
            self._transport.write(message)
        while not self._has_head:
            await self._receive()

    async def chunk(self) -> bytes:
        """The next piece of the body, empty at its end. Raises OSError."""
        while not self._body:
            if self.is_complete:
                return b""
            await self._receive()
        chunk = self._body.popleft()
        self._size -= len(chunk)
        if not self._body and self._transport is not None:
            self._transport.resume_reading()
        return chunk

    async def _receive(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _fail(self, failure: OSError) -> None:
        self._failure = failure
        self.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Response:
    """`status` and `headers` (lower case) are there; the body is read once, by `read` or by `chunks`.

    A context manager that gives the connection back.
    """

    def __init__(self, connection: _Connection, give_back: Callable[[_Connection], None]) -> None:
        self._connection = connection
        self._give_back = give_back
        self.status = connection.status
        self.headers: Mapping[str, str] = connection.headers

    def __enter__(self) -> Response:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._give_back(self._connection)

    async def read(self) -> bytes:
        """The whole body."""
        body = bytearray()
        async for chunk in self.chunks():
            body += chunk
            if len(body) > _LONGEST:
                raise ProtocolError(f"the answer is longer than {_LONGEST >> 20} MiB")
        return bytes(body)

    async def chunks(self, silence: float | None = None) -> AsyncIterator[bytes]:
        """As they arrive. Raises TimeoutError when nothing does for `silence` seconds."""
        while True:
            async with asyncio.timeout(silence):
                chunk = await self._connection.chunk()
            if not chunk:
                return
            yield chunk


class Transport:
    """`server`: scheme, host and port. `tls`: asked for each new connection; raises OSError.

    `server_name`: that of its certificate, where it isn't the host's.
    """

    def __init__(
        self, server: str, *, tls: Callable[[], ssl.SSLContext] | None, server_name: str | None = None
    ) -> None:
        parts = urlsplit(server)
        if parts.hostname is None:
            raise ValueError(f"{server!r} is not the address of a server, such as https://10.0.0.1:443")
        self._host = parts.hostname
        self._port = parts.port or (443 if tls is not None else 80)
        self._prefix = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._tls = tls
        self._server_name = (server_name or self._host) if tls is not None else None
        self._idle: list[_Connection] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._is_closed = False

    async def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None = None,
        is_stream: bool = False,
    ) -> Response:
        """Raises OSError. Close the response: one whose body was not read to its end costs the connection.

        `is_stream`: the answer takes its time, so no other request should wait for its end.
        """
        message = self._message(method, path, params, headers, body)
        may_repeat = method == "GET"
        if is_stream:
            return Response(await self._ask(message, may_repeat=may_repeat), self._put_back)
        await self._slots.acquire()
        try:
            return Response(await self._ask(message, may_repeat=may_repeat), self._give_back)
        except BaseException:
            self._slots.release()
            raise

    def close(self) -> None:
        """Ends the connections that wait; those in use end with their requests."""
        self._is_closed = True
        while self._idle:
            self._idle.pop().close()

    def _message(
        self,
        method: str,
        path: str,
        params: Mapping[str, str],
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes:
        target = (
            self._prefix + quote(path, safe="/:@!$&'()*+,;=~%") + (f"?{urlencode(params)}" if params else "")
        )
        lines = [f"{method} {target} HTTP/1.1", f"Host: {self._authority}"]
        for name, value in headers.items():
            if _CONTROL.search(value):
                raise ProtocolError(f"header {name} would have a control character")
            lines.append(f"{name}: {value}")
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode() + (body or b"")

    async def _ask(self, message: bytes, *, may_repeat: bool) -> _Connection:
        """A connection on which the head of the answer has arrived."""
        kept = self._take()
        if kept is not None:
            try:
                await self._exchange(kept, message)
            except OSError:
                if kept.has_heard or not may_repeat:
                    raise
            else:
                return kept
        connection = await self._open()
        await self._exchange(connection, message)
        return connection

    async def _exchange(self, connection: _Connection, message: bytes) -> None:
        try:
            await connection.ask(message)
        except BaseException:
            connection.close()
            raise

    async def _open(self) -> _Connection:
        tls = self._tls() if self._tls is not None else None
        _, connection = await asyncio.get_running_loop().create_connection(
            _Connection, self._host, self._port, ssl=tls, server_hostname=self._server_name
        )
        return connection

    def _take(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.can_be_kept and time.monotonic() - connection.since < _KEPT:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: _Connection) -> None:
        self._put_back(connection)
        self._slots.release()

    def _put_back(self, connection: _Connection) -> None:
        if connection.can_be_kept and not self._is_closed:
            connection.since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.close()
        if len(self._idle) > _AT_ONCE:
            self._idle.pop(0).close()
