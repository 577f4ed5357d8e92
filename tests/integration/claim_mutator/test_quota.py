"""Quotas hold, however many ask whichever replica at the same moment."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from claim_mutator.names import MIG_CLASS, ResourceNames
from claim_mutator.quota import gate as gates
from claim_mutator.quota.cost import Cost, Demand, Form, Sizes
from claim_mutator.quota.gate import Exceeded, Gate, World
from claim_mutator.quota.ledger import Ledger
from claim_mutator.quota.limits import ANY_POD
from claim_mutator.quota.quotas import QuotaReporter, Quotas
from claim_mutator.quota.usage import MARK
from kube.client import Client
from kube.errors import ApiError, Unavailable
from kube.events import Recorder
from tests.integration.api_server import ApiServer

PODS, QUOTAS, PAGES = "/api/v1/pods", "/api/v1/resourcequotas", "/api/v1/configmaps"
EVENTS, LEASES = "/api/v1/events", "/apis/coordination.k8s.io/v1/leases"
KEY = "limits.nvidia.com/gpumem"
SHARE: Demand = ((Form(1, 1000, 10),),)
COST = Cost(1, 1000, 10)


def _versions(quotas: Iterable[dict[str, Any]]) -> set[str]:
    return {quota["metadata"]["resourceVersion"] for quota in quotas}


class Replica:
    def __init__(self, client: Client) -> None:
        self.now = 1_790_000_000.0
        self.quotas = Quotas(client, ResourceNames(), 1)
        world = World(
            lambda _, name: SHARE if name == "tessera-1" else None, lambda: Sizes((81920,)), MIG_CLASS
        )
        ledger = Ledger(client, "tessera-system", "tessera-mutator")
        self.gate = Gate(client, ledger, world, quotas=self.quotas.of, clock=lambda: self.now)
        recorder = Recorder(client, component="test", instance="test")
        self.reporter = QuotaReporter(
            client, self.quotas, self.gate, recorder, leads=lambda: True, period=1, observe=lambda *_: None
        )
        self.recorder = recorder

    @property
    def held(self) -> set[str]:
        return _versions(self.quotas.reflector.objects.values())

    async def lets_in(self, mark: str, cost: Cost = COST, *, is_trial: bool = False) -> bool:
        try:
            await self.gate.enter("team", mark, cost, ANY_POD, is_trial=is_trial)
        except Exceeded:
            return False
        return True


class Scene:
    """An API server, replicas, and what happens to Pods that are let in."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.replicas: list[Replica] = []
        self.number = itertools.count()

    def quota(self, most: int | str, name: str = "gpus", **changes: Any) -> None:
        hard = changes.pop("hard", {KEY: str(most)})
        self.api.put(
            QUOTAS, {"metadata": {"namespace": "team", "name": name}, "spec": {"hard": hard, **changes}}
        )

    def pod(self, mark: str, phase: str = "Pending") -> str:
        name = f"p-{next(self.number)}"
        claims = [{"name": "tessera", "resourceClaimTemplateName": "tessera-1"}]
        metadata = {"namespace": "team", "name": name, "annotations": {MARK: mark}}
        self.api.put(
            PODS, {"metadata": metadata, "spec": {"resourceClaims": claims}, "status": {"phase": phase}}
        )
        return name

    async def seen(self) -> None:
        """Waits until the replicas know of the quotas as they are."""
        async with asyncio.timeout(60):
            while any(  # noqa: ASYNC110 - the reflector has no events to wait for
                _versions(self.api.all(QUOTAS)) != replica.held for replica in self.replicas
            ):
                await asyncio.sleep(0.01)

    @property
    def page(self) -> str:
        (found,) = self.api.all(PAGES)
        text: str = found["data"]["reservations"]
        return text


@asynccontextmanager
async def cluster(replicas: int) -> AsyncIterator[Scene]:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        api.put(LEASES, {"metadata": {"namespace": "tessera-system", "name": "tessera-mutator"}})
        world = Scene(api)
        world.quota(10_000)
        tasks = []
        for _ in range(replicas):
            replica = Replica(client)
            tasks.append(asyncio.create_task(replica.quotas.reflector.run()))
            await replica.quotas.reflector.synced(60)
            world.replicas.append(replica)
        yield world
        for task in tasks:
            task.cancel()


@pytest.fixture
async def two() -> AsyncIterator[Scene]:
    async with cluster(2) as found:
        yield found


@pytest.fixture
async def one() -> AsyncIterator[tuple[Scene, Replica]]:
    async with cluster(1) as found:
        yield found, found.replicas[0]


@pytest.mark.parametrize("seed", range(3))
async def test_a_hundred_at_once_at_two_replicas(two: Scene, seed: int) -> None:
    """Pods appear some time after they were let in, in any order; some never do."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    late: list[asyncio.Task[None]] = []

    async def create(mark: str) -> bool:
        await asyncio.sleep(chance.random() * 0.2)
        entered = await chance.choice(two.replicas).lets_in(mark)
        if entered:

            async def appear() -> None:
                await asyncio.sleep(chance.random() * 0.3)
                two.pod(mark)

            late.append(asyncio.create_task(appear()))
        return entered

    entered = await asyncio.gather(*(create(f"m-{number}") for number in range(100)))
    await asyncio.gather(*late)
    assert sum(entered) == 10, "all the room, and no more"
    assert len(two.api.all(PODS)) == 10
    assert [await replica.lets_in("one more") for replica in two.replicas] == [False, False]


async def test_both_replicas_see_room_again(two: Scene) -> None:
    first, other = two.replicas
    names = []
    for number in range(10):
        assert await two.replicas[number % 2].lets_in(f"m-{number}")
        names.append(two.pod(f"m-{number}"))
    assert not await other.lets_in("x")
    two.api.drop(PODS, names[0], "team")
    assert await other.lets_in("y")
    assert not await first.lets_in("z"), "y is on its way"


async def test_a_pod_that_came_and_went_is_not_waited_for(
    one: tuple[Scene, Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    world, replica = one
    monkeypatch.setattr(gates, "_LOOKS", (0.05, 0.05))
    assert await replica.lets_in("m", Cost(1, 10_000))
    name = world.pod("m")
    for _ in range(3000):
        if world.page == "[]":
            break
        await asyncio.sleep(0.02)
    world.api.drop(PODS, name, "team")
    assert await replica.lets_in("n", Cost(1, 10_000))


async def test_a_pod_that_has_ended_makes_room(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    for number in range(10):
        assert await replica.lets_in(f"m-{number}")
        world.pod(f"m-{number}", "Succeeded")
    assert await replica.lets_in("x")


async def test_one_that_never_came_is_held_for_a_while(one: tuple[Scene, Replica]) -> None:
    _, replica = one
    assert await replica.lets_in("m", Cost(1, 10_000))
    replica.now += gates.HOLD - 1
    assert not await replica.lets_in("n")
    replica.now += 2
    assert await replica.lets_in("n")


async def test_one_that_is_given_up_makes_room_at_once(one: tuple[Scene, Replica]) -> None:
    _, replica = one
    assert await replica.lets_in("m", Cost(1, 10_000))
    await replica.gate.leave("team", "m")
    assert await replica.lets_in("n", Cost(1, 10_000))


async def test_dry_run_writes_nothing(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    assert await replica.lets_in("m", Cost(1, 10_000), is_trial=True)
    assert world.api.all(PAGES) == []
    assert not await replica.lets_in("n", Cost(1, 10_001), is_trial=True)


async def test_those_who_ask_together_share_one_turn(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    await replica.lets_in("first")
    world.api.requests.clear()
    await asyncio.gather(*(replica.lets_in(f"m-{number}") for number in range(50)))
    assert len(world.api.requests) <= 6


async def test_every_quota_of_the_namespace_counts(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    world.quota(0, "more", hard={"requests.nvidia.com/gpu": "2"})
    await world.seen()
    assert [await replica.lets_in(f"m-{number}") for number in range(3)] == [True, True, False]
    with pytest.raises(Exceeded, match=r"exceeded quota: more, requested: requests.nvidia.com/gpu=1, used"):
        await replica.gate.enter("team", "x", COST, ANY_POD)


async def test_no_answer_lets_nobody_in(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    world.api.refuse(503, when=lambda seen: seen.path.endswith("/pods"))
    with pytest.raises(Unavailable):
        await replica.lets_in("m")
    world.api.refuse(403, when=lambda seen: "configmaps" in seen.path)
    with pytest.raises(ApiError):
        await replica.lets_in("m")
    assert await replica.lets_in("m")


async def test_a_page_that_somebody_spoilt_is_begun_anew(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    assert await replica.lets_in("m")
    (page,) = world.api.all(PAGES)
    assert page["metadata"]["ownerReferences"][0]["kind"] == "Lease"
    page["data"] = {"reservations": "nonsense"}
    world.api.put(PAGES, page)
    assert await replica.lets_in("n")
    assert '"n"' in world.page


async def test_what_is_used_is_shown(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    world.quota(0, "gpus", hard={KEY: "10k", "requests.nvidia.com/gpu": "9", "pods": "3"})
    world.pod("m")
    world.pod("n")
    await world.seen()
    await replica.reporter.turn()
    (quota,) = world.api.all(QUOTAS)
    assert quota["status"]["used"] == {KEY: "2000"}
    await world.seen()
    world.api.requests.clear()
    await replica.reporter.turn()
    assert [seen.method for seen in world.api.requests if seen.method != "GET"] == []


async def test_nothing_is_kept_for_a_namespace_without_quota(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    assert await replica.lets_in("m")
    await replica.reporter.turn()
    world.api.drop(QUOTAS, "gpus", "team")
    await world.seen()
    assert not replica.gate.concerns("team")
    await replica.reporter.turn()
    assert world.api.all(PAGES) == []


async def test_a_quota_that_cannot_be_kept_is_told(one: tuple[Scene, Replica]) -> None:
    world, replica = one
    world.quota("10Gi")
    await world.seen()
    with pytest.raises(Exceeded, match="write 10240"):
        await replica.gate.enter("team", "m", COST, ANY_POD)
    await replica.reporter.turn()
    await replica.recorder.flush()
    (event,) = world.api.all(EVENTS)
    assert event["involvedObject"]["kind"] == "ResourceQuota"
    assert "write 10240" in event["message"]
