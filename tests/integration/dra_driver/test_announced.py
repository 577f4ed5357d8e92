"""What the agent's process writes about claims and its node besides slices: Events, and status.devices."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import WireClaim, register
from tests.integration.dra_driver.world import World, serving, two_cards
from tests.unit.dra_driver.allocations import opaque, share_id

EVENTS = "/api/v1/events"


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    async with serving(Agent(root, api, **two_cards(root), TESSERA_RECONCILE_PERIOD="1"), api) as made:
        yield made


def events(world: World, reason: str) -> list[dict[str, Any]]:
    return [event for event in world.api.all(EVENTS) if event["reason"] == reason]


def statuses(world: World, wire: WireClaim) -> list[dict[str, Any]]:
    for raw in world.api.all(paths.resource_claims()):
        if raw["metadata"]["uid"] == wire.uid:
            found: list[dict[str, Any]] = raw["status"].get("devices", [])
            return found
    raise AssertionError(f"no claim {wire.name}")


def writes(world: World) -> list[tuple[str, str]]:
    return [(seen.method, seen.path) for seen in world.api.requests if seen.method != "GET"]


async def test_status_says_card_and_limits(world: World) -> None:
    wire = world.allocate("claim", world.share(0), world.share(1, "80Gi", "100", "1k", share=2, request="g1"))
    await world.prepared(wire)
    await world.agent.until(lambda: len(statuses(world, wire)) == 2)
    share, whole = statuses(world, wire)
    uuids = [device["attributes"]["uuid"]["string"] for device in world.devices()]
    assert share["shareID"] == share_id(1)
    assert share["data"] == {
        "uuid": uuids[0],
        "enforcement": "library",
        "limits": {"memory": "3000Mi", "cores": "30"},
    }
    assert whole["data"] == {"uuid": uuids[1], "enforcement": "none"}
    for status in (share, whole):
        assert [(c["type"], c["status"]) for c in status["conditions"]] == [
            ("Ready", "True"),
            ("Healthy", "True"),
        ]


async def test_status_is_written_once_and_never_while_idle(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await world.agent.until(lambda: bool(statuses(world, wire)))
    before = writes(world)
    await asyncio.sleep(4)  # several rounds of reconcile
    await world.prepared(wire)
    await asyncio.sleep(2)
    assert writes(world) == before


async def test_a_restart_writes_no_status(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await world.agent.until(lambda: bool(statuses(world, wire)))
    await world.agent.stop(signal.SIGKILL)
    world.agent.sockets.registration.unlink()
    before = [(method, path) for method, path in writes(world) if path.endswith("/status")]
    await world.agent.start()
    await register(world.agent.sockets.registration)
    await world.agent.until_ready()
    await asyncio.sleep(3)
    assert [(method, path) for method, path in writes(world) if path.endswith("/status")] == before


async def test_somebody_elses_edit_is_put_right(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await world.agent.until(lambda: bool(statuses(world, wire)))
    (raw,) = world.api.all(paths.resource_claims())
    world.api.put(paths.resource_claims(), raw | {"status": raw["status"] | {"devices": []}})
    await world.agent.until(lambda: bool(statuses(world, wire)))


async def test_without_the_right_it_is_told_once(world: World) -> None:
    world.api.refuse(403, times=1000, when=lambda seen: seen.path.endswith("/status"))
    wires = [world.allocate(f"claim-{n}", world.share(0, "1Gi", "10", share=n)) for n in range(5)]
    for wire in wires:
        await world.prepared(wire)
    await world.agent.until(lambda: bool(events(world, "ClaimStatusNotWritten")))
    await asyncio.sleep(3)
    assert len([path for _, path in writes(world) if path.endswith("/status")]) == 1
    (event,) = events(world, "ClaimStatusNotWritten")
    assert event["involvedObject"]["kind"] == "Node"
    assert "resourceclaims/driver" in event["message"]


async def test_switched_off_no_status_is_written(root: Path, api: ApiServer) -> None:
    agent = Agent(root, api, **two_cards(root), TESSERA_CLAIM_STATUS="false")
    async with serving(agent, api) as world:
        wire = world.allocate("claim", world.share(0))
        await world.prepared(wire)
        await asyncio.sleep(3)
        assert statuses(world, wire) == []


@pytest.mark.parametrize(
    ("reason", "memory", "config", "words"),
    [
        pytest.param(
            "ShareConfigRefused",
            "1Gi",
            [opaque(enforcement="none")],
            "enforcement: 'none' takes effect from a DeviceClass alone",
            id="config",
        ),
        pytest.param(
            "CardOvercommitted", "25Gi", None, "over-committed, memory 25Gi of 24Gi", id="over-commit"
        ),
        pytest.param("PrepareRefused", "0", None, "was given no memory at all", id="permanent"),
    ],
)
async def test_a_refused_claim_has_an_event(
    world: World, reason: str, memory: str, config: Any, words: str
) -> None:
    wire = world.allocate("claim", world.share(0, memory), config=config)
    for _ in range(5):  # as the kubelet does
        assert words in (await world.kubelet.prepare(wire))[wire.uid].error
    await world.agent.until(lambda: bool(events(world, reason)))
    (event,) = events(world, reason)
    assert event["involvedObject"]["uid"] == wire.uid
    assert event["metadata"]["namespace"] == "default"
    assert words in event["message"]
    assert len([path for method, path in writes(world) if "/events" in path]) == 1


async def test_a_driver_that_is_missing_and_comes_back(root: Path, api: ApiServer) -> None:
    with Agent(root, api, TESSERA_LOOK_PERIOD="0.5") as agent:
        (root / "driver").mkdir()
        await agent.start()

        def reasons() -> set[str]:
            return {event["reason"] for event in api.all(EVENTS)}

        await agent.until(lambda: {"DriverMissing", "CardsNotUsable"} <= reasons())
        (missing,) = [event for event in api.all(EVENTS) if event["reason"] == "DriverMissing"]
        assert "is the NVIDIA driver installed there?" in missing["message"]
        assert missing["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node-a",
            "uid": "node-a",
        }


async def test_a_corrupt_ledger_has_an_event(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await world.agent.stop(signal.SIGKILL)
    world.agent.sockets.registration.unlink()
    file = world.agent.root / "state/ledger" / f"{wire.uid}.json"
    file.write_bytes(file.read_bytes()[:40])
    await world.agent.start()
    await world.agent.until(lambda: bool(events(world, "LedgerDamaged")))
    assert wire.uid in events(world, "LedgerDamaged")[0]["message"]


async def test_a_server_without_events_holds_up_nothing(world: World) -> None:
    world.api.refuse(403, times=1000, when=lambda seen: "/events" in seen.path)
    bad = world.allocate("bad", world.share(0, "25Gi"))
    good = world.allocate("good", world.share(0, share=2))
    answers = await world.kubelet.prepare(bad, good)
    assert "over-committed" in answers[bad.uid].error
    assert answers[good.uid].error == ""
    await world.agent.until(lambda: "is not written" in world.agent.log.read_text())
    await asyncio.sleep(0.5)
    assert world.agent.log.read_text().count("is not written") == 1
