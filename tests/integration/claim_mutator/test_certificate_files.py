"""cert-manager's files: taken when they are there, exchanged under load, never half."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from claim_mutator import certificates
from claim_mutator.certificates import Credentials
from tests.integration.api_server import ApiServer
from tests.integration.claim_mutator.process import WEBHOOK, Mutator, mutator, prepare
from tests.unit.claim_mutator.pods import container, manifest

HOST = "tessera-mutator.tessera-system.svc"
NOW = dt.datetime.now(dt.UTC)
REVIEW = {"request": {"uid": "u", "namespace": "n", "object": manifest(container(gpu="1", gpumem="3000"))}}


def issued(held: Credentials | None = None) -> Credentials:
    """Another serving certificate each time, of the same CA where one is given."""
    return certificates.renewed(held, [HOST], NOW) if held is None else certificates.renewed(
        certificates.renewed(held, ["other"], NOW), [HOST], NOW
    )  # fmt: skip


def put(directory: Path, credentials: Credentials, number: int) -> None:
    """As the kubelet exchanges the files of a Secret: a link to the new ones, moved over the old."""
    versioned = directory / f"..{number}"
    versioned.mkdir()
    (versioned / "tls.crt").write_bytes(credentials.certificate)
    (versioned / "tls.key").write_bytes(credentials.key)
    link = directory / "..new"
    link.symlink_to(versioned.name)
    link.rename(directory / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[tuple[Mutator, Path]]:
    directory = tmp_path / "certificate"
    directory.mkdir()
    async with ApiServer() as api:
        prepare(api)
        async with mutator(api, tmp_path, "--tls-directory", str(directory)) as process:
            yield process, directory


async def test_waits_for_the_files_and_takes_new_ones_without_a_dropped_review(
    running: tuple[Mutator, Path],
) -> None:
    process, directory = running
    await process.until(lambda: bool(process.endpoints))
    assert "there is no serving certificate yet" in (await process.get("/readyz"))[1]
    first = issued()
    put(directory, first, 1)
    await process.ready()
    trust = ssl.create_default_context(cadata=first.ca_bundle.decode())
    before = process.serial(trust)
    stop = asyncio.Event()

    async def call() -> int:
        count = 0
        while not stop.is_set():
            async with (
                aiohttp.ClientSession() as session,
                session.post(
                    f"https://{process.webhook}/mutate",
                    data=json.dumps(REVIEW),
                    headers={"Content-Type": "application/json"},
                    ssl=trust,
                    server_hostname=HOST,
                ) as answer,
            ):
                assert (await answer.json())["response"]["allowed"]
            count += 1
        return count

    calls = [asyncio.create_task(call()) for _ in range(3)]
    second = issued(first)
    put(directory, second, 2)
    await process.until(lambda: process.serial(trust) != before)
    stop.set()
    assert min(await asyncio.gather(*calls)) > 0
    (configuration,) = process.api.all(WEBHOOK)
    assert "caBundle" not in configuration["webhooks"][1]["clientConfig"], "that is cert-manager's"


async def test_files_that_do_not_fit_together_are_not_taken(running: tuple[Mutator, Path]) -> None:
    process, directory = running
    first, other = issued(), issued()
    put(directory, first, 1)
    await process.ready()
    trust = ssl.create_default_context(cadata=first.ca_bundle.decode())
    before = process.serial(trust)
    put(directory, Credentials(b"", b"", other.certificate, first.key), 2)
    await process.until(lambda: any("KEY_VALUES_MISMATCH" in line for line in process.log))
    assert process.serial(trust) == before
    put(directory, issued(first), 3)
    await process.until(lambda: process.serial(trust) != before)
