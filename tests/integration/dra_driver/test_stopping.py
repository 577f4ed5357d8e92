"""The end of the agent: in time whatever it is busy with, at once if a part of it dies, and with a reason."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from tests.integration.api_server import ApiServer, Seen
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register, watch_health
from tests.integration.dra_driver.world import World, serving, two_cards

LIMIT = 15.0  # seconds from SIGTERM: 5 of the agent's, and what a slow machine takes to start and end things
IN_FLIGHT = 'tessera_claims_in_flight{operation="prepare"}'


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    async with serving(Agent(root, api, TESSERA_LOOK_PERIOD="0.5", **two_cards(root)), api) as made:
        yield made


async def ended(agent: Agent) -> tuple[int, float]:
    """Exit status, and the seconds from SIGTERM to the end."""
    began = time.monotonic()
    status = await agent.stop(signal.SIGTERM, 2 * LIMIT)
    return status, time.monotonic() - began


async def test_with_nothing_to_do(world: World) -> None:
    status, seconds = await ended(world.agent)
    assert status == 0
    assert seconds < LIMIT
    said = world.agent.log.read_text()
    assert "told to stop by SIGTERM" in said
    assert not world.agent.sockets.dra.exists()
    assert not world.agent.sockets.registration.exists()


async def test_with_health_streams_and_a_scrape_going_on(world: World) -> None:
    streams = [watch_health(world.agent.sockets.dra, version=version) for version in ("v1", "v1alpha1")]
    for stream in streams:
        await anext(stream)
    reader, writer = await asyncio.open_connection(*world.agent.address)
    writer.write(b"GET /metrics HTTP/1.1\r\n")  # and never the rest
    status, seconds = await ended(world.agent)
    assert (status, seconds < LIMIT) == (0, True)
    writer.close()
    for stream in streams:
        await stream.aclose()
    del reader


async def test_with_an_api_server_that_answers_nothing(world: World) -> None:
    """A black hole: connections are there, answers are not."""
    claim = world.allocate("claim", world.share(0))
    hole = asyncio.Event()
    serve = world.api._serve

    async def silent(request: Any) -> Any:
        await hole.wait()
        return await serve(request)

    world.api._serve = silent  # type: ignore[method-assign]
    world.api.reset_streams()
    await world.api.stop()
    await world.api.start()
    asked = asyncio.create_task(world.kubelet.prepare(claim))
    await world.until_metric(IN_FLIGHT, 1)
    assert (await world.agent.get("/healthz"))[0] == 200
    status, seconds = await ended(world.agent)
    assert (status, seconds < LIMIT) == (0, True)
    said: Any = (await asyncio.gather(asked, return_exceptions=True))[0]
    assert isinstance(said, BaseException) or said[claim.uid].error
    assert world.agent.files() == set()
    hole.set()


async def test_with_a_driver_that_hangs(world: World) -> None:
    await world.agent.fakegpu("nvml", "--hang")
    await asyncio.sleep(1.5)  # a look at the cards is under way
    status, seconds = await ended(world.agent)
    assert (status, seconds < LIMIT) == (0, True)


async def test_with_a_disk_that_hangs(world: World) -> None:
    """A FIFO in place of a file: whoever opens it waits for ever. The watchdog ends what can't be ended."""
    claim = world.allocate("claim", world.share(0))
    await world.prepared(claim)
    usage = next((world.agent.root / "run/claims").rglob("usage"))
    usage.unlink()
    os.mkfifo(usage)
    stuck = asyncio.create_task(world.kubelet.prepare(claim))
    await asyncio.sleep(0.5)
    assert (await world.agent.get("/healthz"))[0] == 200
    status, seconds = await ended(world.agent)
    assert seconds < LIMIT
    assert status in (0, 1)
    await asyncio.gather(stuck, return_exceptions=True)


async def test_a_second_signal_ends_it_at_once(world: World) -> None:
    os.kill(world.agent.pid, signal.SIGSTOP)  # so that both are there before the first is taken
    os.kill(world.agent.pid, signal.SIGTERM)
    os.kill(world.agent.pid, signal.SIGINT)
    await world.agent.stop(signal.SIGCONT)
    assert "not ended within" not in world.agent.log.read_text()


async def test_a_part_that_dies_ends_the_process_with_its_reason(root: Path, api: ApiServer) -> None:
    program = (
        "from dra_driver.claims.reconcile import Reconciler\n"
        "async def run(self): raise KeyError('a bug')\n"
        "Reconciler.run = run\n"
        "from dra_driver.main import main; main()"
    )
    (root / "driver").mkdir()
    with Agent(root, api, program=program) as agent:
        status, said = await agent.end()
    assert status == 1
    assert "ended by a failure: KeyError('a bug') (this ended the task reconciler" in said


async def test_busy_is_not_dead(world: World) -> None:
    """50 claims in hand whose reading takes its time: probes and scrapes are answered meanwhile."""
    claims = [world.allocate(f"c{number}", world.share(0, "1Mi", "0", "1")) for number in range(50)]
    answered = world.api.hold(when=lambda seen: "resourceclaims" in seen.path)
    asked = asyncio.create_task(world.kubelet.prepare(*claims))
    await world.until_metric(IN_FLIGHT, len(claims))
    assert await world.agent.get("/healthz") == (200, "ok\n")
    answered.set()
    assert {answer.error for answer in (await asked).values()} == {""}
    assert await world.metric(IN_FLIGHT) == 0
    assert await world.metric('tessera_claim_seconds_count{operation="prepare"}') == 50
    codes = '{code="2xx",resource="resourceclaims",verb="get"}'
    assert await world.metric(f"tessera_api_requests_total{codes}") >= 50


async def test_health_fails_with_a_socket_that_is_gone(world: World) -> None:
    world.agent.sockets.dra.unlink()
    status, words = await world.agent.get("/healthz")
    assert status == 503
    assert f"{world.agent.sockets.dra} does not answer" in words


async def dumped(agent: Agent) -> dict[str, Any]:
    path = agent.root / "run/state.json"
    path.unlink(missing_ok=True)
    os.kill(int((agent.root / "run/driver.pid").read_text()), signal.SIGUSR1)
    await agent.until(path.exists)
    assert path.stat().st_mode & 0o777 == 0o600
    state = json.loads(path.read_text())
    assert isinstance(state, dict)
    return state


async def test_the_state_is_written_down(world: World) -> None:
    claim = world.allocate("claim", world.share(0))
    await world.prepared(claim)

    state: dict[str, Any] = {}

    async def is_at_rest() -> bool:
        state.update(await dumped(world.agent))
        is_reconciled = state["tasks"]["reconciler"][-1].endswith("Event.wait")
        return is_reconciled and not state["slices"]["pendingWrites"]

    await world.agent.until(is_at_rest)
    assert "[+] registered" in state["conditions"]
    assert [card["uuid"] for card in state["node"]["inventory"]["cards"]] == [
        device["attributes"]["uuid"]["string"] for device in world.devices()
    ]
    assert state["ledger"]["entries"][claim.uid]["state"] == "prepared"
    assert state["settings"]["node_name"] == "node-a"
    assert state["claimsInHand"] == {"locked": {}, "running": 0, "changing": 0}
    assert {"publisher", "reconciler", "http", "discovery"} <= set(state["tasks"])
    assert any("MainThread" in name for name in state["threads"])
    assert "secret" not in json.dumps(state)


async def test_the_state_of_one_whose_loop_is_blocked(root: Path, api: ApiServer) -> None:
    program = (
        "import time, dra_driver.process.http as http\n"
        "async def call(self, path): time.sleep(600)\n"
        "http.Endpoints.__call__ = call\n"
        "from dra_driver.main import main; main()"
    )
    (root / "driver").mkdir()
    with Agent(root, api, program=program) as agent:
        await agent.start()
        _, writer = await asyncio.open_connection(*agent.address)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")

        async def is_seen() -> bool:
            return "has not answered for 2 s" in (await dumped(agent))["loop"]

        await agent.until(is_seen)
        state = await dumped(agent)
        assert any("time.sleep(600)" in line or "call" in line for line in state["threads"][_main(state)])
        os.kill(agent.pid, signal.SIGUSR2)
        await agent.until(lambda: "Current thread" in agent.log.read_text())
        status, seconds = await ended(agent)
        assert (status, seconds < LIMIT) == (1, True)
        assert "not ended within 4.5 s of being told to" in agent.log.read_text()
        writer.close()


def _main(state: dict[str, Any]) -> str:
    return next(str(name) for name in state["threads"] if name.startswith("MainThread"))


async def test_json_lines_name_claim_request_and_method(root: Path, api: ApiServer) -> None:
    environment = {**two_cards(root), "TESSERA_LOG_FORMAT": "json", "TESSERA_LOG_LEVEL": "debug"}
    with Agent(root, api, TESSERA_SPLIT_COUNTS="4", **environment) as agent:
        await agent.start()
        await register(agent.sockets.registration)
        await agent.until_ready()
        async with Kubelet(agent.sockets.dra) as kubelet:
            world = World(agent, api, kubelet)
            claim = world.allocate("claim", world.share(0))
            await world.prepared(claim)
            gone = WireClaim("default", "gone", "0c8f1f2e-0000-4000-8000-00000000dead")
            assert (await kubelet.prepare(gone))[gone.uid].error
            await kubelet.unprepare(claim)
        assert await agent.stop() == 0
    lines = [json.loads(line) for line in agent.log.read_text().splitlines()]
    name = f"default/claim:{claim.uid}"
    done = [line for line in lines if "outcome" in line]
    assert [(line["claim"], line["method"], line["outcome"]) for line in done] == [
        (name, "NodePrepareResources", "success"),
        (f"default/gone:{gone.uid}", "NodePrepareResources", "retryable"),
        (name, "NodeUnprepareResources", "success"),
    ]
    assert len({line["request"] for line in done}) == 3
    assert all(line["milliseconds"] >= 0 for line in done)
    payload = next(line for line in lines if line["message"].startswith("GET ") and name == line.get("claim"))
    assert payload["level"] == "debug"
    assert payload["request"] == done[0]["request"]
    assert any("TESSERA_SPLIT_COUNTS is ignored" in line["message"] for line in lines)


async def test_no_payload_above_debug(world: World) -> None:
    claim = world.allocate("claim", world.share(0))
    await world.prepared(claim)
    assert "consumedCapacity" not in world.agent.log.read_text()


async def test_an_idle_agent_writes_and_reads_nothing(world: World) -> None:
    await asyncio.sleep(1)
    before = len(world.api.requests)
    await asyncio.sleep(4)

    def is_news(seen: Seen) -> bool:
        return seen.method != "GET" or not seen.is_watch

    assert [seen.path for seen in world.api.requests[before:] if is_news(seen)] == []


async def test_a_server_that_is_overloaded_is_left_alone_as_long_as_it_says(
    root: Path, api: ApiServer
) -> None:
    (root / "driver").mkdir()
    api.refuse(
        429,
        times=1,
        retry_after=2,
        when=lambda seen: seen.path == paths.resource_slices() and not seen.is_watch,
    )
    with Agent(root, api) as agent:
        await agent.start()
        await agent.until(lambda: bool(api.all(paths.resource_slices())))
    tries = [
        seen.at for seen in api.requests if seen.path == paths.resource_slices() and seen.method == "GET"
    ]
    assert tries[1] - tries[0] >= 2
