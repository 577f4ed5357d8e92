"""The agent's process, with a short period: what is lost comes back, what is left over goes, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from dra_driver.claims.ledger_file import State, decode, encode
from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.integration.dra_driver.world import World, serving, two_cards

PERIOD = 0.5
ROUNDS = 4 * PERIOD  # long enough for anything to happen that would


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    async with serving(
        Agent(root, api, TESSERA_RECONCILE_PERIOD=str(PERIOD), **two_cards(root)), api
    ) as made:
        yield made


def times_done(action: str) -> str:
    return f'tessera_reconcile_total{{action="{action}"}}'


async def until_done(world: World, action: str, times: int) -> None:
    await world.until_metric(times_done(action), times)


async def more_than(world: World, action: str, before: float) -> None:
    """Waits for it, and for another round."""

    async def look() -> bool:
        return await world.metric(times_done(action)) > before + 1

    await world.agent.until(look)


async def restart(world: World) -> None:
    world.agent.sockets.registration.unlink(missing_ok=True)
    await world.agent.start()
    await register(world.agent.sockets.registration)
    await world.agent.until_ready()


def times(world: World) -> dict[Path, int]:
    """When each file of the node was changed last."""
    found = {}
    for path in world.agent.below("state", "run", "cdi"):
        with contextlib.suppress(FileNotFoundError):  # another one's, just removed
            found[path] = path.stat().st_mtime_ns
    return found


async def test_a_lost_cdi_directory_comes_back(world: World) -> None:
    wires = [world.allocate(f"claim-{number}", world.share(number, share=number)) for number in range(2)]
    for wire in wires:
        await world.prepared(wire)
    before = world.agent.files()
    specs = [world.spec(wire) for wire in wires]
    (world.agent.root / "cdi").rename(world.agent.root / "lost")  # at once, not while it is written again
    await world.agent.until(lambda: world.agent.files() == before)
    assert [world.spec(wire) for wire in wires] == specs
    await until_done(world, "rewrite", 2)


async def test_lost_grants_come_back(world: World) -> None:
    await world.prepared(world.allocate("claim", world.share(0)))
    before = world.agent.files()
    (world.agent.root / "run/claims").rename(world.agent.root / "lost")
    await world.agent.until(lambda: world.agent.files() == before)


async def test_leftovers_go_and_what_is_not_ours_stays(world: World) -> None:
    await world.prepared(world.allocate("claim", world.share(0)))
    foreign = world.agent.root / "cdi/nvidia.com-gpu.json"
    foreign.write_text("{}")
    before = world.agent.files()
    (world.agent.root / "cdi/gpu.tessera.dev-grant_0c8f1f2e-dead.json").write_text("{}")
    (world.agent.root / "left/grant").mkdir(parents=True)
    (world.agent.root / "left").rename(world.agent.root / "run/claims/0c8f1f2e-beef")  # at once
    await world.agent.until(lambda: world.agent.files() == before)
    await until_done(world, "remove", 2)


async def test_a_claim_deleted_while_the_agent_was_away(world: World) -> None:
    gone = world.allocate("gone", world.share(0, share=1))
    stays = world.allocate("stays", world.share(0, share=2))
    await world.prepared(stays)
    before = world.agent.files()
    await world.prepared(gone)
    await world.agent.stop(signal.SIGKILL)
    world.api.drop(paths.resource_claims(), "gone", "default")
    await restart(world)
    await world.agent.until(lambda: world.agent.files() == before)
    await until_done(world, "unprepare", 1)
    assert await world.metric("tessera_claims_prepared") == 1
    assert f"default/gone:{gone.uid}: is gone" in world.agent.log.read_text()


async def test_without_an_api_server_nothing_goes_and_unprepare_works(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    other = world.allocate("other", world.share(1, share=2))
    await world.prepared(wire)
    before = world.agent.files()
    await world.prepared(other)
    await world.api.stop()
    world.api.drop(paths.resource_claims(), "claim", "default")
    failures = await world.metric(times_done("failed"))
    await more_than(world, "failed", failures)
    assert await world.kubelet.unprepare(other, timeout=20.0) == {other.uid: ""}
    assert world.agent.files() == before
    await world.api.start()
    await world.agent.until(lambda: world.agent.files() == set())


@pytest.mark.parametrize(("status", "reason"), [(500, "InternalError"), (403, "Forbidden"), (404, "Unknown")])
async def test_an_api_server_that_refuses_has_said_nothing(world: World, status: int, reason: str) -> None:
    """404 without the reason NotFound: a server that does not serve the group at the moment, or a proxy."""
    await world.prepared(world.allocate("claim", world.share(0)))
    before = world.agent.files()
    failures = await world.metric(times_done("failed"))
    world.api.refuse(status, reason=reason, times=10_000, when=lambda seen: "/resourceclaims/" in seen.path)
    await more_than(world, "failed", failures)
    assert world.agent.files() == before


async def test_a_claim_left_half_prepared_is_finished(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    before = world.agent.files()
    await world.agent.stop(signal.SIGKILL)
    ledger = world.agent.root / "state/ledger" / f"{wire.uid}.json"
    (world.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json").unlink()
    entry = decode(ledger.read_bytes(), wire.uid)
    ledger.write_bytes(encode(msgspec.structs.replace(entry, state=State.PREPARING)))
    await restart(world)
    await world.agent.until(lambda: world.agent.files() == before)
    await until_done(world, "finish", 1)
    assert await world.metric("tessera_claims_prepared") == 1


@pytest.mark.parametrize("length", [-9, 40], ids=["name-is-there", "name-is-lost"])
async def test_a_corrupt_ledger_is_made_again_before_anything_is_given_away(
    world: World, length: int
) -> None:
    """Asked while it is not known yet what is held: the answer waits for it."""
    held = world.allocate("held", world.share(0, "20Gi"))
    new = world.allocate("new", world.share(0, "20Gi", share=2))
    small = world.allocate("small", world.share(0, "2Gi", share=3))
    await world.prepared(held)
    await world.agent.stop(signal.SIGKILL)
    ledger = world.agent.root / "state/ledger" / f"{held.uid}.json"
    ledger.write_bytes(ledger.read_bytes()[:length])
    world.agent.sockets.registration.unlink(missing_ok=True)
    await world.agent.start()
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        # Until there are cards it is refused for another reason; the kubelet asks again.
        await world.agent.until(lambda: is_prepared(kubelet, small))
        await until_done(world, "restore", 1)
        assert "over-committed" in (await kubelet.prepare(new))[new.uid].error
        assert set((await kubelet.unprepare(held, small)).values()) == {""}
    assert world.agent.files() == set()


async def is_prepared(kubelet: Kubelet, wire: WireClaim) -> bool:
    error = (await kubelet.prepare(wire))[wire.uid].error
    assert "can't be read" not in error
    return not error


async def test_a_corrupt_ledger_of_a_claim_that_is_gone(world: World) -> None:
    held = world.allocate("held", world.share(0, "20Gi"))
    await world.prepared(held)
    await world.agent.stop(signal.SIGKILL)
    (world.agent.root / "state/ledger" / f"{held.uid}.json").write_bytes(b"")
    world.api.drop(paths.resource_claims(), "held", "default")
    await restart(world)
    await world.agent.until(lambda: world.agent.files() == set())


async def test_idle_writes_nothing(world: World) -> None:
    await world.prepared(world.allocate("claim", world.share(0)))
    await world.agent.until(lambda: any(seen.method == "PATCH" for seen in world.api.requests))  # its status
    before = times(world)
    requests = len([seen for seen in world.api.requests if seen.method != "GET"])
    await asyncio.sleep(ROUNDS)
    after = times(world)
    assert after == before
    assert len([seen for seen in world.api.requests if seen.method != "GET"]) == requests
