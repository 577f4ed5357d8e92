"""HTTP/1.1 servers for those of the cluster who call: the API server, the kubelet's probes, Prometheus.

asyncio's protocols and httptools' parser, a task for each connection's requests and nothing else: a general
server costs each review as much again as its answer takes, and every process three mebibytes. Whoever
connects is not trusted: heads are short, bodies have a limit, both must come in time, and connections are
counted. Signals are main's business.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import http
import ipaddress
import logging
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import httptools

_log = logging.getLogger(__name__)

_MAX_HEAD = 32 << 10  # bytes of a request's first line and headers
_GRACEFUL = 10.0  # seconds for requests in flight at the end
_FAREWELL = 2.0  # seconds in which a peer that was turned away may read why
_AHEAD = 8  # requests of one connection that wait for the answer to an earlier one

_CLOSE = "connection: close\r\n"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Limits:
    """`body` in bytes, `connections` at once, `arrival` seconds for a request to be there, `idle` seconds
    between two: longer than a client keeps a connection, so that no request meets one that is being closed
    (the API server drops them after 90 s, Prometheus asks every minute).
    """

    body: int
    connections: int
    arrival: float = 10.0
    idle: float = 120.0


@dataclass(frozen=True)
class Request:
    """`path` without its query; `content_type` in lower case, without parameters."""

    method: str
    path: str
    content_type: str
    body: bytes


@dataclass(frozen=True)
class Response:
    status: int
    body: bytes
    content_type: str = TEXT


Handler = Callable[[Request], Awaitable[Response]]
"""May raise: that is a 500, and a traceback in the log."""


class Server:
    """One listener. `run_until_stopped` returns after `stop`, when the requests in flight have been answered;
    cancelled, it ends them.

    `listen`: an address and port. `is_leaving`: answers then ask the peer to connect anew, to another
    replica. Raises OSError that names the address, so that a port in use ends the start with a sentence.
    """

    def __init__(
        self,
        handler: Handler,
        listen: str,
        context: ssl.SSLContext | None = None,
        *,
        limits: Limits,
        is_leaving: Callable[[], bool] = lambda: False,
    ) -> None:
        self._handler = handler
        self._socket = _listening(listen)
        self._context = context
        self._limits = limits
        self._is_leaving = is_leaving
        self._connections: set[_Connection] = set()
        self._stopping = asyncio.Event()
        self.ended = asyncio.Event()
        self.ended.set()

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def connections(self) -> int:
        return len(self._connections)

    def stop(self) -> None:
        self._stopping.set()

    async def run_until_stopped(self) -> None:
        self.ended.clear()
        is_secure = self._context is not None
        server = await asyncio.get_running_loop().create_server(
            lambda: _Connection(self._handler, self._connections, self._limits, self._is_leaving),
            sock=self._socket,
            ssl=self._context,
            ssl_handshake_timeout=self._limits.arrival if is_secure else None,
            ssl_shutdown_timeout=_FAREWELL if is_secure else None,
        )
        try:
            while not self._stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        await self._stopping.wait()
                self._sweep()
            server.close()
            await self._finish()
        finally:
            server.close()
            for connection in list(self._connections):
                connection.abort()
            self.ended.set()

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        for connection in list(self._connections):
            connection.look(now)

    async def _finish(self) -> None:
        """Those that wait are closed; the others answer first."""
        end = asyncio.get_running_loop().time() + _GRACEFUL
        while self._connections and asyncio.get_running_loop().time() < end:
            for connection in list(self._connections):
                connection.finish()
            await asyncio.sleep(0.02)


class _Connection(asyncio.Protocol):
    """asyncio calls the first methods, httptools those below."""

    def __init__(
        self,
        handler: Handler,
        connections: set[_Connection],
        limits: Limits,
        is_leaving: Callable[[], bool],
    ) -> None:
        self._handler = handler
        self._connections = connections
        self._limits = limits
        self._is_leaving = is_leaving
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._since = self._loop.time()
        self._waiting: deque[tuple[Request, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_receiving = False
        self._is_over = False
        self._begin()

    def _begin(self) -> None:
        self._url = b""
        self._head = 0
        self._has_head = False
        self._headers: dict[bytes, bytes] = {}
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - of a stream, asyncio says
        self._transport = transport
        self._connections.add(self)
        if len(self._connections) > self._limits.connections:
            transport.abort()

    def connection_lost(self, _exc: Exception | None) -> None:
        self._connections.discard(self)
        self._is_over = True
        self._waiting.clear()

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            return  # what follows a refusal is not read
        if not self._is_receiving:
            self._is_receiving, self._since = True, self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._turn_away(Response(400, b"this is not HTTP/1.1\n"))
        else:
            if self._is_receiving and not self._has_head:
                self._count(data)

    def eof_received(self) -> bool:
        return False

    def on_message_begin(self) -> None:
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._has_head = True
        announced = self._headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._limits.body:
            self._turn_away(_TOO_LARGE)
        elif self._headers.get(b"expect", b"").lower() == b"100-continue" and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, chunk: bytes) -> None:
        if not self._is_over:
            self._body += chunk
            if len(self._body) > self._limits.body:
                self._turn_away(_TOO_LARGE)

    def on_message_complete(self) -> None:
        if self._is_over:
            return
        self._is_receiving, self._since = False, self._loop.time()
        path = self._url.partition(b"?")[0].decode("latin-1")
        kind = self._headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")
        request = Request(self._parser.get_method().decode("latin-1"), path, kind, bytes(self._body))
        self._waiting.append((request, self._parser.should_keep_alive()))
        if len(self._waiting) > _AHEAD:
            self._turn_away(Response(400, b"wait for answers\n"))
        elif self._task is None:
            self._task = self._loop.create_task(self._answer())

    def _count(self, piece: bytes) -> None:
        """Of a head that is not complete with it."""
        self._head += len(piece)
        if self._head > _MAX_HEAD and not self._is_over:
            self._turn_away(Response(431, b"the head is too long\n"))

    async def _answer(self) -> None:
        """All that wait, in their order."""
        try:
            while self._waiting:
                request, stays_open = self._waiting.popleft()
                try:
                    response = await self._handler(request)
                except Exception:
                    _log.exception("a request for %s could not be answered", request.path)
                    response = Response(500, b"internal error, see the log\n")
                stays_open = stays_open and not self._is_leaving()
                self._write(response, stays_open=stays_open, has_body=request.method != "HEAD")
                self._since = self._loop.time()
                if not stays_open:
                    self.close()
        finally:
            self._task = None

    def _write(self, response: Response, *, stays_open: bool, has_body: bool = True) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        phrase, farewell = http.HTTPStatus(response.status).phrase, "" if stays_open else _CLOSE
        head = (
            f"HTTP/1.1 {response.status} {phrase}\r\ncontent-type: {response.content_type}\r\n"
            f"content-length: {len(response.body)}\r\n{farewell}\r\n"
        )
        self._transport.write(head.encode() + (response.body if has_body else b""))

    def _turn_away(self, response: Response) -> None:
        """The last answer of this connection; whoever is still sending gets time to find it."""
        if self._is_over:
            return
        self._is_over = True
        self._waiting.clear()
        self._write(response, stays_open=False)
        self._loop.call_later(_FAREWELL, self.close)

    def look(self, now: float) -> None:
        """Closes what takes too long."""
        if self._task is None and not self._is_over:
            if self._is_receiving and now - self._since > self._limits.arrival:
                self._turn_away(Response(408, b"the request did not arrive in time\n"))
            elif not self._is_receiving and now - self._since > self._limits.idle:
                self.close()

    def finish(self) -> None:
        if self._task is None and not self._is_receiving:
            self.close()

    def close(self) -> None:
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()


_TOO_LARGE = Response(413, b"the body is too large\n")


def _listening(listen: str) -> socket.socket:
    """`0.0.0.0:8443` → a socket that listens; `[::]:8443` takes IPv4, too, and that alone where there is no
    IPv6. Raises OSError that names the address.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    is_any = host == "::"
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    try:
        # asyncio turns Nagle's algorithm off only where the protocol is named; with it, each answer waits
        # 40 ms for the peer's delayed acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except OSError as error:
        if is_any and error.errno == errno.EAFNOSUPPORT:  # a kernel that was started without IPv6
            return _listening(f"0.0.0.0:{port}")
        raise OSError(error.errno, f"can't listen on {listen}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_any:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # whatever the node's default is
        listener.bind((host, int(port)))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"can't listen on {listen}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
