"""What the kubelet asks of a driver before it uses it."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from pathlib import Path

import grpc
import pytest

from tests.conformance.node import Node
from tests.integration.dra_driver.kubelet import Kubelet, register


async def test_who_it_is(node: Node) -> None:
    assert node.info.type == "DRAPlugin"
    assert node.info.name == node.driver.driver
    assert Path(node.info.endpoint).is_absolute()
    assert Path(node.info.endpoint).is_socket()  # noqa: ASYNC240


async def test_versions_in_order_of_preference(node: Node) -> None:
    versions = [version for version in node.info.supported_versions if version.endswith(".DRAPlugin")]
    assert versions == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


async def test_the_same_again_for_a_kubelet_that_restarts(node: Node) -> None:
    assert await register(node.process.registration) == node.info


async def test_a_refusal_is_logged_and_survived(fresh: Node) -> None:
    fresh.start()
    with suppress(grpc.aio.AioRpcError):
        await register(fresh.process.registration, error="no such version here")
    async with asyncio.timeout(60):
        while "no such version here" not in fresh.process.log.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert fresh.process.is_running
    async with fresh.connected():
        await fresh.prepared(await fresh.claim())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_sockets_go_with_the_driver(fresh: Node, number: signal.Signals) -> None:
    fresh.start()
    async with fresh.connected():
        endpoint = Path(fresh.info.endpoint)
    assert fresh.process.stop(number) == 0
    assert not fresh.process.registration.exists()
    assert not endpoint.exists()  # noqa: ASYNC240


async def test_registered_over_what_a_killed_driver_left(fresh: Node) -> None:
    fresh.start()
    fresh.process.stop(signal.SIGKILL)
    assert fresh.process.registration.is_socket()
    fresh.process.start()
    async with fresh.connected():
        await fresh.prepared(await fresh.claim())


async def test_both_versions_of_the_protocol(node: Node) -> None:
    wire = await node.claim()
    v1 = await node.prepared(wire)
    async with Kubelet(Path(node.info.endpoint), version="v1beta1") as kubelet:
        answer = (await kubelet.prepare(wire))[wire.uid]
        assert answer.error == ""
        for old, new in zip(answer.devices, v1.devices, strict=True):
            for field in ("request_names", "pool_name", "device_name", "cdi_device_ids"):
                assert getattr(old, field) == getattr(new, field)
        assert await kubelet.unprepare(wire) == {wire.uid: ""}
