"""A driver that dies, is updated, or whose node boots: claims are prepared once or gone, and nothing is left.

Where exactly a driver dies can't be chosen from outside; these kill it at many moments of its work.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
from pathlib import Path

import pytest

from tests.conformance.node import Node, cdi_ids, until
from tests.integration.dra_driver.kubelet import Kubelet, register

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
        pods = _Pods(fresh, Path(fresh.info.endpoint))
        coming_and_going = asyncio.create_task(pods.come_and_go())
        await pods.more(coming_and_going)
        new = await fresh.start_beside(pod_uid=NEW)
        info = await register(new.registration)
        assert Path(info.endpoint) != pods.newest
        pods.newest = Path(info.endpoint)
        await pods.more(coming_and_going)
        assert await asyncio.to_thread(old.stop, signal.SIGTERM) == 0
        await pods.more(coming_and_going)
        pods.is_over = True
        await coming_and_going
        async with Kubelet(pods.newest) as kubelet:
            assert (await kubelet.prepare(held))[held.uid] == first
            assert await kubelet.unprepare(held) == {held.uid: ""}
        assert fresh.host.files() == before
    assert not old.registration.exists()
    assert new.registration.exists()


class _Pods:
    """One after the other comes and goes; `newest` is asked, the driver that has registered last."""

    def __init__(self, node: Node, newest: Path) -> None:
        self._node = node
        self.newest = newest
        self.gone = 0
        self.is_over = False

    async def come_and_go(self) -> None:
        """Raises AssertionError or AioRpcError where the kubelet has asked in vain."""
        while not self.is_over:
            wire = await self._node.claim()
            async with Kubelet(self.newest) as kubelet:
                assert (await kubelet.prepare(wire))[wire.uid].error == ""
                assert await kubelet.unprepare(wire) == {wire.uid: ""}
            self.gone += 1
            await asyncio.sleep(0.02)

    async def more(self, work: asyncio.Task[None]) -> None:
        """Waits for some who come from now on."""
        enough = self.gone + 5

        async def are_enough() -> bool:
            if work.done():
                await work
            return self.gone >= enough

        await until(are_enough, "Pods come and go")
