from __future__ import annotations

import asyncio
import errno
import json
import shutil
import time
from typing import Any

import pytest

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.handed import PreparedDevice
from dra_driver.claims.ledger_file import State
from dra_driver.claims.steps import Step
from dra_driver.errors import ClaimError, ConfigError, PermanentError, RetryableError
from dra_driver.names import ClaimUID
from interposer import abi
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, opaque, result, share_id
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards
from tests.unit.dra_driver.world import World

REF = claim_ref()
EFFECTS = [Step.LEDGER_PREPARING, Step.GRANTS, Step.CDI, Step.LEDGER_PREPARED]
REMOVALS = [Step.REMOVE_CDI, Step.REMOVE_GRANTS, Step.REMOVE_LEDGER]


def expected_files(uid: str = REF.uid, grant: str = f"{REF.uid}-g0-00000001") -> set[str]:
    return {
        f"state/ledger/{uid}.json",
        f"run/claims/{uid}",
        f"run/claims/{uid}/{grant}/limits",
        f"run/claims/{uid}/{grant}/usage",
        f"cdi/gpu.tessera.dev-grant_{uid}.json",
    }


def fail_at(world: World, step: Step, error: BaseException | None = None) -> None:
    problem = error or OSError(errno.ENOSPC, "No space left on device")

    def reached(now: Step) -> None:
        if now is step:
            raise problem

    world.reached = reached


def heal(world: World) -> None:
    world.reached = lambda _step: None


async def test_prepare(world: World) -> None:
    assert await world.preparer.prepare(REF) == (
        PreparedDevice(
            request="g0",
            pool=NODE,
            device=RTX_4090.name,
            cdi_ids=(
                f"gpu.tessera.dev/grant={REF.uid}-g0-00000001",
                "gpu.tessera.dev/driver=files",
                f"gpu.tessera.dev/grant={REF.uid}-g0-00000001-shim",
            ),
            share_id=share_id(1),
        ),
    )
    assert world.files() == expected_files()
    grant = world.directories.directory(REF.uid, f"{REF.uid}-g0-00000001")
    limits = abi.read_limits(grant / "limits")
    assert (limits.uuid, limits.memory_bytes, limits.guaranteed_cores) == (RTX_4090.uuid, 3000 << 20, 30)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (grant, grant / "limits", grant / "usage")}
    assert modes == {grant.name: 0o755, "limits": 0o444, "usage": 0o666}
    entry = world.ledger.entries[REF.uid]
    assert (entry.state, entry.library) == (State.PREPARED, world.node.library_version)


async def test_prepare_again_is_the_same_and_writes_what_is_lost(world: World) -> None:
    first = await world.preparer.prepare(REF)
    shutil.rmtree(world.root / "cdi")
    shutil.rmtree(world.root / "run")
    assert await world.preparer.prepare(REF) == first
    assert world.files() == expected_files()
    assert len(world.ledger.entries) == 1


async def test_unprepare_leaves_nothing(world: World) -> None:
    await world.preparer.prepare(REF)
    await world.preparer.unprepare(REF)
    await world.preparer.unprepare(REF)
    assert world.files() == set()
    assert dict(world.ledger.entries) == {}


async def test_unprepare_of_an_unknown_claim_removes_what_has_its_name(world: World) -> None:
    await world.preparer.prepare(REF)
    for path in (world.root / "state/ledger").iterdir():
        path.unlink()
    world.restart()
    await world.preparer.unprepare(REF)
    assert world.files() == set()


async def test_unprepare_needs_neither_claim_nor_driver(world: World) -> None:
    await world.preparer.prepare(REF)
    world.claims.clear()
    shutil.rmtree(world.root / "driver")
    await world.preparer.unprepare(REF)
    assert world.files() == set()


async def test_several_grants(world: World) -> None:
    world.put(
        claim(
            REF,
            result(RTX_4090, share=1),
            result(RTX_4090, share=2, request="g1"),
            result(A100, "80Gi", "100", "1k", share=3, request="g2/s80"),
        )
    )
    devices = await world.preparer.prepare(REF)
    assert [(device.request, device.device, device.share_id) for device in devices] == [
        ("g0", RTX_4090.name, share_id(1)),
        ("g1", RTX_4090.name, share_id(2)),
        ("g2", A100.name, share_id(3)),
    ]
    assert len({device.cdi_ids for device in devices}) == 3
    grants = {path.name for path in (world.root / "run/claims" / REF.uid).iterdir()}
    assert grants == {f"{REF.uid}-g0-00000001", f"{REF.uid}-g1-00000002"}  # the whole card has none


async def test_nothing_of_ours_is_nothing_to_do(world: World) -> None:
    world.put(claim(REF, result(RTX_4090) | {"driver": "nic.example"}))
    assert await world.preparer.prepare(REF) == ()
    assert world.files() == set()


@pytest.mark.parametrize(
    ("raw", "kind", "message"),
    [
        pytest.param(claim(claim_ref("other"), result(RTX_4090)), RetryableError, "was replaced", id="uid"),
        pytest.param(
            claim(REF, result(RTX_4090), config=[opaque(priority=0)]), ConfigError, r"\.priority", id="config"
        ),
        pytest.param(
            claim(REF, result(RTX_4090, "25Gi")), RetryableError, "over-committed", id="more-than-the-card"
        ),
    ],
)
async def test_refused_leaves_nothing(
    world: World, raw: dict[str, object], kind: type[ClaimError], message: str
) -> None:
    world.claims["claim"] = raw
    with pytest.raises(kind, match=message):
        await world.preparer.prepare(REF)
    assert world.files() == set()
    assert dict(world.ledger.entries) == {}


@pytest.mark.parametrize("uid", ["", "../../etc", "a/b", ".hidden"])
async def test_a_uid_that_is_a_path_is_refused(world: World, uid: str) -> None:
    ref = type(REF)("default", "claim", ClaimUID(uid))
    for work in (world.preparer.prepare, world.preparer.unprepare):
        with pytest.raises(PermanentError, match="can't be a UID"):
            await work(ref)


async def test_without_a_driver(world: World) -> None:
    (world.root / "driver/dev/nvidia-uvm").unlink()
    with pytest.raises(RetryableError, match="/dev/nvidia-uvm is missing"):
        await world.preparer.prepare(REF)
    assert world.files() == set()
    (world.root / "driver/dev/nvidia-uvm").touch()
    await world.preparer.prepare(REF)
    assert world.files() == expected_files()


async def test_without_a_library_only_whole_cards(world: World) -> None:
    world.restart(library_installed=False)
    with pytest.raises(RetryableError, match=r"can't limit shares: .*no space"):
        await world.preparer.prepare(REF)
    world.put(claim(REF, result(RTX_4090, "24Gi", "100", "1k")))
    assert len(await world.preparer.prepare(REF)) == 1


@pytest.mark.parametrize("step", [Step.CLAIM, Step.PLAN, *EFFECTS])
async def test_a_failure_leaves_nothing_and_the_retry_succeeds(world: World, step: Step) -> None:
    fail_at(world, step)
    with pytest.raises((RetryableError, OSError), match="No space left"):
        await world.preparer.prepare(REF)
    assert world.files() == set()
    assert dict(world.ledger.entries) == {}
    heal(world)
    await world.preparer.prepare(REF)
    assert world.files() == expected_files()


@pytest.mark.parametrize("step", [Step.PLAN, Step.GRANTS, Step.CDI])
async def test_a_failure_never_takes_away_what_runs(world: World, step: Step) -> None:
    first = await world.preparer.prepare(REF)
    world.store.path(REF.uid).chmod(0o600)  # somebody has been at it: so it is made again
    fail_at(world, step)
    with pytest.raises((RetryableError, OSError)):
        await world.preparer.prepare(REF)
    assert world.files() == expected_files()
    assert world.ledger.entries[REF.uid].state is State.PREPARED
    heal(world)
    assert await world.preparer.prepare(REF) == first


@pytest.mark.parametrize("step", REMOVALS)
async def test_an_unprepare_that_fails_is_finished_by_the_next(world: World, step: Step) -> None:
    await world.preparer.prepare(REF)
    fail_at(world, step)
    with pytest.raises(RetryableError, match=r"can't be unprepared: .*No space left"):
        await world.preparer.unprepare(REF)
    assert REF.uid in world.ledger.entries  # still counted
    heal(world)
    await world.preparer.unprepare(REF)
    assert world.files() == set()


class KilledError(BaseException):
    """Stands for SIGKILL: nothing after it is done."""


def kill_at(world: World, step: Step) -> None:
    def reached(now: Step) -> None:
        if now is step or now in REMOVALS:
            raise KilledError

    world.reached = reached


@pytest.mark.parametrize("then", ["prepare", "unprepare"])
@pytest.mark.parametrize("step", EFFECTS)
async def test_killed_while_preparing(world: World, step: Step, then: str) -> None:
    kill_at(world, step)
    with pytest.raises(KilledError):
        await world.preparer.prepare(REF)
    heal(world)
    world.restart()
    if then == "prepare":
        await world.preparer.prepare(REF)
        assert world.files() == expected_files()
        await world.preparer.unprepare(REF)
    else:
        await world.preparer.unprepare(REF)
    assert world.files() == set()
    assert dict(world.ledger.entries) == {}


@pytest.mark.parametrize("then", ["prepare", "unprepare"])
@pytest.mark.parametrize("step", REMOVALS)
async def test_killed_while_unpreparing(world: World, step: Step, then: str) -> None:
    await world.preparer.prepare(REF)

    def reached(now: Step) -> None:
        if now is step:
            raise KilledError

    world.reached = reached
    with pytest.raises(KilledError):
        await world.preparer.unprepare(REF)
    heal(world)
    world.restart()
    if then == "prepare":
        await world.preparer.prepare(REF)
        assert world.files() == expected_files()
    await world.preparer.unprepare(REF)
    assert world.files() == set()


async def test_after_a_reboot(world: World) -> None:
    await world.preparer.prepare(REF)
    shutil.rmtree(world.root / "run")
    shutil.rmtree(world.root / "cdi")
    world.boot_id = "boot-2"
    world.restart()
    assert world.loaded.earlier_boot == (REF.uid,)
    await world.preparer.prepare(REF)
    assert world.files() == expected_files()
    assert world.ledger.entries[REF.uid].boot_id == "boot-2"


@pytest.mark.parametrize("answer", ["cards", "silence"])
async def test_asked_before_the_driver_was(world: World, answer: str) -> None:
    """As after a boot: once refused, the kubelet would ask again much later."""
    world.restart(has_looked=False)
    asking = asyncio.create_task(world.preparer.prepare(REF))
    done, _ = await asyncio.wait({asking}, timeout=0.3)
    assert not done
    if answer == "cards":
        world.node.found(two_cards())
        assert len(await asking) == 1
    else:
        world.node.not_found("NVML has no words")
        with pytest.raises(RetryableError, match="no usable NVIDIA driver: NVML has no words"):
            await asking


async def test_a_new_allocation_of_a_claim_replaces_the_old_one(world: World) -> None:
    await world.preparer.prepare(REF)
    world.put(claim(REF, result(A100, share=7)))
    await world.preparer.prepare(REF)
    assert world.files() == expected_files(grant=f"{REF.uid}-g0-00000007")
    assert [grant.device for grant in world.ledger.entries[REF.uid].grants] == [A100.name]


async def test_only_one_of_many_gets_the_last_share(world: World) -> None:
    refs = [claim_ref(f"claim-{number}") for number in range(12)]
    for number, ref in enumerate(refs):
        world.put(claim(ref, result(RTX_4090, "2Gi", "5", "100", share=number)))
    answers = await asyncio.gather(*(world.preparer.prepare(ref) for ref in refs), return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert len(refused) == 2
    assert all("over-committed, shares 1100 of 1000" in str(answer) for answer in refused)
    await asyncio.gather(*(world.preparer.unprepare(ref) for ref in refs))
    assert world.files() == set()


async def test_files_are_made_for_one_claim_after_the_other(world: World) -> None:
    at_it: list[Step] = []

    def reached(step: Step) -> None:
        if step in (Step.LEDGER_PREPARING, Step.LEDGER_PREPARED):
            at_it.append(step)
            time.sleep(0.01)

    world.reached = reached
    refs = [claim_ref(f"claim-{number}") for number in range(6)]
    for number, ref in enumerate(refs):
        world.put(claim(ref, result(RTX_4090, "2Gi", "5", "100", share=number)))
    await asyncio.gather(*(world.preparer.prepare(ref) for ref in refs))
    assert at_it == [Step.LEDGER_PREPARING, Step.LEDGER_PREPARED] * len(refs)


async def test_the_share_of_a_refused_claim_is_free_again(world: World) -> None:
    world.put(claim(REF, result(RTX_4090, "24Gi", "100", "1k")))
    fail_at(world, Step.CDI)
    with pytest.raises(RetryableError):
        await world.preparer.prepare(REF)
    heal(world)
    other = claim_ref("other")
    world.put(claim(other, result(RTX_4090, "24Gi", "100", "1k")))
    await world.preparer.prepare(other)


async def test_a_caller_that_gives_up_does_not_stop_the_work(world: World) -> None:
    world.fetch_delay = 0.05
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await world.preparer.prepare(REF)
    await asyncio.wait_for(asyncio.gather(*world.preparer.tasks._running), 60)
    assert world.files() == expected_files()


async def test_prepare_and_unprepare_of_one_claim_do_not_mix(world: World) -> None:
    for _ in range(10):
        await asyncio.gather(world.preparer.prepare(REF), world.preparer.unprepare(REF))
        assert world.files() == set()
    assert world.preparer.tasks.is_idle


async def test_one_slow_claim_holds_up_no_other(world: World) -> None:
    slow, release = claim_ref("slow"), asyncio.Event()
    world.put(claim(slow, result(A100, share=2)))
    fetch = world.preparer._fetch

    async def wait(ref: ClaimRef, at_least: str | None = None, /) -> dict[str, Any]:
        if ref == slow:
            await release.wait()
        return await fetch(ref, at_least)

    world.preparer._fetch = wait
    waiting = asyncio.create_task(world.preparer.prepare(slow))
    await world.preparer.prepare(REF)
    assert not waiting.done()
    release.set()
    await waiting


async def test_an_undo_that_fails_is_counted_until_it_succeeds(world: World) -> None:
    def reached(now: Step) -> None:
        if now in (Step.CDI, Step.REMOVE_GRANTS):
            raise OSError(errno.EROFS, "Read-only file system")

    world.reached = reached
    with pytest.raises(RetryableError, match="Read-only"):
        await world.preparer.prepare(REF)
    assert world.ledger.entries[REF.uid].uid == REF.uid
    ledger_file = world.root / "state/ledger" / f"{REF.uid}.json"
    assert json.loads(ledger_file.read_bytes())["entry"]["state"] == "preparing"
    heal(world)
    await world.preparer.unprepare(REF)
    assert world.files() == set()


async def test_every_step_is_timed(world: World) -> None:
    await world.preparer.prepare(REF)
    await world.preparer.unprepare(REF)
    assert set(world.times) == set(Step)
