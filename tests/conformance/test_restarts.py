"""A driver that dies, is updated, or whose node boots: claims are prepared once or gone, and nothing is left.

Where exactly a driver dies can't be chosen from outside; these kill it at many moments of its work.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import grpc
import pytest

from tests.conformance.node import Node, cdi_ids
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register

OLD = "0c8f1f2e-0000-4000-8000-000000000001"
NEW = "0c8f1f2e-0000-4000-8000-000000000002"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_claims_are_known_after_a_restart(fresh: Node, number: signal.Signals) -> None:
    fresh.start()
    async with fresh.connected():
        before = await fresh.settled()
        wire = await fresh.claim()
        first = await fresh.prepared(wire)
        files = fresh.host.files()
    fresh.restart(number)
    async with fresh.connected():
        assert fresh.host.files() == files
        assert await fresh.prepared(wire) == first
        await fresh.unprepared(wire)
        assert fresh.host.files() == before


async def test_unprepare_is_the_first_call_after_a_restart(fresh: Node) -> None:
    fresh.start()
    async with fresh.connected():
        before = await fresh.settled()
        wire = await fresh.claim()
        await fresh.prepared(wire)
    fresh.restart()
    async with fresh.connected():
        await fresh.unprepared(wire)
        assert fresh.host.files() == before


@pytest.mark.parametrize("milliseconds", [4, 15])
async def test_killed_in_the_middle_of_its_work(fresh: Node, milliseconds: int) -> None:
    fresh.start()
    async with fresh.connected():
        before = await fresh.settled()
        wires = [await fresh.claim(fresh.devices[n % 2].result(memory="1Gi")) for n in range(20)]
        for wire in wires[:10]:
            await fresh.prepared(wire)
        calls = [asyncio.create_task(fresh.kubelet.unprepare(wire)) for wire in wires[:10]]
        calls += [asyncio.create_task(fresh.kubelet.prepare(wire)) for wire in wires[10:]]
        await asyncio.sleep(milliseconds / 1000)
        fresh.process.stop(signal.SIGKILL)
        await asyncio.gather(*calls, return_exceptions=True)
    fresh.process.start()
    async with fresh.connected():
        answers = [await fresh.prepared(wire) for wire in wires]
        assert len({id for answer in answers for id in cdi_ids(answer)}) >= len(wires)
        await fresh.unprepared(*wires)
        assert fresh.host.files() == before


async def test_after_a_reboot(fresh: Node) -> None:
    """What is volatile is empty; containers are gone; the kubelet asks for the same claims again."""
    fresh.start()
    async with fresh.connected():
        before = await fresh.settled()
        wire, other = await fresh.claim(), await fresh.claim()
        first = await fresh.prepared(wire)
        await fresh.prepared(other)
    fresh.process.stop(signal.SIGKILL)
    for directory in (fresh.host.cdi, fresh.host.run):
        for path in directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    fresh.driver.reboot(fresh.host)
    fresh.process.start()
    async with fresh.connected():
        assert await fresh.prepared(wire) == first
        await fresh.unprepared(wire, other)
        assert fresh.host.files() <= before


async def test_an_update_without_a_gap(fresh: Node) -> None:
    """A Pod of the new release beside the old one's, then alone; the kubelet never asks in vain."""
    old = fresh.start(pod_uid=OLD)
    async with fresh.connected():
        before = await fresh.settled()
        held = await fresh.claim()
        first = await fresh.prepared(held)
        wires = [await fresh.claim() for _ in range(40)]
        endpoints = [Path(fresh.info.endpoint)]
        asking = asyncio.create_task(_ask_newest(endpoints, wires))
        new = await fresh.start_beside(pod_uid=NEW)
        info = await register(new.registration)
        assert Path(info.endpoint) != endpoints[0]
        endpoints.append(Path(info.endpoint))
        await asyncio.sleep(0.2)
        assert await asyncio.to_thread(old.stop, signal.SIGTERM) == 0
        assert await asking == []
        async with Kubelet(endpoints[-1]) as kubelet:
            assert (await kubelet.prepare(held))[held.uid] == first
            answer = await kubelet.unprepare(held, *wires)
            assert set(answer.values()) == {""}
        assert fresh.host.files() == before
    assert not old.registration.exists()
    assert new.registration.exists()


async def _ask_newest(endpoints: list[Path], wires: list[WireClaim]) -> list[str]:
    """Prepares one claim after the other with whoever has registered last; what went wrong."""
    wrong = []
    for wire in wires:
        async with Kubelet(endpoints[-1]) as kubelet:
            try:
                wrong.append((await kubelet.prepare(wire))[wire.uid].error)
            except grpc.aio.AioRpcError as error:
                wrong.append(f"{error.code()}: {error.details()}")
        await asyncio.sleep(0.05)
    return [error for error in wrong if error]
