"""The loop that compares ledger, grants, CDI documents and API, and mends."""

from __future__ import annotations

import asyncio
import errno
import shutil
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.ledger_file import State
from dra_driver.claims.reconcile import FAILED
from dra_driver.claims.steps import Step
from dra_driver.errors import RetryableError
from interposer import abi
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World

REF = claim_ref()


def document(world: World) -> Path:
    return world.store.path(REF.uid)


def grant(world: World) -> Path:
    return world.directories.directory(REF.uid, f"{REF.uid}-g0-00000001")


async def test_nothing_to_do_does_nothing(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    assert world.lead.holds()
    before = {path: path.stat().st_mtime_ns for path in world.root.rglob("*")}
    assert await loop.look(3) == {}
    assert {path: path.stat().st_mtime_ns for path in world.root.rglob("*")} == before


def _lose_grant(world: World) -> None:
    shutil.rmtree(grant(world))


def _lose_cdi(world: World) -> None:
    shutil.rmtree(world.root / "cdi")


def _lose_run(world: World) -> None:
    shutil.rmtree(world.root / "run")


def _lose_limits(world: World) -> None:
    (grant(world) / "limits").unlink()


def _break_limits(world: World) -> None:
    (grant(world) / "limits").chmod(0o644)
    (grant(world) / "limits").write_bytes(b"no limits at all")


def _change_document(world: World) -> None:
    document(world).write_bytes(document(world).read_bytes().replace(b"nvidia0", b"nvidia1"))


def _stray_grant(world: World) -> None:
    (grant(world).parent / "stray").mkdir()


def _lose_ledger(world: World) -> None:
    (world.root / "state/ledger" / f"{REF.uid}.json").unlink()


@pytest.mark.parametrize(
    "damage",
    [
        _lose_cdi,
        _lose_grant,
        _lose_run,
        _lose_limits,
        _break_limits,
        _change_document,
        _stray_grant,
        _lose_ledger,
    ],
)
async def test_what_is_lost_comes_back(world: World, loop: Loop, damage: Any) -> None:
    await world.preparer.prepare(REF)
    before = world.content()
    damage(world)
    assert await loop.look() == {"rewrite": 1}
    assert world.content() == before
    assert abi.read_usage(grant(world) / "usage").memory_bytes == 0
    assert await loop.look() == {}


async def test_without_a_driver_nothing_is_compared(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    document(world).unlink()
    (world.root / "driver/dev/nvidiactl").unlink()
    assert await loop.look(3) == {}
    assert world.ledger.entries[REF.uid].state is State.PREPARED


async def test_a_disk_that_is_full_is_tried_again(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    document(world).unlink()

    def reached(now: Step) -> None:
        if now is Step.CDI:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.reached = reached
    assert await loop.look() == {FAILED: 1}
    assert world.ledger.entries[REF.uid].state is State.PREPARED
    world.reached = lambda _step: None
    assert await loop.look() == {"rewrite": 1}


def _deleted(world: World) -> None:
    world.claims.clear()


def _another(world: World) -> None:
    raw = claim(REF, result(RTX_4090))
    raw["metadata"]["uid"] = "another"
    world.put(raw)


def _deallocated(world: World) -> None:
    raw = claim(REF)
    del raw["status"]
    world.put(raw)


def _elsewhere(world: World) -> None:
    world.put(claim(REF, result(RTX_4090) | {"pool": "node-b"}))


def _other_driver(world: World) -> None:
    world.put(claim(REF, result(RTX_4090) | {"driver": "nic.example"}))


GOING = [_deleted, _another, _deallocated, _elsewhere, _other_driver]


@pytest.mark.parametrize("goes", GOING)
async def test_a_claim_that_is_gone_is_unprepared_after_a_while(world: World, loop: Loop, goes: Any) -> None:
    await world.preparer.prepare(REF)
    before = world.content()
    goes(world)
    assert await loop.look(3, seconds=5.0) == {}
    assert world.content() == before
    loop.now += 30
    assert await loop.look() == {"unprepare": 1}
    assert world.files() == set()
    assert dict(world.ledger.entries) == {}
    assert await loop.look() == {}


@pytest.mark.parametrize("goes", GOING)
async def test_a_claim_that_comes_back_stays(world: World, loop: Loop, goes: Any) -> None:
    await world.preparer.prepare(REF)
    for _ in range(3):
        goes(world)
        assert await loop.look() == {}
        world.put(claim(REF, result(RTX_4090, "3000Mi")))
        assert await loop.look() == {}
    assert REF.uid in world.ledger.entries


async def test_an_api_server_that_is_away_has_said_nothing(world: World, loop: Loop) -> None:
    other = claim_ref("other")
    world.put(claim(other, result(A100, share=2)))
    for ref in (REF, other):
        await world.preparer.prepare(ref)
    before = world.content()
    asked = 0

    async def fetch(ref: ClaimRef) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        raise RetryableError(f"ResourceClaim {ref} can't be read: connection refused")

    world.claims.clear()
    loop.reconciler._fetch = fetch
    assert await loop.look(4) == {FAILED: 4}
    assert asked <= 8
    assert world.content() == before


async def test_a_silent_api_server_holds_up_nobody(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    asked, answer = asyncio.Event(), asyncio.Event()

    async def fetch(ref: ClaimRef) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return world.claims[ref.name]

    loop.reconciler._fetch = fetch
    document(world).unlink()
    looking = asyncio.create_task(loop.look())
    await asked.wait()
    await world.preparer.unprepare(REF)
    answer.set()
    assert await looking == {}
    assert world.files() == set()  # what it wanted to mend is not there any more, and stays so


async def test_a_claim_prepared_meanwhile_is_not_taken_away(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    world.put(claim(REF))
    await loop.look()
    asked, answer = asyncio.Event(), asyncio.Event()
    unallocated = world.claims[REF.name]

    async def fetch(_ref: ClaimRef) -> dict[str, Any]:
        asked.set()
        await answer.wait()
        return unallocated

    loop.reconciler._fetch = fetch
    looking = asyncio.create_task(loop.look())
    await asked.wait()
    world.put(claim(REF, result(RTX_4090, "3000Mi")))
    await world.preparer.prepare(REF)
    before = world.content()
    answer.set()
    assert await looking == {}
    assert world.content() == before


async def test_orphans_go_after_a_while(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    for path in (world.root / "state/ledger").iterdir():
        path.unlink()
    world.restart()
    loop.restart()
    world.claims.clear()
    foreign = world.root / "cdi/nvidia.com-gpu.json"
    foreign.write_text("{}")
    assert await loop.look() == {}
    assert await loop.look() == {"remove": 1}
    assert world.files() == {"cdi/nvidia.com-gpu.json"}


@pytest.mark.parametrize("step", [Step.GRANTS, Step.CDI, Step.LEDGER_PREPARED])
async def test_a_claim_that_was_left_half_prepared(world: World, loop: Loop, step: Step) -> None:
    class KilledError(BaseException):
        pass

    def reached(now: Step) -> None:
        if now in (step, Step.REMOVE_CDI):
            raise KilledError

    world.reached = reached
    with pytest.raises(KilledError):
        await world.preparer.prepare(REF)
    world.reached = lambda _step: None
    world.restart()
    loop.restart()
    assert await loop.look() == {"finish": 1}
    assert world.ledger.entries[REF.uid].state is State.PREPARED
    assert document(world).exists()
    assert (grant(world) / "limits").exists()
    assert await loop.look() == {}


async def test_a_directory_that_can_not_be_read_ends_nothing(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    reconciler = loop.reconciler

    def fail() -> Any:
        raise OSError(errno.EIO, "Input/output error")

    reconciler._files = fail  # type: ignore[method-assign]
    running = asyncio.create_task(reconciler.run())
    await loop.has_done()
    assert not running.done()
    running.cancel()
    assert loop.done == {FAILED: 1}


async def test_new_cards_are_looked_at_at_once(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    running = asyncio.create_task(loop.reconciler.run())
    await asyncio.sleep(0.05)
    document(world).unlink()
    loop.reconciler.found(world.node.cards)
    await loop.has_done()
    running.cancel()
    assert loop.done == {"rewrite": 1}
