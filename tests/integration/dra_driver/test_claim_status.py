from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.claim_status import ClaimStatus, device_statuses
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.kubelet.health import DeviceHealth, Health
from dra_driver.names import ClaimUID, DeviceName
from kube import paths
from kube.client import Client
from tests.integration.api_server import ApiServer, Seen
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, result, share_id
from tests.unit.dra_driver.cards import A100, RTX_4090

REF = claim_ref()
NOW, LATER = "2026-09-21T14:13:20Z", "2026-09-21T15:13:20Z"
NOW_SECONDS = 1_790_000_000.0


def grant(number: int = 1, **more: Any) -> GrantEntry:
    fields: dict[str, Any] = {
        "name": f"{REF.uid}-g0-{number}",
        "request": "g0",
        "device": RTX_4090.name,
        "uuid": RTX_4090.uuid,
        "memory": 3000 << 20,
        "cores": 30,
        "shares": 100,
        "share_id": share_id(number),
        "limited": True,
    }
    return GrantEntry(**fields | more)


def entry(*grants: GrantEntry, ref: ClaimRef = REF, state: State = State.PREPARED) -> Entry:
    return Entry(
        uid=ref.uid,
        namespace=ref.namespace,
        name=ref.name,
        boot_id="boot-1",
        state=state,
        grants=grants or (grant(),),
    )


def healthy(device: DeviceName) -> DeviceHealth:
    return DeviceHealth(device, Health.HEALTHY)


def of(found: Entry, *, health: Any = healthy, before: Any = (), now: str = NOW) -> list[dict[str, Any]]:
    return device_statuses(found, node=NODE, health=health, before=before, now=now)


def test_a_share() -> None:
    assert of(entry()) == [
        {
            "driver": "gpu.tessera.dev",
            "pool": NODE,
            "device": RTX_4090.name,
            "shareID": share_id(1),
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Prepared",
                    "message": "the kubelet has it",
                    "lastTransitionTime": NOW,
                },
                {
                    "type": "Healthy",
                    "status": "True",
                    "reason": "Healthy",
                    "message": "",
                    "lastTransitionTime": NOW,
                },
            ],
            "data": {
                "uuid": RTX_4090.uuid,
                "enforcement": "library",
                "limits": {"memory": "3000Mi", "cores": "30"},
            },
        }
    ]


@pytest.mark.parametrize(
    ("given", "data"),
    [
        pytest.param(
            grant(limited=False), {"uuid": RTX_4090.uuid, "enforcement": "none"}, id="nothing-enforced"
        ),
        pytest.param(
            grant(cores=0),
            {"uuid": RTX_4090.uuid, "enforcement": "library", "limits": {"memory": "3000Mi"}},
            id="no-core-limit",
        ),
        pytest.param(
            grant(cores=0, shim=True),
            {
                "uuid": RTX_4090.uuid,
                "enforcement": "library",
                "interposition": "shim",
                "limits": {"memory": "3000Mi"},
            },
            id="behind-a-shim",
        ),
    ],
)
def test_data(given: GrantEntry, data: dict[str, Any]) -> None:
    assert of(entry(given))[0]["data"] == data


def test_a_device_that_is_not_shared_has_no_share_id() -> None:
    assert "shareID" not in of(entry(grant(share_id=None)))[0]


@pytest.mark.parametrize(
    ("health", "status", "reason"),
    [
        pytest.param(Health.HEALTHY, "True", "Healthy", id="healthy"),
        pytest.param(Health.UNHEALTHY, "False", "Unhealthy", id="unhealthy"),
        pytest.param(Health.UNKNOWN, "Unknown", "Unknown", id="unknown"),
    ],
)
def test_health_is_a_condition(health: Health, status: str, reason: str) -> None:
    (found,) = of(entry(), health=lambda device: DeviceHealth(device, health, "why"))
    assert found["conditions"][1] == {
        "type": "Healthy",
        "status": status,
        "reason": reason,
        "message": "why",
        "lastTransitionTime": NOW,
    }


def test_times_change_with_the_state_only() -> None:
    two = entry(grant(1), grant(2, device=A100.name, uuid=A100.uuid))
    first = of(two)
    assert of(two, before=first, now=LATER) == first
    lost = of(
        two,
        before=first,
        now=LATER,
        health=lambda device: DeviceHealth(
            device, Health.UNHEALTHY if device == A100.name else Health.HEALTHY
        ),
    )
    times = [[condition["lastTransitionTime"] for condition in status["conditions"]] for status in lost]
    assert times == [[NOW, NOW], [NOW, LATER]]


class Reported:
    """A node's claims, their API server, and who writes their status; time passes by itself."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.client = client
        self.entries: dict[ClaimUID, Entry] = {}
        self.told: list[str] = []
        self.health = Health.HEALTHY
        self.now = NOW_SECONDS
        self.restart()

    def restart(self) -> None:
        self.status = ClaimStatus(
            self.client,
            node=NODE,
            entries=lambda: self.entries,
            health=lambda device: DeviceHealth(device, self.health),
            told=self.told.append,
            clock=lambda: self.now,
            monotonic=lambda: self.now,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)

    def put(self, ref: ClaimRef = REF) -> None:
        self.api.put(paths.resource_claims(), claim(ref, result(RTX_4090, "3000Mi")))
        self.entries[ref.uid] = entry(ref=ref)

    async def read(self, ref: ClaimRef = REF) -> dict[str, Any]:
        """As Prepare and reconcile do."""
        raw = await self.client.get(paths.resource_claim(ref.namespace, ref.name))
        self.status.seen(ref, raw)
        return raw

    def writes(self) -> list[Seen]:
        return [seen for seen in self.api.requests if seen.method != "GET"]


@pytest.fixture
async def reported() -> AsyncIterator[Reported]:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        made = Reported(api, client)
        made.put()
        yield made


async def test_is_written_once(reported: Reported) -> None:
    await reported.read()
    await reported.status.flush()
    (write,) = reported.writes()
    assert (write.method, write.path) == ("PATCH", paths.resource_claim_status("default", "claim"))
    assert write.headers["Content-Type"] == "application/apply-patch+yaml"
    assert write.params == {"fieldManager": "gpu.tessera.dev", "force": "true"}
    for _ in range(3):
        assert (await reported.read())["status"]["devices"] == of(entry())
        await reported.status.flush()
    assert len(reported.writes()) == 1


async def test_a_restart_writes_nothing(reported: Reported) -> None:
    await reported.read()
    await reported.status.flush()
    reported.restart()
    reported.now += 3600
    await reported.read()
    await reported.status.flush()
    assert len(reported.writes()) == 1


async def test_another_health_is_written_without_a_read(reported: Reported) -> None:
    await reported.read()
    await reported.status.flush()
    reported.health = Health.UNHEALTHY
    reported.now = NOW_SECONDS + 3600
    before = len(reported.api.requests)
    reported.status.health_changed()
    await reported.status.flush()
    assert len(reported.api.requests) == before + 1
    conditions = (await reported.read())["status"]["devices"][0]["conditions"]
    assert [condition["status"] for condition in conditions] == ["True", "False"]
    assert [condition["lastTransitionTime"] for condition in conditions] == [NOW, LATER]
    reported.status.health_changed()
    await reported.status.flush()
    assert len(reported.writes()) == 2


async def test_a_short_silence_of_the_driver_is_not_written(reported: Reported) -> None:
    """At our own start, and when the driver is replaced, nothing is known of any card for a while."""
    await reported.read()
    reported.health = Health.UNKNOWN
    await reported.status.flush()
    reported.now += 30
    await reported.read()
    await reported.status.flush()
    assert reported.writes() == []
    reported.health = Health.HEALTHY
    reported.status.health_changed()
    await reported.status.flush()
    assert len(reported.writes()) == 1
    reported.health = Health.UNKNOWN
    for seconds in (0, 59, 2):
        reported.now += seconds
        await reported.read()
        await reported.status.flush()
        assert len(reported.writes()) == (2 if seconds == 2 else 1)
    assert (await reported.read())["status"]["devices"][0]["conditions"][1]["status"] == "Unknown"


async def test_somebody_elses_edit_is_put_right(reported: Reported) -> None:
    await reported.read()
    await reported.status.flush()
    raw = await reported.read()
    raw["status"]["devices"] = []
    reported.api.put(paths.resource_claims(), raw)
    await reported.read()
    await reported.status.flush()
    assert (await reported.read())["status"]["devices"] == of(entry())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda entries: entries.clear(), id="unprepared"),
        pytest.param(
            lambda entries: entries.update(
                {REF.uid: msgspec.structs.replace(entry(), state=State.PREPARING)}
            ),
            id="not-prepared-yet",
        ),
    ],
)
async def test_only_what_is_prepared(
    reported: Reported, change: Callable[[dict[ClaimUID, Entry]], None]
) -> None:
    await reported.read()
    change(reported.entries)
    await reported.status.flush()
    assert reported.writes() == []


async def test_what_is_unprepared_is_forgotten(reported: Reported) -> None:
    await reported.read()
    reported.entries.clear()
    await reported.status.flush()
    assert reported.status._seen == {}


async def test_forbidden_is_told_once_and_then_there_is_quiet(reported: Reported) -> None:
    reported.api.refuse(403, times=99, when=lambda seen: seen.method == "PATCH")
    for ref in (claim_ref(f"claim-{number}") for number in range(5)):
        reported.put(ref)
        await reported.read(ref)
    await reported.status.flush()
    assert len(reported.writes()) == 1
    (told,) = reported.told
    assert "resourceclaims/driver" in told
    assert "--claim-status=false" in told
    reported.now += 60
    reported.status.health_changed()
    await reported.status.flush()
    assert len(reported.writes()) == 1


async def test_a_server_that_drops_the_field_is_told_once(
    reported: Reported, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def patch(*_arguments: Any, **_more: Any) -> dict[str, Any]:
        return claim(REF, result(RTX_4090))

    monkeypatch.setattr(reported.client, "patch", patch)
    for _ in range(3):
        await reported.read()
        await reported.status.flush()
    (told,) = reported.told
    assert "DRAResourceClaimDeviceStatus" in told


@pytest.mark.parametrize(
    ("status", "times", "requests", "is_written"),
    [
        pytest.param(503, 3, 4, True, id="comes-back"),
        pytest.param(429, 1, 2, True, id="told-to-wait"),
        pytest.param(503, 99, 5, False, id="stays-away"),
        pytest.param(404, 99, 1, False, id="gone"),
        pytest.param(409, 99, 1, False, id="replaced"),
        pytest.param(422, 99, 1, False, id="invalid"),
    ],
)
async def test_a_server_that_refuses(
    reported: Reported, status: int, times: int, requests: int, is_written: bool
) -> None:
    await reported.read()
    reported.api.refuse(status, times=times, when=lambda seen: seen.method == "PATCH")
    await reported.status.flush()
    assert len(reported.writes()) == requests
    assert ("devices" in (await reported.read())["status"]) is is_written
    assert reported.told == []


async def test_many_are_spread(reported: Reported) -> None:
    refs = [claim_ref(f"claim-{number}") for number in range(50)]
    for ref in refs:
        reported.put(ref)
        await reported.read(ref)
    await reported.status.flush()
    assert len(reported.writes()) == 50
    assert reported.now - NOW_SECONDS >= 4.9  # ten a second


async def test_run_writes_some_time_later(reported: Reported) -> None:
    running = asyncio.create_task(reported.status.run())
    await reported.read()
    async with asyncio.timeout(60):
        while not reported.writes():  # noqa: ASYNC110 - a server's state has no event to wait for
            await asyncio.sleep(0.01)
    assert reported.now >= NOW_SECONDS + 1
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
