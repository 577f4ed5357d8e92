"""HTTP servers of the process: the webhook over TLS, and probes and metrics in plain.

Raw ASGI under uvicorn. Signals are main's business; connections are kept alive longer than the API server
keeps them idle, so that no review meets a connection that is just being closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from typing import Any, TypeAlias

import uvicorn

from claim_mutator.admission import Admission, BadReview

_log = logging.getLogger(__name__)

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

KEEP_ALIVE = 120  # seconds; the API server drops idle connections after 90
MAX_BODY = 8 << 20  # bytes; the API server itself takes 3 MiB
_BODY_TIME = 10.0  # seconds for a body to arrive
_GRACEFUL = 10  # seconds for requests in flight at the end


class Server(uvicorn.Server):
    """One listener. `run` returns after `stop`, when the requests in flight have been answered."""

    def __init__(self, app: Any, listen: str, context: ssl.SSLContext | None = None) -> None:
        self._socket = _listening(listen)
        self.ended = asyncio.Event()
        self.ended.set()
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                loop="asyncio",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=_GRACEFUL,
                ssl_context_factory=None if context is None else lambda *_: context,
            )
        )

    @property
    def address(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    async def run_until_stopped(self) -> None:
        self.ended.clear()
        try:
            await self.serve(sockets=[self._socket])
        finally:
            self.ended.set()

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: main handles signals, for all servers at once."""
        yield


class Webhook:
    """POST /mutate. While `draining`, answers ask the API server to connect anew, to another replica."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.draining = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body, content_type = await self._answer(scope, receive)
        headers = {"connection": "close"} if self.draining else {}
        await respond(send, status, body, content_type, headers)

    async def _answer(self, scope: Scope, receive: Receive) -> tuple[int, bytes, str]:
        if scope["path"] != "/mutate":
            return 404, b"only /mutate is here\n", TEXT
        if scope["method"] != "POST":
            return 405, b"POST an AdmissionReview\n", TEXT
        headers = dict(scope["headers"])
        if headers.get(b"content-type", b"").partition(b";")[0].strip() != b"application/json":
            return 415, b"the body must be application/json\n", TEXT
        try:
            async with asyncio.timeout(_BODY_TIME):
                body = await _body(receive, headers.get(b"content-length"))
        except TimeoutError:
            return 408, b"the body did not arrive in time\n", TEXT
        if body is None:
            return 413, b"the body is too large\n", TEXT
        try:
            return 200, await self._admission.review(body), "application/json"
        except BadReview as error:
            return 400, f"{error}\n".encode(), TEXT
        except Exception:
            _log.exception("a review could not be answered")
            return 500, b"internal error, see the log of tessera-mutator\n", TEXT


TEXT = "text/plain; charset=utf-8"


async def respond(
    send: Send, status: int, body: bytes, content_type: str, headers: Mapping[str, str] | None = None
) -> None:
    """A complete answer."""
    fields = {"content-type": content_type, "content-length": str(len(body)), **(headers or {})}
    encoded = [(name.encode(), value.encode()) for name, value in fields.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


async def _body(receive: Receive, announced: bytes | None) -> bytes | None:
    """None, if it is longer than allowed; read no further then."""
    if announced is not None and announced.isdigit() and int(announced) > MAX_BODY:
        return None
    parts: list[bytes] = []
    length = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":  # the peer has gone; what is there is no review
            return b"".join(parts)
        parts.append(message.get("body", b""))
        length += len(parts[-1])
        if length > MAX_BODY:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _listening(listen: str) -> socket.socket:
    """`0.0.0.0:8443`, `[::]:8443` → a socket that listens. Raises OSError that names the address."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    # asyncio turns Nagle's algorithm off only where the protocol is named; with it, each answer waits 40 ms
    # for the peer's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, int(port)))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, f"can't listen on {listen}: {error.strerror}") from error
    listener.setblocking(False)
    return listener
