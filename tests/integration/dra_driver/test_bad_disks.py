"""Real file systems that are full, or can't be written: a claim is refused in words, and nothing of it stays.

Pods can be torn down all the same, and when there is room again all goes on by itself.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, register
from tests.integration.dra_driver.world import World, two_cards

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a file system")


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True, capture_output=True, timeout=10)


@pytest.fixture
def disk(root: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small file system of its own at a directory of the node."""
    mounted: list[Path] = []

    def make(name: str) -> Path:
        path = root / name
        path.mkdir()
        mount("-t", "tmpfs", "-o", "size=4m", "tessera-test", str(path))
        mounted.append(path)
        return path

    yield make
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True, capture_output=True, timeout=10)


@pytest.fixture
async def agent(root: Path, api: ApiServer) -> AsyncIterator[Agent]:
    with Agent(root, api, TESSERA_RECONCILE_PERIOD="0.5", **two_cards(root)) as made:
        yield made


async def started(agent: Agent, api: ApiServer, kubelet: Kubelet) -> World:
    await agent.start()
    await register(agent.sockets.registration)
    await agent.until_ready()
    return World(agent, api, kubelet)


@contextmanager
def full(disk: Path) -> Iterator[Callable[[], None]]:
    """Not a byte fits any more, in no file. Calling what it gives fills what has become free since."""
    filler = disk / ".filler"

    def fill() -> None:
        with filler.open("ab", buffering=0) as file:
            for size in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    assert error.errno == errno.ENOSPC

    fill()
    try:
        yield fill
    finally:
        filler.unlink()


@pytest.mark.parametrize("name", ["state", "run", "cdi"])
async def test_a_full_disk(agent: Agent, api: ApiServer, disk: Callable[[str], Path], name: str) -> None:
    directory = disk(name)
    async with Kubelet(agent.sockets.dra) as kubelet:
        world = await started(agent, api, kubelet)
        held = world.allocate("held", world.share(0))
        wire = world.allocate("claim", world.share(0, share=2))
        await world.prepared(held)
        before = agent.files()
        with full(directory):
            answer = (await kubelet.prepare(wire))[wire.uid]
            assert "No space left on device" in answer.error
            assert str(directory) in answer.error
            assert {name for name in agent.files() if ".filler" not in name} == before
            # All of it is as it was left: nothing has to be written.
            assert (await kubelet.prepare(held))[held.uid].error == ""
            assert {file for file in agent.files() if ".filler" not in file} == before
            assert await kubelet.unprepare(held, wire) == {held.uid: "", wire.uid: ""}
        assert agent.files() == set()
        await world.prepared(wire)
        assert await kubelet.unprepare(wire) == {wire.uid: ""}
        assert agent.files() == set()


async def test_a_start_on_a_full_disk(agent: Agent, api: ApiServer, disk: Callable[[str], Path]) -> None:
    """After a reboot, with entries of the boot before: they go, and what is asked for is answered."""
    directory = disk("state")
    async with Kubelet(agent.sockets.dra) as kubelet:
        world = await started(agent, api, kubelet)
        held = world.allocate("held", world.share(0))
        await world.prepared(held)
    await agent.stop(signal.SIGKILL)
    agent.boot("boot-2")
    with full(directory) as fill:
        agent.sockets.registration.unlink()
        async with Kubelet(agent.sockets.dra) as kubelet:
            await started(agent, api, kubelet)
            assert {name for name in agent.files() if ".filler" not in name} == set()
            fill()  # what the old entries have left
            assert "No space left" in (await kubelet.prepare(held))[held.uid].error
            assert await kubelet.unprepare(held) == {held.uid: ""}
    async with Kubelet(agent.sockets.dra) as kubelet:
        assert (await kubelet.prepare(held))[held.uid].error == ""
    await agent.stop(signal.SIGKILL)
    agent.sockets.registration.unlink()
    async with Kubelet(agent.sockets.dra) as kubelet:
        world = await started(agent, api, kubelet)
        assert await world.metric("tessera_claims_prepared") == 1


@pytest.mark.parametrize("name", ["state", "cdi"])
async def test_a_read_only_disk(agent: Agent, api: ApiServer, disk: Callable[[str], Path], name: str) -> None:
    directory = disk(name)
    async with Kubelet(agent.sockets.dra) as kubelet:
        world = await started(agent, api, kubelet)
        held = world.allocate("held", world.share(0))
        wire = world.allocate("claim", world.share(0, share=2))
        never = world.allocate("never", world.share(0, share=3))
        await world.prepared(held)
        before = agent.files()
        mount("-o", "remount,ro", str(directory))
        answer = (await kubelet.prepare(wire))[wire.uid]
        assert "Read-only file system" in answer.error
        assert str(directory) in answer.error
        assert agent.files() == before
        # Nothing of it is there, so nothing needs writing.
        assert await kubelet.unprepare(wire, never) == {wire.uid: "", never.uid: ""}
        # Said, not hidden: its share is counted until it can be taken back.
        assert "Read-only file system" in (await kubelet.unprepare(held))[held.uid]
        assert await world.metric("tessera_claims_prepared") == 1
        mount("-o", "remount,rw", str(directory))
        assert await kubelet.unprepare(held) == {held.uid: ""}
        await asyncio.sleep(0)
        assert agent.files() == set()
