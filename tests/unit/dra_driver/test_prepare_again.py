"""A Prepare of a claim that is prepared: looked at while all is as it was left, made again where it isn't."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Rules
from dra_driver.claims.handed import Left
from dra_driver.claims.metadata import MetadataFiles
from dra_driver.claims.steps import Step
from dra_driver.errors import RetryableError
from interposer import abi
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090
from tests.unit.dra_driver.world import DRIVER_DOCUMENT, World

REF = claim_ref()
GRANT = f"{REF.uid}-g0-00000001"


@pytest.fixture
async def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    files = made.preparer._files
    files._metadata = MetadataFiles(made.directories, dict)
    made.put(claim(REF, result(RTX_4090, "3000Mi", "30"), result(A100, "2Gi", share=2, request="g1")))
    await made.preparer.prepare(REF)
    made.times.clear()
    return made


def limits(world: World) -> Path:
    return world.directories.directory(REF.uid, GRANT) / "limits"


def usage(world: World) -> Path:
    return world.directories.directory(REF.uid, GRANT) / "usage"


async def test_nothing_is_made_again(world: World) -> None:
    entry = world.ledger.entries[REF.uid]
    inodes = {name: (world.root / name).stat().st_ino for name in world.files()}
    first = await world.preparer.prepare(REF)
    assert await world.preparer.prepare(REF) == first
    assert world.times == []
    assert {name: (world.root / name).stat().st_ino for name in world.files()} == inodes
    # Whoever saw the claim before these Prepares must not take it for the same (reconcile.py).
    assert world.ledger.entries[REF.uid] == entry
    assert world.ledger.entries[REF.uid] is not entry
    assert world.ledger.held_by_others(claim_ref("other").uid)[RTX_4090.name].memory == 3000 << 20


async def test_the_api_server_is_asked_all_the_same(world: World) -> None:
    world.claims.clear()
    with pytest.raises(Exception, match="does not exist any more"):
        await world.preparer.prepare(REF)
    world.put(claim(REF, result(RTX_4090, "2000Mi", "30")))
    await world.preparer.prepare(REF)
    assert abi.read_limits(limits(world)).memory_bytes == 2000 << 20


async def test_nobody_else_works_on_the_claim_while_its_files_are_looked_at(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look mends what a tenant has damaged, which must not come between the steps of an Unprepare."""
    is_looking, may_go_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    look = world.preparer._files.are_as_left

    def slow(left: Left) -> bool:
        loop.call_soon_threadsafe(is_looking.set)
        may_go_on.wait(20)
        return look(left)

    async def refused(*_args: object) -> dict[str, Any]:
        await is_looking.wait()
        raise RetryableError("no answer")

    monkeypatch.setattr(world.preparer._files, "are_as_left", slow)
    monkeypatch.setattr(world.preparer, "_fetch", refused)
    preparing = asyncio.create_task(world.preparer.prepare(REF))
    await is_looking.wait()
    unpreparing = asyncio.create_task(world.preparer.unprepare(REF))
    await asyncio.sleep(0.1)
    assert limits(world).exists()
    may_go_on.set()
    with pytest.raises(RetryableError, match="no answer"):
        await preparing
    await unpreparing
    assert world.files() == set()


def _overwrite(path: Path) -> None:
    content = path.read_bytes()
    path.chmod(0o600)
    path.write_bytes(content[:-1] + b"?")


CHANGES: dict[str, Callable[[World], object]] = {
    "document gone": lambda world: world.store.path(REF.uid).unlink(),
    "document changed": lambda world: _overwrite(world.store.path(REF.uid)),
    "driver's document gone": lambda world: (world.store.directory / DRIVER_DOCUMENT).unlink(),
    "ledger entry gone": lambda world: world.ledger.path(REF.uid).unlink(),
    "limits gone": lambda world: limits(world).unlink(),
    "limits changed": lambda world: _overwrite(limits(world)),
    "usage gone": lambda world: usage(world).unlink(),
    "usage cut short": lambda world: os.truncate(usage(world), 100),
    "rights of a directory": lambda world: limits(world).parent.chmod(0o700),
    "another grant": lambda world: (limits(world).parent.parent / "other").mkdir(),
    "metadata gone": lambda world: world.directories.metadata(REF.uid).joinpath("g0.json").unlink(),
    "run directory gone": lambda world: shutil.rmtree(world.root / "run"),
    "rules": lambda world: world.node.configure(Rules(scales=Scales(split_count=7))),
    "cards": lambda world: world.node.not_found("silent"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_whatever_is_another_is_made_again(world: World, change: Callable[[World], object]) -> None:
    before = world.content()
    change(world)
    await world.preparer.prepare(REF)
    assert Step.CDI in world.times
    assert world.content() == before
    world.times.clear()
    await world.preparer.prepare(REF)
    assert world.times == []


async def test_a_usage_file_that_its_tenant_has_damaged_is_mended(world: World) -> None:
    with usage(world).open("r+b") as file:
        file.write(bytes(16))
    with pytest.raises(abi.AbiError):
        abi.read_usage(usage(world))
    await world.preparer.prepare(REF)
    assert abi.read_usage(usage(world)).processes == ()


async def test_what_is_wrong_is_said(world: World) -> None:
    shutil.rmtree(world.root / "driver")
    with pytest.raises(RetryableError, match="libcuda"):
        await world.preparer.prepare(REF)


async def test_a_driver_that_has_more(world: World) -> None:
    name = "libnvidia-ptxjitcompiler.so"
    write(world.root / f"driver/usr/lib/x86_64-linux-gnu/{name}.570.124.06", f"{name}.1")
    await world.preparer.prepare(REF)
    assert name.encode() in (world.store.directory / DRIVER_DOCUMENT).read_bytes()


async def test_a_library_that_is_another(world: World) -> None:
    before = world.ledger.entries[REF.uid].library
    installed = world.node.library()
    world.node.installed(type(installed)("other", installed.library, installed.preload, installed.shims))
    await world.preparer.prepare(REF)
    assert world.ledger.entries[REF.uid].library == "other" != before
