from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kube import paths
from kube.client import Client
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.publishing import Setting


@pytest.fixture
def root() -> Iterator[Path]:
    """A node's directory. Not tmp_path: that is too long for a Unix socket's path."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        yield Path(name)


@pytest.fixture
async def api(request: pytest.FixtureRequest) -> AsyncIterator[ApiServer]:
    """Has our Node; of the class that a test names, where it names one."""
    kind = getattr(request, "param", ApiServer)
    async with kind() as server:
        server.put(paths.nodes(), {"metadata": {"name": "node-a", "uid": "node-uid"}})
        yield server


@pytest.fixture
async def setting(api: ApiServer) -> AsyncIterator[Setting]:
    async with Client(api.connection, user_agent="test") as client:
        made = Setting(api, client)
        running = asyncio.create_task(made.publisher.run())
        yield made
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
