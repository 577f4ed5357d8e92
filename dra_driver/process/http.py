"""What Prometheus and the kubelet's probes are answered: /metrics, /healthz, /readyz.

/healthz asks over both sockets, the way the kubelet would, so it fails when a socket is gone or the loop is
stuck; it does not ask whether there is a GPU, since a restart brings none. /readyz says in words what is not
as it should be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dra_driver.conditions import Conditions
from dra_driver.kubelet.service import V1_SERVICE
from dra_driver.kubelet.sockets import Sockets
from kube.server import Request, Response
from protos.dra_v1 import dra_v1_pb2
from protos.registration import registration_pb2

_PROBE_TIMEOUT = 2.0  # seconds; the kubelet's own probes wait 1 s by default, and GetInfo must take less
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """A path → its answer. `render`: what /metrics gives; it may block."""

    def __init__(self, *, render: Callable[[], bytes], conditions: Conditions, sockets: Sockets) -> None:
        self._metrics = render
        self._conditions = conditions
        self._sockets = sockets
        self._rendering: asyncio.Task[bytes] | None = None

    async def __call__(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"GET only\n")
        if request.path == "/metrics":
            return Response(200, await self._render(), _PROMETHEUS)
        if request.path == "/healthz":
            problem = await probe(self._sockets)
            return Response(503, f"{problem}\n".encode()) if problem else Response(200, b"ok\n")
        if request.path == "/readyz":
            return Response(200 if self._conditions.ready else 503, self._conditions.describe().encode())
        return Response(404, b"/metrics, /healthz and /readyz are here\n")

    async def _render(self) -> bytes:
        """Once for all who ask at the same time: a file system that hangs costs one thread."""
        if self._rendering is None:
            self._rendering = asyncio.create_task(asyncio.to_thread(self._metrics))
            self._rendering.add_done_callback(self._rendered)
        return await asyncio.shield(self._rendering)

    def _rendered(self, _task: asyncio.Task[bytes]) -> None:
        self._rendering = None


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
