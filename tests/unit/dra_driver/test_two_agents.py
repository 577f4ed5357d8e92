"""Two agents on one node, as while one replaces the other: one set of files, two memories."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.claims import library
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.ledger_file import State, encode
from dra_driver.claims.steps import Step
from dra_driver.errors import RetryableError
from dra_driver.names import ClaimUID
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World

REF = claim_ref()
OTHER = claim_ref("other")


@pytest.fixture
def old(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.put(claim(REF, result(RTX_4090, "20Gi")))
    made.put(claim(OTHER, result(RTX_4090, "20Gi", share=2)))
    return made


@pytest.fixture
def new(old: World) -> World:
    return old.other("dra-new.sock", library_content=b"the next release's library")


async def test_each_counts_what_the_other_has_handed_out(old: World, new: World) -> None:
    await old.preparer.prepare(REF)
    with pytest.raises(RetryableError, match="over-committed, memory 40Gi of 24Gi"):
        await new.preparer.prepare(OTHER)
    await new.preparer.unprepare(REF)
    await new.preparer.prepare(OTHER)
    with pytest.raises(RetryableError, match="over-committed"):
        await old.preparer.prepare(REF)
    await old.preparer.unprepare(OTHER)
    assert old.files() == set()
    await old.preparer.prepare(REF)


async def test_of_both_at_once_only_one_gets_the_last_share(old: World, new: World) -> None:
    for _ in range(10):
        answers = await asyncio.gather(
            old.preparer.prepare(REF), new.preparer.prepare(OTHER), return_exceptions=True
        )
        assert [isinstance(answer, RetryableError) for answer in answers].count(True) == 1
        await asyncio.gather(new.preparer.unprepare(REF), old.preparer.unprepare(OTHER))
        assert old.files() == set()


async def test_one_claim_at_both(old: World, new: World) -> None:
    """The kubelet has given up on the old one's call, and asks the new one."""
    for _ in range(10):
        first, second = await asyncio.gather(old.preparer.prepare(REF), new.preparer.prepare(REF))
        assert first == second
        await asyncio.gather(
            new.preparer.unprepare(REF), old.preparer.unprepare(REF), old.preparer.unprepare(REF)
        )
        assert old.files() == set()


async def test_forged_in_the_ledger(old: World) -> None:
    """Whoever writes an entry there is believed: what it says is held is not given away."""
    await old.preparer.prepare(OTHER)
    await old.preparer.unprepare(OTHER)
    await old.preparer.prepare(REF)
    forged = msgspec.structs.replace(old.ledger.entries[REF.uid], uid=ClaimUID("forged"), name="forged")
    await old.preparer.unprepare(REF)
    (old.root / "state/ledger/forged.json").write_bytes(encode(forged))
    with pytest.raises(RetryableError, match="over-committed, memory 40Gi of 24Gi"):
        await old.preparer.prepare(OTHER)
    (old.root / "state/ledger/forged.json").unlink()
    await old.preparer.prepare(OTHER)


async def test_only_the_leader_mends(old: World, new: World) -> None:
    """Each would have the documents name its own release's library; they must not take turns at it."""
    await old.preparer.prepare(REF)
    document = old.store.path(REF.uid)
    loops = {"old": Loop(old), "new": Loop(new)}
    old.lead.take()
    assert {name: await loop.look(3) for name, loop in loops.items()} == {"old": {}, "new": {}}
    new.lead.take()
    assert {name: await loop.look(3) for name, loop in loops.items()} == {"old": {}, "new": {"rewrite": 1}}
    assert str(new.node.library_version).encode() in document.read_bytes()
    assert {name: await loop.look(3) for name, loop in loops.items()} == {"old": {}, "new": {}}
    document.unlink()
    assert {name: await loop.look(3) for name, loop in loops.items()} == {"old": {}, "new": {"rewrite": 1}}
    new.alive.discard(new.root / new.name)  # the release is taken back
    assert await loops["old"].look(3) == {"rewrite": 1}
    assert str(old.node.library_version).encode() in document.read_bytes()


async def test_the_other_agents_library_stays(old: World, new: World) -> None:
    await old.preparer.prepare(REF)
    versions = {str(old.node.library_version), str(new.node.library_version)}
    assert len(versions) == 2

    def installed() -> set[str]:
        return {path.name for path in (old.root / "state/lib").iterdir()}

    new.lead.take()
    await Loop(new).look()  # from now on no claim uses the old one's library
    assert installed() == versions - {str(old.node.library_version)}
    kept = library.install(old.root / "source.so", {}, "0.0.9", old.root / "state")
    with library.occupy(kept):
        await Loop(new).look()
        assert kept.version in installed()
    await Loop(new).look()
    assert kept.version not in installed()


async def test_an_agent_that_dies_at_work_leaves_the_lock_and_an_entry(old: World, new: World) -> None:
    class KilledError(BaseException):
        pass

    def reached(step: Step) -> None:
        if step in (Step.CDI, Step.REMOVE_CDI):
            raise KilledError

    old.reached = reached
    with pytest.raises(KilledError):
        await old.preparer.prepare(REF)
    with pytest.raises(RetryableError, match="over-committed"):
        await new.preparer.prepare(OTHER)
    assert new.ledger.entries[REF.uid].state is State.PREPARING
    await new.preparer.unprepare(REF)
    await new.preparer.prepare(OTHER)


async def test_a_ledger_that_can_not_be_read_is_no_empty_one(
    old: World, new: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old.preparer.prepare(REF)

    def fail(*_args: Any) -> Any:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(new.ledger, "_look", fail)
        with pytest.raises(RetryableError, match="Input/output error"):
            await new.preparer.prepare(OTHER)
    with pytest.raises(RetryableError, match="over-committed"):
        await new.preparer.prepare(OTHER)


async def test_other_cards_are_not_held_up(old: World, new: World) -> None:
    old.put(claim(OTHER, result(A100, share=2)))
    await asyncio.gather(old.preparer.prepare(REF), new.preparer.prepare(OTHER))
    assert len(list((old.root / "state/ledger").iterdir())) == 2


def as_a_newer_release_writes(world: World, ref: ClaimRef) -> bytes:
    """Its entry in version 9, with a field that this release does not know."""
    inner = json.loads(encode(world.ledger.entries[ref.uid]))["entry"] | {"slices": [1, 2]}
    text = json.dumps(inner)
    checksum = hashlib.sha256(text.encode()).hexdigest()
    content = f'{{"version":9,"sha256":"{checksum}","entry":{text}}}'.encode()
    (world.root / "state/ledger" / f"{ref.uid}.json").write_bytes(content)
    return content


async def test_going_back_to_this_release(old: World) -> None:
    """What a newer one has handed out is counted, may be prepared again, and can be unprepared."""
    await old.preparer.prepare(REF)
    content = as_a_newer_release_writes(old, REF)
    old.restart()
    assert old.loaded.earlier_boot == ()
    with pytest.raises(RetryableError, match="over-committed, memory 40Gi of 24Gi"):
        await old.preparer.prepare(OTHER)
    old.store.path(REF.uid).unlink()
    assert len(await old.preparer.prepare(REF)) == 1
    assert old.store.path(REF.uid).exists()
    assert (old.root / "state/ledger" / f"{REF.uid}.json").read_bytes() == content
    await old.preparer.unprepare(REF)
    assert old.files() == set()
    await old.preparer.prepare(OTHER)


async def test_a_new_allocation_is_written_over_a_newer_releases_entry(old: World) -> None:
    """That is about what the claim had before: what the newer release knows of it is true no more."""
    await old.preparer.prepare(REF)
    as_a_newer_release_writes(old, REF)
    old.restart()
    old.put(claim(REF, result(A100, share=7)))
    await old.preparer.prepare(REF)
    await old.preparer.prepare(OTHER)  # what it had before is free
    old.restart()
    assert [grant.device for grant in old.ledger.entries[REF.uid].grants] == [A100.name]


async def test_an_older_agent_counts_what_the_newer_one_writes(old: World) -> None:
    """While both run."""
    await old.preparer.prepare(REF)
    content = as_a_newer_release_writes(old, REF)
    with pytest.raises(RetryableError, match="over-committed"):
        await old.preparer.prepare(OTHER)
    old.lead.take()
    await Loop(old).look(3)
    assert (old.root / "state/ledger" / f"{REF.uid}.json").read_bytes() == content
