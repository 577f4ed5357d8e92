from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.ledger_file import State, encode
from dra_driver.claims.reconcile import FAILED
from dra_driver.claims.steps import Step
from dra_driver.conditions import Condition
from dra_driver.errors import RetryableError
from dra_driver.names import ClaimUID
from interposer import abi
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World

REF = claim_ref()


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.put(claim(REF, result(RTX_4090, "3000Mi")))
    return made


@pytest.fixture
def loop(world: World) -> Loop:
    return Loop(world)


def document(world: World) -> Path:
    return world.store.path(REF.uid)


def grant(world: World) -> Path:
    return world.directories.directory(REF.uid, f"{REF.uid}-g0-00000001")


def content(world: World) -> dict[str, Any]:
    """Of all files but the usage, which is the tenant's."""
    return {name: _content(world.root / name) for name in world.files()}


def _content(path: Path) -> Any:
    if path.is_dir() or path.name == "usage":
        return None
    return abi.read_limits(path) if path.name == "limits" else path.read_bytes()


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
    before = content(world)
    damage(world)
    assert await loop.look() == {"rewrite": 1}
    assert content(world) == before
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
    before = content(world)
    goes(world)
    assert await loop.look(3, seconds=5.0) == {}
    assert content(world) == before
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
    before = content(world)
    asked = 0

    async def fetch(ref: ClaimRef) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        raise RetryableError(f"ResourceClaim {ref} can't be read: connection refused")

    world.claims.clear()
    loop.reconciler._fetch = fetch
    assert await loop.look(4) == {FAILED: 4}
    assert asked <= 8
    assert content(world) == before


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
    before = content(world)
    answer.set()
    assert await looking == {}
    assert content(world) == before


async def test_orphans_go_after_a_while(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    for path in (world.root / "state/ledger").iterdir():
        path.unlink()
    world.restart()
    loop.restart()
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


BROKEN = [
    pytest.param(lambda whole: whole[:-9], id="cut"),
    pytest.param(lambda whole: whole.replace(b'"memory":3', b'"memory":4'), id="changed"),
    pytest.param(lambda whole: whole.replace(b'"name":"claim"', b'"name":"clain"'), id="other-name"),
    pytest.param(lambda whole: whole[:40], id="no-name"),
    pytest.param(lambda whole: b"\0" * len(whole), id="zeros"),
    pytest.param(lambda _whole: b'{"version":9,"sha256":"","entry":{}}', id="newer-and-not-understood"),
]


def _break_ledger(world: World, loop: Loop, broken: Any) -> None:
    path = world.root / "state/ledger" / f"{REF.uid}.json"
    path.write_bytes(broken(encode(world.ledger.entries[REF.uid])))
    world.restart()
    loop.restart()


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_entry_that_can_not_be_read_is_made_again(world: World, loop: Loop, broken: Any) -> None:
    """From the claim, which is looked for by its UID where the file does not say its name, or a wrong one."""
    await world.preparer.prepare(REF)
    before, entry = content(world), world.ledger.entries[REF.uid]
    for _ in range(2):
        _break_ledger(world, loop, broken)
        assert set(world.ledger.uncounted) == {REF.uid}
        assert await loop.look(3) == {"restore": 1}
        assert loop.conditions[Condition.LEDGER].holds
        assert world.ledger.entries.get(REF.uid) == entry
        assert before.items() <= content(world).items()
    await world.preparer.unprepare(REF)
    assert world.files() == set()


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_entry_that_can_not_be_read_and_whose_claim_is_gone(
    world: World, loop: Loop, broken: Any
) -> None:
    await world.preparer.prepare(REF)
    _break_ledger(world, loop, broken)
    world.claims.clear()
    assert await loop.look() == {}
    assert await loop.look() == {"unprepare": 1}
    assert world.files() == set()
    assert world.ledger.uncounted == {}


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_entry_that_can_not_be_read_stays_while_nobody_knows(
    world: World, loop: Loop, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No right to list all claims: those whose name is right are made again all the same."""
    await world.preparer.prepare(REF)
    _break_ledger(world, loop, broken)
    files = {name for name in content(world) if "ledger" not in name}

    async def refuse(_uids: Collection[ClaimUID]) -> dict[ClaimUID, dict[str, Any]]:
        raise RetryableError("ResourceClaims can't be listed: forbidden")

    monkeypatch.setattr(loop.reconciler, "_search", refuse)
    restored = await loop.look(3)
    assert restored in ({}, {"restore": 1})
    assert set(world.ledger.uncounted) == (set() if restored else {REF.uid})
    assert files <= world.files()


async def test_a_claim_of_a_newer_release_is_left_as_that_has_made_it(world: World, loop: Loop) -> None:
    """After going back to this release: counted, taken away when its claim goes, and else not touched."""
    await world.preparer.prepare(REF)
    as_newer = encode(world.ledger.entries[REF.uid]).replace(b'"version":1', b'"version":9')
    path = world.root / "state/ledger" / f"{REF.uid}.json"
    path.write_bytes(as_newer)
    document(world).write_bytes(b'{"made": "otherwise"}')
    world.restart()
    loop.restart()
    before = content(world)
    assert await loop.look(3) == {}
    assert content(world) == before
    document(world).unlink()
    assert await loop.look() == {"rewrite": 1}
    assert path.read_bytes() == as_newer
    world.claims.clear()
    assert await loop.look(2) == {"unprepare": 1}
    assert world.files() == set()


async def test_a_restored_claim_keeps_its_files_whatever_fails(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    before = content(world)
    _break_ledger(world, loop, lambda whole: whole[:-9])

    def reached(now: Step) -> None:
        if now is Step.GRANTS:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.reached = reached
    assert await loop.look() == {FAILED: 1}
    assert before.keys() <= world.files()
    assert world.ledger.entries[REF.uid].state is State.PREPARED


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
