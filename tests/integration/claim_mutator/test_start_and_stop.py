"""How the real process begins, refuses to begin, and leaves."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path

from aiohttp import web

from tests.integration.api_server import ApiServer
from tests.integration.claim_mutator.process import POD, TEMPLATES, Caller, mutator, prepare
from tests.unit.claim_mutator.pods import container, manifest


async def test_sigterm_drains(api: ApiServer, tmp_path: Path) -> None:
    async with mutator(api, tmp_path, "--drain-seconds", "5") as running:
        await running.ready()
        async with Caller(running) as caller:
            running.process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                while (await running.get("/readyz"))[0] == 200:  # noqa: ASYNC110 - it is another process
                    await asyncio.sleep(0.02)
            assert await running.get("/readyz") == (503, "this replica is leaving\n")
            assert (await caller.review(POD))["allowed"]
        assert await asyncio.wait_for(running.process.wait(), 60) == 0
    assert "done" in running.log[-1]


async def test_sigterm_before_it_is_ready(api: ApiServer, tmp_path: Path) -> None:
    api.refuse(503, times=10_000)
    async with mutator(api, tmp_path) as process:
        await process.until(lambda: bool(process.endpoints))
        assert (await process.get("/readyz"))[0] == 503
        assert await process.stop() == 0


async def test_server_that_is_too_old(api: ApiServer, tmp_path: Path) -> None:
    api.server_version = {"major": "1", "minor": "34+"}
    async with mutator(api, tmp_path) as process:
        assert await asyncio.wait_for(process.process.wait(), 60) == 1
    assert "Kubernetes 1.34 can't share devices reliably: upgrade to 1.35" in process.log[-1]


class ForgetfulServer(ApiServer):
    """Has DRAConsumableCapacity off: what a claim asks of a card is dropped, silently."""

    async def _create(self, request: web.Request, collection: str, namespace: str) -> web.Response:
        answer = await super()._create(request, collection, namespace)
        if collection != TEMPLATES or not isinstance(answer.body, bytes):
            return answer
        stored = json.loads(answer.body)
        for each in stored["spec"]["spec"]["devices"]["requests"]:
            each["exactly"].pop("capacity", None)
        return web.json_response(stored, status=answer.status)


async def test_no_share_becomes_a_whole_card_where_the_gate_is_off(tmp_path: Path) -> None:
    """B123. Whoever wants no card is not concerned."""
    async with ForgetfulServer() as api:
        prepare(api)
        async with mutator(api, tmp_path) as process:
            await process.ready()
            async with Caller(process) as caller:
                response = await caller.review(POD)
                assert not response["allowed"]
                assert "feature gate DRAConsumableCapacity is off" in response["status"]["message"]
                assert (await caller.review(manifest(container(gpu="0"))))["allowed"]
        assert any("Pods with GPUs are refused" in line for line in process.log)
        assert api.all(TEMPLATES) == []


async def test_a_look_at_capacities_that_is_forbidden_stops_nobody(api: ApiServer, tmp_path: Path) -> None:
    api.refuse(403, reason="Forbidden", when=lambda seen: seen.params.get("dryRun") == "All")
    async with mutator(api, tmp_path) as process:
        await process.ready()
        async with Caller(process) as caller:
            assert (await caller.review(POD))["allowed"]
    assert any("whether the API server keeps capacity requests can't be seen" in line for line in process.log)


async def test_bad_settings_are_all_named(api: ApiServer, tmp_path: Path) -> None:
    async with mutator(api, tmp_path, "--default-count=-1", "--log-level", "loud") as process:
        assert await asyncio.wait_for(process.process.wait(), 60) == 2
    assert ["--default-count" in process.log[0], "--log-level" in process.log[1]] == [True, True]
