"""/metrics, /healthz and /readyz, on a plain port that the API server does not use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from claim_mutator.metrics import Metrics
from kube.server import Request, Response


class Endpoints:
    """`missing` says what this replica lacks to answer reviews; nothing, if it is ready."""

    def __init__(self, metrics: Metrics, missing: Callable[[], Sequence[str]]) -> None:
        self._metrics = metrics
        self._missing = missing

    async def __call__(self, request: Request) -> Response:
        if request.method not in ("GET", "HEAD"):
            return Response(405, b"GET only\n")
        if request.path == "/metrics":
            return Response(200, generate_latest(self._metrics.registry), CONTENT_TYPE_LATEST)
        if request.path == "/healthz":
            # Alive is: the loop turns. A task that dies ends the process, so there is nothing else to ask.
            return Response(200, b"ok\n")
        if request.path == "/readyz":
            missing = self._missing()
            text = "".join(f"{reason}\n" for reason in missing) or "ok\n"
            return Response(503 if missing else 200, text.encode())
        return Response(404, b"/metrics, /healthz and /readyz are here\n")
