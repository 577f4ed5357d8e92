"""A fake API server, a running tessera-mutator, and its caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.api_server import ApiServer
from tests.integration.claim_mutator.process import Caller, Mutator, mutator, prepare


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        prepare(server)
        yield server


@pytest.fixture
async def running(api: ApiServer, tmp_path: Path) -> AsyncIterator[Mutator]:
    async with mutator(api, tmp_path) as process:
        await process.ready()
        yield process


@pytest.fixture
async def caller(running: Mutator) -> AsyncIterator[Caller]:
    async with Caller(running) as found:
        yield found
