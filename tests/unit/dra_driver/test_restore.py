"""The loop makes entries of the ledger again that can't be read, and leaves those of a newer release."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Collection
from typing import Any

import pytest

from dra_driver.claims.ledger_file import State, encode
from dra_driver.claims.reconcile import FAILED
from dra_driver.claims.steps import Step
from dra_driver.conditions import Condition
from dra_driver.errors import RetryableError
from dra_driver.names import ClaimUID
from tests.unit.dra_driver.allocations import claim_ref
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World

REF = claim_ref()
BROKEN = [
    pytest.param(lambda whole: whole[:-9], id="cut"),
    pytest.param(lambda whole: whole.replace(b'"memory":3', b'"memory":4'), id="changed"),
    pytest.param(lambda whole: whole.replace(b'"name":"claim"', b'"name":"clain"'), id="other-name"),
    pytest.param(lambda whole: whole[:40], id="no-name"),
    pytest.param(lambda whole: b"\0" * len(whole), id="zeros"),
    pytest.param(lambda _whole: b'{"version":9,"sha256":"","entry":{}}', id="newer-and-not-understood"),
]


def _lose_state(world: World, loop: Loop) -> None:
    """Somebody has emptied the state directory, and the agent has started anew."""
    shutil.rmtree(world.root / "state")
    world.restart()
    loop.restart()


@pytest.mark.parametrize(
    "loses",
    [
        pytest.param((), id="with-all-files"),
        pytest.param(("cdi",), id="without-its-document"),
        pytest.param(("run",), id="without-its-grants"),
    ],
)
async def test_a_claim_whose_entry_is_lost_is_looked_for(
    world: World, loop: Loop, loses: tuple[str, ...]
) -> None:
    """By its UID, which the files that are left are named by: its containers run."""
    await world.preparer.prepare(REF)
    before, entry = world.content(), world.ledger.entries[REF.uid]
    _lose_state(world, loop)
    for name in loses:
        shutil.rmtree(world.root / name)
    assert await loop.look(3) == {"restore": 1}
    assert before.keys() == world.files()
    assert world.ledger.entries[REF.uid].amounts == entry.amounts
    if loses == ("cdi",):  # by which ids its containers have the driver is not known any more: by any
        assert b"libcuda" in world.content()[f"cdi/gpu.tessera.dev-grant_{REF.uid}.json"]
    if not loses:
        assert world.content() == before
        assert world.ledger.entries[REF.uid] == entry


async def test_a_claim_whose_entry_is_lost_stays_while_nobody_knows(
    world: World, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.preparer.prepare(REF)
    _lose_state(world, loop)
    before = world.content()

    async def refuse(_uids: Collection[ClaimUID]) -> dict[ClaimUID, dict[str, Any]]:
        raise RetryableError("ResourceClaims can't be listed: connection refused")

    monkeypatch.setattr(loop.reconciler, "_search", refuse)
    assert await loop.look(3) == {}
    assert world.content() == before


async def test_a_lost_claim_keeps_its_files_whatever_fails(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    before = world.content()
    _lose_state(world, loop)

    def reached(now: Step) -> None:
        if now is Step.CDI:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.reached = reached
    assert await loop.look() == {FAILED: 1}
    assert before.keys() == world.files()
    world.reached = lambda _step: None
    await loop.look()
    assert world.content() == before


def _break_ledger(world: World, loop: Loop, broken: Any) -> None:
    path = world.root / "state/ledger" / f"{REF.uid}.json"
    path.write_bytes(broken(encode(world.ledger.entries[REF.uid])))
    world.restart()
    loop.restart()


@pytest.mark.parametrize("broken", BROKEN)
async def test_an_entry_that_can_not_be_read_is_made_again(world: World, loop: Loop, broken: Any) -> None:
    """From the claim, which is looked for by its UID where the file does not say its name, or a wrong one."""
    await world.preparer.prepare(REF)
    before, entry = world.content(), world.ledger.entries[REF.uid]
    for _ in range(2):
        _break_ledger(world, loop, broken)
        assert set(world.ledger.uncounted) == {REF.uid}
        assert await loop.look(3) == {"restore": 1}
        assert loop.conditions[Condition.LEDGER].holds
        assert world.ledger.entries.get(REF.uid) == entry
        assert before.items() <= world.content().items()
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
    files = {name for name in world.content() if "ledger" not in name}

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
    world.store.path(REF.uid).write_bytes(b'{"made": "otherwise"}')
    world.restart()
    loop.restart()
    before = world.content()
    assert await loop.look(3) == {}
    assert world.content() == before
    world.store.path(REF.uid).unlink()
    assert await loop.look() == {"rewrite": 1}
    assert path.read_bytes() == as_newer
    world.claims.clear()
    assert await loop.look(2) == {"unprepare": 1}
    assert world.files() == set()


async def test_a_restored_claim_keeps_its_files_whatever_fails(world: World, loop: Loop) -> None:
    await world.preparer.prepare(REF)
    before = world.content()
    _break_ledger(world, loop, lambda whole: whole[:-9])

    def reached(now: Step) -> None:
        if now is Step.GRANTS:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.reached = reached
    assert await loop.look() == {FAILED: 1}
    assert before.keys() <= world.files()
    assert world.ledger.entries[REF.uid].state is State.PREPARED
