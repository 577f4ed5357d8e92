"""The real process's CA and certificate: published, renewed under load, one for all replicas."""

from __future__ import annotations

import asyncio
import datetime as dt
from pathlib import Path

import pytest

from claim_mutator import certificates
from claim_mutator.credentials import serving_names
from tests.integration.api_server import ApiServer
from tests.integration.claim_mutator.process import NAMESPACE, POD, SECRETS, WEBHOOK, Caller, Mutator, mutator


async def test_ca_is_published_where_our_service_is_called(api: ApiServer, running: Mutator) -> None:
    (configuration,) = api.all(WEBHOOK)
    foreign, ours = (webhook["clientConfig"]["caBundle"] for webhook in configuration["webhooks"])
    assert foreign == "Zm9yZWlnbg=="
    configuration["webhooks"][1]["clientConfig"]["caBundle"] = ""
    api.put(WEBHOOK, configuration)
    await running.until(lambda: api.all(WEBHOOK)[0]["webhooks"][1]["clientConfig"]["caBundle"] == ours)


async def test_not_ready_without_a_webhook_configuration(api: ApiServer, tmp_path: Path) -> None:
    (configuration,) = api.all(WEBHOOK)
    api.drop(WEBHOOK, "tessera-mutator")
    async with mutator(api, tmp_path) as process:
        await process.until(lambda: bool(process.webhook))

        async def lacks_that_alone() -> bool:
            lacks = "no webhook of tessera-mutator trusts our CA yet\n"
            return await process.get("/readyz") == (503, lacks)

        await process.until(lacks_that_alone)
        assert (await process.get("/healthz"))[0] == 200
        del configuration["metadata"]["resourceVersion"]
        api.put(WEBHOOK, configuration)
        await process.ready()


@pytest.mark.parametrize("what", ["serving certificate", "CA"])
async def test_rotation_without_a_dropped_review(
    api: ApiServer, running: Mutator, caller: Caller, what: str
) -> None:
    before = running.serial(caller.trust())
    stop = asyncio.Event()

    async def call() -> int:
        """A new connection each time, as hard as it gets; with what is trusted at that moment."""
        count = 0
        while not stop.is_set():
            async with Caller(running) as fresh:
                assert (await fresh.review(POD))["allowed"]
            count += 1
        return count

    calls = [asyncio.create_task(call()) for _ in range(4)]
    (secret,) = api.all(SECRETS)
    held = certificates.from_data(secret["data"])
    assert held is not None
    past = dt.datetime.now(dt.UTC) - dt.timedelta(days=80)
    if what == "CA":
        past = dt.datetime.now(dt.UTC) - dt.timedelta(days=1500)
        held = None
    due = certificates.renewed(held, serving_names("tessera-mutator", NAMESPACE), past)
    if what == "serving certificate":
        names = serving_names("other", NAMESPACE)  # due: it is for other names
        due = certificates.renewed(held, names, dt.datetime.now(dt.UTC))
    api.put(SECRETS, {**secret, "data": due.to_data()})
    await running.until(lambda: running.serial(caller.trust()) != before)
    await asyncio.sleep(0.3)
    stop.set()
    counts = await asyncio.gather(*calls)
    assert min(counts) > 0
    (secret,) = api.all(SECRETS)
    now = certificates.from_data(secret["data"])
    assert now is not None
    assert (
        certificates.renewed(now, serving_names("tessera-mutator", NAMESPACE), dt.datetime.now(dt.UTC)) == now
    )


async def test_two_replicas_have_one_certificate(api: ApiServer, tmp_path: Path) -> None:
    async with mutator(api, tmp_path) as one, mutator(api, tmp_path) as other:
        await asyncio.gather(one.ready(), other.ready())
        trust = Caller(one).trust()
        await one.until(lambda: one.serial(trust) == other.serial(trust))
    assert len(api.all(SECRETS)) == 1
