"""tests/bench/admission-reviews: how long the API server waits for the webhook, and for HAMi-DRA's beside it.

Both stand beside one real API server (etcd and kube-apiserver, nothing else) and are sent reviews of 8 KB
over TLS; they take turns, so that whatever else runs on the machine disturbs both alike. PEER_HAMI_DRA names
the binary of the other one, whose client limits are raised. Then 1000 Pods are created through the API
server, with and without our webhook.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists, ApiError
from tests.bench import reviews, webhooks
from tests.bench.figures import Figure, documents, percentile, table
from tests.bench.reviews import BadAnswer, Bodies, Result
from tests.bench.webhooks import NotReady, Webhook
from tests.cluster import binaries
from tests.cluster.errors import ClusterError
from tests.cluster.progress import say
from tests.conformance.control_plane import ControlPlane

LIMITS = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "30"}
CONNECTIONS = 16
TURNS = 8
_PAUSE = 0.5  # seconds in which the API server gets done with what came of the turn before
PARALLEL = 32  # creations at once
NAMESPACE = "default"
WITHOUT_PEER = (
    f"{webhooks.PEER} is not set, so nothing is compared: build cmd/webhook of"
    " github.com/Project-HAMi/HAMi-DRA and name the binary in it"
)
Sides = dict[str, Webhook]


def alone_and_together(sides: Sides, rounds: int, limits: dict[str, str], what: str) -> list[Figure]:
    """One connection and sixteen, each in turns, so that both sides have the same minutes.

    Each figure is the median of the turns': one that something else on the machine fell into counts no more.
    """
    bodies, has_gpu = Bodies(limits), bool(limits)
    single: dict[str, list[Result]] = {name: [] for name in sides}
    many: dict[str, list[Result]] = {name: [] for name in sides}
    for turn in range(TURNS):
        for name in sorted(sides, reverse=bool(turn % 2)):
            port = sides[name].port
            time.sleep(_PAUSE)
            single[name].append(reviews.send(port, bodies, 1, count=max(10, rounds // TURNS)))
            many[name].append(reviews.send(port, bodies, CONNECTIONS, seconds=1.5))
    several = f"{what}, {CONNECTIONS} connections"
    figures = [
        _figure(f"{what}, p50", single, 50, 0.15 if has_gpu else 1.0),
        _figure(f"{what}, p99", single, 99, 0.15 if has_gpu else None),
        _figure(f"{several}, p50", many, 50),
        _figure(f"{several}, p99", many, 99, most=10.0 if has_gpu else None),
    ]
    rates = {name: median(result.rate for result in results) for name, results in many.items()}
    ours, peer, ratio = rates["ours"], rates.get("peer"), 10.0 if has_gpu else None
    figures.append(Figure(several, "reviews/s", ours, peer, ratio, more_is_better=True))
    if has_gpu:
        figures.append(Figure(f"{several}, alone", "reviews/s", ours, most=3000.0, more_is_better=True))
    return figures


def _figure(
    name: str,
    results: dict[str, list[Result]],
    percent: int,
    ratio: float | None = None,
    most: float | None = None,
) -> Figure:
    found = {
        side: 1000 * median(percentile(result.times, percent) for result in turns)
        for side, turns in results.items()
    }
    return Figure(name, "ms", found["ours"], found.get("peer"), ratio, most)


async def left_behind(plane: ControlPlane, sides: Sides) -> list[Figure]:
    """Objects that came of reviews of Pods that nobody created."""
    async with Client(plane.connection, user_agent="bench") as client:
        claims = await client.get(paths.resource_claims(NAMESPACE))
        templates = await client.get(paths.resource_claim_templates(NAMESPACE))
    peer = float(len(claims["items"])) if "peer" in sides else None
    return [Figure("objects left of all these reviews", "", float(len(templates["items"])), peer, most=1.0)]


async def creations(plane: ControlPlane, webhook: Webhook, count: int) -> list[Figure]:
    """Pods of one Deployment, through the API server: without the webhook, then with it."""
    async with Client(plane.connection, user_agent="bench", timeout=60.0) as client:
        await _account(client)
        without = await _create_all(client, "plain", count, {})
        await client.create(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", _configuration(webhook)
        )
        await _until_called(client)
        before, own = await _webhook_seconds(plane), webhook.own_seconds()
        taken = await _create_all(client, "converted", count, LIMITS)
        calls, seconds = (now - then for now, then in zip(await _webhook_seconds(plane), before, strict=True))
        converted, inside = (now - then for now, then in zip(webhook.own_seconds(), own, strict=True))
    share = 100.0 * seconds / (taken * PARALLEL)
    return [
        Figure(f"{count} Pods created, without us", "Pods/s", count / without),
        Figure(f"{count} Pods created, converted", "Pods/s", count / taken, note=f"{calls:.0f} reviews"),
        Figure("the API server's wait for us, mean", "ms", 1000.0 * seconds / max(1.0, calls)),
        Figure("of which we took, mean", "ms", 1000.0 * inside / max(1.0, converted)),
        Figure("our share of a creation's time", "%", share),
    ]


async def _create_all(client: Client, prefix: str, count: int, limits: dict[str, str]) -> float:
    slots = asyncio.Semaphore(PARALLEL)

    async def one(number: int) -> None:
        document = reviews.pod(f"{prefix}-{number}", limits)
        document["spec"]["schedulerName"] = "nobody"
        async with slots:
            await client.create(paths.pods(NAMESPACE), document)

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(count)))
    return time.perf_counter() - began


async def _account(client: Client) -> None:
    """What a controller would have made."""
    for path in ("/api/v1/namespaces", f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"):
        try:
            await client.create(path, {"metadata": {"name": "default"}})
        except AlreadyExists:
            continue


async def _until_called(client: Client) -> None:
    """API servers learn of a new configuration a moment later."""
    for number in range(200):
        document = reviews.pod(f"try-{number}", LIMITS)
        made = await client.create(paths.pods(NAMESPACE), document, params={"dryRun": "All"})
        if made["spec"].get("resourceClaims"):
            return
        await asyncio.sleep(0.1)
    raise BadAnswer("the API server does not call the webhook")


def _configuration(webhook: Webhook) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "bench"},
        "webhooks": [
            {
                "name": "pods.tessera.dev",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "NoneOnDryRun",
                "clientConfig": {
                    "url": f"https://localhost:{webhook.port}/mutate",
                    "caBundle": webhook.ca_bundle,
                },
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            }
        ],
    }


async def _webhook_seconds(plane: ControlPlane) -> tuple[float, float]:
    """Calls of our webhook, and what they took, as the API server has counted."""
    text = await asyncio.to_thread(plane.text, "/metrics")
    name = "apiserver_admission_webhook_admission_duration_seconds"
    found = []
    for part in ("count", "sum"):
        lines = re.findall(
            rf'^{name}_{part}\{{[^}}]*name="pods\.tessera\.dev"[^}}]*\}} (\S+)$', text, re.MULTILINE
        )
        found.append(sum(map(float, lines)))
    return found[0], found[1]


def measure(version: str, rounds: int, pods: int) -> list[Figure]:
    """Everything, in the order in which it is shown. Raises ClusterError, NotReady, BadAnswer, OSError."""
    figures: list[Figure] = []
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(version))
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tessera-")))
        sides = {"ours": webhooks.ours(plane, root)}
        stack.callback(sides["ours"].end)
        other = webhooks.peer(plane, root)
        if other is None:
            say(WITHOUT_PEER)
        else:
            sides["peer"] = other
            stack.callback(other.end)
        for side in sides.values():  # the first review makes the template, and warms up
            reviews.send(side.port, Bodies(LIMITS), 1, count=20)
        for what, limits in (("a Pod with a GPU", LIMITS), ("a Pod without", {})):
            say(what)
            figures += alone_and_together(sides, rounds, limits, what)
        figures += asyncio.run(left_behind(plane, sides))
        resident = {name: side.resident() for name, side in sides.items()}
        figures.append(Figure("memory", "MiB", resident["ours"], resident.get("peer"), most=60.0))
        say(f"{pods} Pods through the API server")
        figures += asyncio.run(creations(plane, sides["ours"], pods))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/bench/admission-reviews", description=__doc__)
    parser.add_argument("--version", default=binaries.DEFAULT_VERSION, help="of Kubernetes (1.37)")
    parser.add_argument(
        "--rounds", type=int, default=4000, help="reviews over one connection, each side (4000)"
    )
    parser.add_argument("--pods", type=int, default=1000, help="that are created (1000)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, with ratios and targets")
    options = parser.parse_args(arguments)
    try:
        figures = measure(options.version, options.rounds, options.pods)
    except (ClusterError, NotReady, BadAnswer, ApiError, OSError) as error:
        print(f"admission-reviews: {error}", file=sys.stderr)
        return 1
    Console(width=110, highlight=False).print(table(f"Kubernetes {options.version}, 8 KB reviews", figures))
    if options.json:
        options.json.write_text(json.dumps(documents(figures), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
