"""What Prepare does while the ledger has an entry of another claim that can't be read."""

from __future__ import annotations

import asyncio
import errno
import json
from pathlib import Path

import pytest

from cdi.model import ContainerEdits, Device, DeviceNode, Spec
from dra_driver.claims import uncounted
from dra_driver.claims.ledger_file import State
from dra_driver.claims.steps import Step
from dra_driver.errors import RetryableError
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World

LOST, OTHER = claim_ref("lost"), claim_ref("other")


def document(*paths: tuple[str, ...]) -> bytes:
    devices = [
        {"name": "d", "containerEdits": {"deviceNodes": [{"path": p} for p in each]}} for each in paths
    ]
    return json.dumps({"cdiVersion": "0.5.0", "devices": devices}).encode()


def spec(*devices: tuple[str, ...]) -> Spec:
    def edits(paths: tuple[str, ...]) -> ContainerEdits:
        return ContainerEdits(device_nodes=tuple(DeviceNode(path=path) for path in paths), env=("A=b",))

    return Spec(
        kind="vendor/class",
        devices=tuple(Device(name=f"d{i}", container_edits=edits(paths)) for i, paths in enumerate(devices)),
    )


@pytest.mark.parametrize(
    ("theirs", "ours", "may"),
    [
        pytest.param(document(("/dev/nvidia0",)), spec(("/dev/nvidia0",)), True, id="same-card"),
        pytest.param(document(("/dev/nvidia1",)), spec(("/dev/nvidia0",)), False, id="other-card"),
        pytest.param(
            document(("/dev/nvidia1",), ("/dev/nvidia0",)),
            spec(("/dev/nvidia0",)),
            True,
            id="one-of-its-cards",
        ),
        pytest.param(None, spec(("/dev/nvidia0",)), True, id="no-document"),
        pytest.param(b"{", spec(("/dev/nvidia0",)), True, id="half-a-document"),
        pytest.param(b'{"devices": 1}', spec(("/dev/nvidia0",)), True, id="no-document-of-ours"),
        pytest.param(document(()), spec(("/dev/nvidia0",)), True, id="a-card-of-another-document"),
        pytest.param(
            document(("/dev/nvidia1",)), spec(("/dev/nvidia0",), ("/dev/nvidia1",)), True, id="one-of-ours"
        ),
        pytest.param(
            document(("/dev/nvidia2",)), spec(("/dev/nvidia0",), ("/dev/nvidia1",)), False, id="none-of-ours"
        ),
        pytest.param(document(("/dev/nvidia1",)), spec(()), True, id="ours-is-of-another-document"),
    ],
)
def test_may_hold(theirs: bytes | None, ours: Spec, may: bool) -> None:
    assert uncounted.may_hold(theirs, ours) is may


@pytest.fixture
async def world(tmp_path: Path) -> World:
    """With a claim whose entry has become unreadable while the agent was away."""
    made = World(tmp_path)
    made.put(claim(LOST, result(RTX_4090, "20Gi")))
    made.put(claim(OTHER, result(RTX_4090, "20Gi", share=2)))
    await made.preparer.prepare(LOST)
    path = made.root / "state/ledger" / f"{LOST.uid}.json"
    path.write_bytes(path.read_bytes()[:-9])
    made.restart()
    return made


async def test_a_claim_on_the_same_card_is_refused(world: World) -> None:
    with pytest.raises(RetryableError, match=rf"other:.*{LOST.uid}\.corrupt can't be read .*same devices"):
        await world.preparer.prepare(OTHER)
    assert set(world.ledger.entries) == set()


async def test_a_claim_on_another_card_is_prepared(world: World) -> None:
    world.put(claim(OTHER, result(A100, share=2)))
    await world.preparer.prepare(OTHER)


async def test_without_its_document_no_card_is_given(world: World) -> None:
    world.store.path(LOST.uid).unlink()
    world.put(claim(OTHER, result(A100, share=2)))
    with pytest.raises(RetryableError, match="can't be read"):
        await world.preparer.prepare(OTHER)


async def test_made_again_while_a_claim_waits_for_it(world: World) -> None:
    world.put(claim(OTHER, result(RTX_4090, "2Gi", share=2)))
    world.restore_limit = 60.0  # a slow machine is no failure
    world.restart()
    loop = Loop(world)
    running = asyncio.create_task(loop.reconciler.run())
    try:
        await world.preparer.prepare(OTHER)
    finally:
        running.cancel()
    assert loop.done == {"restore": 1}
    assert set(world.ledger.entries) == {LOST.uid, OTHER.uid}


async def test_what_it_holds_counts_when_it_is_made_again(world: World) -> None:
    await Loop(world).look()
    with pytest.raises(RetryableError, match="over-committed"):
        await world.preparer.prepare(OTHER)


async def test_its_own_prepare_makes_it_again(world: World) -> None:
    await world.preparer.prepare(LOST)
    assert world.ledger.entries[LOST.uid].state is State.PREPARED
    assert world.ledger.uncounted == {}


@pytest.mark.parametrize("step", [Step.LEDGER_PREPARING, Step.GRANTS, Step.CDI])
async def test_its_own_prepare_that_fails_takes_nothing_away(world: World, step: Step) -> None:
    """Its containers may run."""
    before = world.files()

    def reached(now: Step) -> None:
        if now is step:
            raise OSError(errno.ENOSPC, "No space left on device")

    world.reached = reached
    with pytest.raises(RetryableError, match="No space left"):
        await world.preparer.prepare(LOST)
    assert before <= world.files()
    assert (LOST.uid in world.ledger.uncounted) is (step is Step.LEDGER_PREPARING)
    world.reached = lambda _step: None
    await world.preparer.prepare(LOST)
    await world.preparer.unprepare(LOST)
    assert world.files() == set()


async def test_unprepare_cleans_and_others_go_on(world: World) -> None:
    await world.preparer.unprepare(LOST)
    assert world.files() == set()
    await world.preparer.prepare(OTHER)
