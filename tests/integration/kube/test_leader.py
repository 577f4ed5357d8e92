"""One of several leads, the next takes over, and nobody leads who can't say so."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kube.client import Client
from kube.errors import ApiError
from kube.leader import Leader
from tests.integration.api_server import ApiServer

LEASES = "/apis/coordination.k8s.io/v1/leases"


class Race:
    """Candidates with one clock, which the test turns."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.now = 1000.0
        self.first, self.second = (
            Leader(client, "system", "tessera", name, duration=15, clock=lambda: self.now)
            for name in ("first", "second")
        )

    async def turns(self, after: float = 0.0) -> tuple[bool, bool]:
        self.now += after
        await self.second.turn()
        await self.first.turn()
        return self.first.leads, self.second.leads


@pytest.fixture
async def race() -> AsyncIterator[Race]:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        yield Race(api, client)


async def test_the_first_leads_as_long_as_it_renews(race: Race) -> None:
    await race.first.turn()
    for _ in range(10):
        assert await race.turns(after=5) == (True, False)
    (lease,) = race.api.all(LEASES)
    assert lease["spec"]["holderIdentity"] == "first"
    assert (lease["spec"]["leaseDurationSeconds"], lease["spec"]["leaseTransitions"]) == (15, 1)


async def test_an_empty_lease_is_anybodys(race: Race) -> None:
    race.api.put(LEASES, {"metadata": {"namespace": "system", "name": "tessera"}})
    assert await race.turns() == (False, True)


async def test_the_next_takes_over_from_one_that_is_silent(race: Race) -> None:
    await race.first.turn()
    await race.second.turn()
    race.now += 12
    assert not race.first.leads, "it stops before the others may start"
    await race.second.turn()
    assert not race.second.leads
    race.now += 4
    await race.second.turn()
    assert (race.first.leads, race.second.leads) == (False, True)
    assert await race.turns(after=1) == (False, True)
    (lease,) = race.api.all(LEASES)
    assert lease["spec"]["leaseTransitions"] == 2


async def test_a_lease_that_is_given_back_is_taken_at_once(race: Race) -> None:
    assert await race.turns() == (False, True)
    await race.second.release()
    assert not race.second.leads
    await race.first.turn()
    assert race.first.leads


async def test_without_an_answer_nobody_goes_on_leading(race: Race) -> None:
    await race.first.turn()
    race.api.refuse(503, times=100)
    race.now += 11
    with pytest.raises(ApiError):
        await race.first.turn()
    assert not race.first.leads


async def test_of_two_that_write_at_once_one_wins(race: Race) -> None:
    race.api.refuse(409, when=lambda seen: seen.method in ("POST", "PUT"), reason="Conflict")
    await race.first.turn()
    assert not race.first.leads
    await race.first.turn()
    assert race.first.leads
