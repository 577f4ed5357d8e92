from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from kube import paths
from tests.integration.api_server import ApiServer


@pytest.fixture
def root() -> Iterator[Path]:
    """A node's directory. Not tmp_path: that is too long for a Unix socket's path."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        yield Path(name)


@pytest.fixture
async def api() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.put(paths.nodes(), {"metadata": {"name": "node-a", "uid": "node-uid"}})
        yield server
