"""For Prometheus and the kubelet's probes: /metrics, /healthz, /readyz. Raw ASGI, uvicorn in our loop.

/healthz asks over both sockets, the way the kubelet would, so it fails when a socket is gone or the loop is
stuck; it does not ask whether there is a GPU, since a restart brings none. /readyz says in words what is not
as it should be.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import uvicorn

from dra_driver.conditions import Conditions
from dra_driver.metrics import Metrics
from dra_driver.service import V1_SERVICE
from dra_driver.sockets import Sockets
from protos.dra_v1 import dra_v1_pb2
from protos.registration import registration_pb2

_PROBE_TIMEOUT = 2.0  # seconds; the kubelet's own probes wait 1 s by default, and GetInfo must take less
_TEXT = b"text/plain; charset=utf-8"
_PROMETHEUS = b"text/plain; version=0.0.4; charset=utf-8"
_Send = Callable[[dict[str, Any]], Awaitable[None]]


class Endpoints:
    """The ASGI application."""

    def __init__(self, *, metrics: Metrics, conditions: Conditions, sockets: Sockets) -> None:
        self._metrics = metrics
        self._conditions = conditions
        self._sockets = sockets

    async def __call__(self, scope: dict[str, Any], _receive: Any, send: _Send) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = await self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, method: str, path: str) -> tuple[int, bytes, bytes]:
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        if path == "/metrics":
            return 200, _PROMETHEUS, await asyncio.to_thread(self._metrics.render)
        if path == "/healthz":
            problem = await probe(self._sockets)
            return (503, _TEXT, f"{problem}\n".encode()) if problem else (200, _TEXT, b"ok\n")
        if path == "/readyz":
            return 200 if self._conditions.ready else 503, _TEXT, self._conditions.describe().encode()
        return 404, _TEXT, b"there are /metrics, /healthz and /readyz\n"


async def probe(sockets: Sockets) -> str | None:
    """What is wrong with the sockets, None if nothing is."""
    questions = (
        (
            sockets.registration,
            "/pluginregistration.Registration/GetInfo",
            registration_pb2.InfoRequest(),
        ),
        (
            sockets.dra,
            f"/{V1_SERVICE}/NodePrepareResources",
            dra_v1_pb2.NodePrepareResourcesRequest(),  # of no claims at all
        ),
    )
    answers = await asyncio.gather(*(_ask(*question) for question in questions))
    problems = [answer for answer in answers if answer is not None]
    return "; ".join(problems) or None


async def _ask(path: Path, method: str, request: Any) -> str | None:
    # A connection of its own each time: an old one would outlive the socket's file.
    options = (("grpc.use_local_subchannel_pool", 1),)
    async with grpc.aio.insecure_channel(f"unix:{path}", options=options) as channel:
        call: Any = channel.unary_unary(method, request_serializer=type(request).SerializeToString)
        try:
            await call(request, timeout=_PROBE_TIMEOUT)
        except grpc.aio.AioRpcError as error:
            return f"{path} does not answer: {error.code().name} {error.details()}"
    return None


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: the whole process ends by ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Bound here, so that a port in use is an OSError and not uvicorn's exit."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


async def serve(endpoints: Endpoints, listener: socket.socket) -> None:
    """Until cancelled."""
    config = uvicorn.Config(
        endpoints,
        lifespan="off",
        http="httptools",
        ws="none",
        loop="none",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = _Server(config)
    await server.serve(sockets=[listener])
