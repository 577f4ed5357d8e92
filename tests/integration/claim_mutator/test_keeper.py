"""Unused templates go, and never one that somebody needs, whoever is faster."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from typing import Any

import pytest

from claim_mutator.keeper import TemplateKeeper
from claim_mutator.template import Template
from claim_mutator.templates import SELECTOR, UNUSED_SINCE, TemplateStore
from kube import paths
from kube.client import Client
from kube.errors import ApiError
from kube.reflector import Reflector
from tests.integration.api_server import ApiServer
from tests.integration.claim_mutator.process import TEMPLATES

PODS = "/api/v1/pods"
TEMPLATE = Template("tessera-1", {"spec": {}}, ())
KEEP = 600


class Cluster:
    """An API server, a keeper whose clock the test turns, and a replica's store."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.reflector = Reflector(client, paths.resource_claim_templates(), params=SELECTOR)
        self.now = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        known = self.reflector.objects
        self.keeper = TemplateKeeper(client, known, period=1, keep=KEEP, now=lambda: self.now)
        self.store = TemplateStore(client, known, clock=lambda: self.now.timestamp())  # noqa: PLW0108 - now moves

    async def turn(self, after: float = 0) -> None:
        """Lets time go by, then one turn of the keeper, and waits until the reflector has seen it."""
        self.now += dt.timedelta(seconds=after)
        await self.keeper.turn()
        await self.settled()

    async def settled(self) -> None:
        for _ in range(3000):
            ours = [item for item in self.api.all(TEMPLATES) if item["metadata"].get("labels")]
            held = {item["metadata"]["resourceVersion"] for item in ours}
            if held == {item["metadata"]["resourceVersion"] for item in self.reflector.objects.values()}:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the reflector does not follow")

    def pod(self, template: str = "tessera-1", namespace: str = "n") -> None:
        claims = [{"name": "tessera", "resourceClaimTemplateName": template}]
        metadata = {"name": "p", "namespace": namespace}
        self.api.put(PODS, {"metadata": metadata, "spec": {"resourceClaims": claims}})

    @property
    def marks(self) -> list[str | None]:
        found: list[dict[str, Any]] = self.api.all(TEMPLATES)
        return [(item["metadata"].get("annotations") or {}).get(UNUSED_SINCE) for item in found]


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        found = Cluster(api, client)
        task = asyncio.create_task(found.reflector.run())
        await found.reflector.synced(60)
        await found.store.ensure("n", TEMPLATE)
        await found.settled()
        yield found
        task.cancel()


async def test_unused_is_marked_then_removed(cluster: Cluster) -> None:
    await cluster.turn()
    assert cluster.marks == ["2026-01-01T00:00:00+00:00"]
    await cluster.turn(after=KEEP - 1)
    assert len(cluster.marks) == 1
    await cluster.turn(after=1)
    assert cluster.marks == []


async def test_used_stays(cluster: Cluster) -> None:
    cluster.pod()
    await cluster.turn()
    await cluster.turn(after=KEEP * 2)
    assert cluster.marks == [None]


async def test_a_pod_of_another_namespace_does_not_count(cluster: Cluster) -> None:
    cluster.pod(namespace="other")
    await cluster.turn()
    assert cluster.marks != [None]


async def test_pod_that_comes_late_takes_the_mark_away(cluster: Cluster) -> None:
    await cluster.turn()
    cluster.pod()
    await cluster.turn(after=KEEP)
    assert cluster.marks == [None]


async def test_review_takes_the_mark_away_and_time_starts_anew(cluster: Cluster) -> None:
    await cluster.turn()
    cluster.now += dt.timedelta(seconds=120)
    assert not cluster.store.has("n", "tessera-1")
    await cluster.store.ensure("n", TEMPLATE)
    assert cluster.marks == [None]
    await cluster.settled()
    await cluster.turn(after=KEEP)
    assert cluster.marks == ["2026-01-01T00:12:00+00:00"], "marked, not removed"


async def test_review_between_the_list_of_pods_and_the_deletion_wins(cluster: Cluster) -> None:
    await cluster.turn()
    cluster.now += dt.timedelta(seconds=KEEP)
    listed = cluster.keeper._used

    async def then_a_review(namespace: str) -> set[str]:
        found = await listed(namespace)
        await cluster.store.ensure("n", TEMPLATE)
        return found

    cluster.keeper._used = then_a_review  # type: ignore[method-assign]
    stale = dict(cluster.reflector.objects)
    cluster.keeper._known = stale  # this keeper's watch lags behind
    await cluster.keeper.turn()
    assert cluster.marks == [None]


async def test_marked_and_gone_meanwhile_is_made_again(cluster: Cluster) -> None:
    await cluster.turn()
    cluster.now += dt.timedelta(seconds=120)
    cluster.api.drop(TEMPLATES, "tessera-1", "n")
    await cluster.store.ensure("n", TEMPLATE)
    assert cluster.marks == [None]


async def test_unreadable_mark_keeps_the_template(cluster: Cluster) -> None:
    (template,) = cluster.api.all(TEMPLATES)
    template["metadata"]["annotations"] = {UNUSED_SINCE: "yesterday"}
    cluster.api.put(TEMPLATES, template)
    await cluster.settled()
    await cluster.turn(after=KEEP * 10)
    assert cluster.marks == ["yesterday"]


async def test_foreign_templates_are_not_looked_at(cluster: Cluster) -> None:
    cluster.api.put(TEMPLATES, {"metadata": {"name": "tessera-2", "namespace": "n"}})
    await cluster.keeper.turn()
    await cluster.turn(after=KEEP)
    await cluster.keeper.turn()
    assert [item["metadata"]["name"] for item in cluster.api.all(TEMPLATES)] == ["tessera-2"]


@pytest.mark.parametrize(
    ("collection", "steps"),
    [
        ("/apis/apps/v1/deployments", ("template",)),
        ("/apis/apps/v1/statefulsets", ("template",)),
        ("/apis/batch/v1/cronjobs", ("jobTemplate", "spec", "template")),
        ("/api/v1/replicationcontrollers", ("template",)),
    ],
)
async def test_named_by_what_makes_pods_stays(
    cluster: Cluster, collection: str, steps: tuple[str, ...]
) -> None:
    """Also with no replicas: it is somebody's copy of a converted Pod, and no review makes it again."""
    held: dict[str, Any] = {"spec": {"resourceClaims": [{"resourceClaimTemplateName": "tessera-1"}]}}
    for step in reversed(steps):
        held = {step: held}
    owner = {"metadata": {"name": "o", "namespace": "n"}, "spec": held | {"replicas": 0}}
    cluster.api.put(collection, owner)
    await cluster.turn()
    await cluster.turn(after=KEEP)
    assert cluster.marks == [None]
    cluster.api.drop(collection, "o", "n")
    await cluster.turn()
    await cluster.turn(after=KEEP)
    assert cluster.marks == []


async def test_what_cannot_be_listed_is_no_reason_to_remove(cluster: Cluster) -> None:
    await cluster.turn()
    cluster.api.refuse(403, when=lambda seen: "/batch/" in seen.path)
    with pytest.raises(ApiError):
        await cluster.turn(after=KEEP)
    assert len(cluster.marks) == 1


async def test_owners_are_listed_only_for_what_would_go(cluster: Cluster) -> None:
    cluster.pod()
    await cluster.turn()
    await cluster.turn(after=KEEP)
    assert not [seen for seen in cluster.api.requests if "/apis/apps/" in seen.path]


async def test_only_the_leader_looks(cluster: Cluster) -> None:
    leads = False
    client = cluster.keeper._client
    keeper = TemplateKeeper(client, cluster.reflector.objects, period=0.01, keep=0, leads=lambda: leads)
    task = asyncio.create_task(keeper.run())
    await asyncio.sleep(0.1)
    assert cluster.marks == [None]
    leads = True
    for _ in range(3000):
        if not cluster.marks:
            break
        await asyncio.sleep(0.02)
    assert cluster.marks == []
    task.cancel()


async def test_a_thousand_templates_of_one_namespace_cost_one_list(cluster: Cluster) -> None:
    for number in range(1000):
        labels = {"app.kubernetes.io/managed-by": "tessera-mutator"}
        metadata = {"name": f"tessera-x{number}", "namespace": "n", "labels": labels}
        cluster.api.put(TEMPLATES, {"metadata": metadata, "spec": {}})
    for number in range(250):
        claims = [{"name": "tessera", "resourceClaimTemplateName": f"tessera-x{number}"}]
        metadata = {"name": f"p-{number}", "namespace": "n"}
        cluster.api.put(PODS, {"metadata": metadata, "spec": {"resourceClaims": claims}})
    await cluster.settled()
    cluster.api.requests.clear()
    await cluster.turn()
    assert sum(seen.path.endswith("/pods") for seen in cluster.api.requests) == 3, "pages of 100"
    assert sum(mark is not None for mark in cluster.marks) == 751
