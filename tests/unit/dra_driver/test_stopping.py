"""The agent is told to stop while claims are being worked on."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from dra_driver.claims.steps import Step
from dra_driver.errors import RetryableError
from tests.unit.dra_driver.allocations import claim_ref
from tests.unit.dra_driver.world import World

REF = claim_ref()


async def test_what_waits_for_the_api_server_is_answered(world: World) -> None:
    world.fetch_delay = 60
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    await asyncio.sleep(0.01)
    world.preparer.tasks.stop(0.05)
    with pytest.raises(RetryableError, match="is stopping and has not begun"):
        await asyncio.wait_for(preparing, 30)
    assert world.files() == set()


async def test_what_is_done_in_time_is_done(world: World) -> None:
    world.fetch_delay = 0.05
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    world.preparer.tasks.stop(60)
    assert len(await preparing) == 1


@pytest.mark.parametrize("step", [Step.LEDGER_PREPARING, Step.CDI])
async def test_what_has_begun_to_change_the_node_is_finished(world: World, step: Step) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait(now: Step) -> None:
        if now is step:
            reached.set()
            go_on.wait(60)

    world.reached = wait
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    await asyncio.to_thread(reached.wait)
    world.preparer.tasks.stop(0)
    await asyncio.sleep(0.05)
    assert not preparing.done()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    await world.preparer.tasks.finish(60)
    assert len(await preparing) == 1
    assert len(world.ledger.entries) == 1


async def test_a_disk_that_hangs_does_not_hold_up_the_end(world: World) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait(now: Step) -> None:
        if now is Step.CDI:
            reached.set()
            go_on.wait(60)

    world.reached = wait
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    await asyncio.to_thread(reached.wait)
    began = time.monotonic()
    await world.preparer.tasks.finish(0.1)
    assert time.monotonic() - began < 20
    go_on.set()
    await preparing


async def test_a_caller_that_is_cancelled_is_not_told_that_the_agent_stops(world: World) -> None:
    world.fetch_delay = 0.1
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    await asyncio.sleep(0.01)
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    await asyncio.gather(*world.preparer.tasks._running)
    assert len(world.ledger.entries) == 1
