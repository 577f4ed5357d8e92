"""The health service, for drivers and kubelets that have it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.node import Node
from tests.integration.dra_driver.kubelet import watch_health

HEALTHY = 1
VERSIONS = {"v1": "v1.DRAResourceHealth", "v1alpha1": "v1alpha1.DRAResourceHealth"}


async def first(node: Node, version: str) -> Any:
    async with (
        asyncio.timeout(60),
        aclosing(watch_health(Path(node.info.endpoint), version=version)) as stream,
    ):
        return await anext(stream)


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_first_message_has_every_device(node: Node, version: str) -> None:
    assert VERSIONS[version] in node.info.supported_versions
    message = await first(node, version)
    assert {(device.device.pool_name, device.device.device_name) for device in message.devices} == {
        (device.pool, device.name) for device in node.devices
    }
    assert {device.health for device in message.devices} == {HEALTHY}


async def test_a_new_stream_after_a_restart(fresh: Node) -> None:
    fresh.start()
    async with fresh.connected():
        before = await first(fresh, "v1")
        async with aclosing(watch_health(Path(fresh.info.endpoint))) as stream:
            await anext(stream)
            fresh.process.stop(signal.SIGTERM)
    fresh.process.start()
    async with fresh.connected():
        after = await first(fresh, "v1")
        names = [{device.device.device_name for device in message.devices} for message in (before, after)]
        assert names[0] == names[1]
