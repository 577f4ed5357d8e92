# SPDX-License-Identifier: Apache-2.0
"""Many processes of one grant: killed, stopped, forked, a thousand at once, and without room for their files.

`storms.c` is judge and victims; it ends badly where a call answers anything but 'done' or 'out of memory', or
where memory of the dead isn't there at the first call after their end.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interposer.abi_files import ffi
from tests.integration.interposer.bench import MI, Bench, answer_of
from tests.integration.interposer.conftest import compiled

LIMIT = 300 * MI
CONTEXT = 1 * MI
BLOCK = 64 << 10
"""What one of a crowd allocates."""
CALMLY = ("nice", "-n", "10")  # a storm is not what other tests should wait for


@pytest.fixture(scope="session")
def storms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("storms.c"), tmp_path_factory.mktemp("programs"))


@pytest.fixture(params=["preload", "shim"])
def storm_bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench(shim=request.param == "shim", driver={"context": f"{CONTEXT >> 10}Ki"})
    bench.grant(memory=LIMIT)
    return bench


def abi_offset(field: str) -> int:
    return int(ffi.offsetof("struct tessera_usage", field))


def weathered(bench: Bench, storms: Path, *words: str, limit: int = LIMIT) -> Any:
    """What the judge says; afterwards nothing is held and nobody has passed the limit."""
    found = answer_of(bench.run(*CALMLY, storms, *words, timeout=500))
    assert bench.held() == 0
    assert bench.high_water() <= limit
    assert (bench.usage().memory_bytes, bench.usage().processes) == (0, ())
    return found


def test_a_thousand_kills(storm_bench: Bench, storms: Path) -> None:
    """Anywhere: while they start, allocate, make contexts, load modules, launch, free."""
    kills = "1000" if not storm_bench.shim else "100"
    found = weathered(storm_bench, storms, "kill", kills)
    assert found["all"] == LIMIT - CONTEXT
    assert found["whole"] > 1
    assert found["slowest_ms"] < 30000  # nobody hangs


def test_who_is_stopped(storm_bench: Bench, storms: Path) -> None:
    """The others go on at the latest when he does, or is killed while he stands still.

    He may have stopped with the fake driver's lock; that ours hold nobody up is test_steps' part.
    """
    assert weathered(storm_bench, storms, "stop", "100") == {"stops": 100, "all": LIMIT - CONTEXT}


def test_forks(storm_bench: Bench, storms: Path) -> None:
    """Children leave, run programs, fork again, close all files: the parent keeps its memory and its slot."""
    assert weathered(storm_bench, storms, "fork", "200") == {"forks": 200, "all": LIMIT - CONTEXT}


def test_a_thousand_processes(make_bench: Callable[..., Bench], storms: Path) -> None:
    """Each holds a block; then half of them are killed at once, and what they held is another's."""
    bench = make_bench(driver={"context": "100Ki"})
    bench.grant(memory=LIMIT)
    found = weathered(bench, storms, "crowd", "1000")
    assert found["granted"] == 1000
    assert found["held"] == 1000 * ((100 << 10) + BLOCK)


def test_more_processes_than_fit(make_bench: Callable[..., Bench], storms: Path) -> None:
    """Contexts are counted too: who comes when all is taken is refused, and nobody else notices."""
    bench = make_bench(driver={"context": "64Ki"})
    bench.grant(memory=21 * 2 * BLOCK)  # the judge's context, and twenty processes
    found = weathered(bench, storms, "crowd", "40", limit=21 * 2 * BLOCK)
    assert 10 <= found["granted"] <= 20  # of the refused, some hold a context for a moment
    assert found["held"] <= 41 * BLOCK


# --- full file systems ------------------------------------------------------------------------------------


def filled(directory: str) -> str:
    """What mounts a small memory file system there and leaves no room in it."""
    return (
        f"mount -t tmpfs -o size=64k none {directory} && ! cat /dev/zero > {directory}/all 2> /dev/null && "
    )


@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_full_shared_memory(make_bench: Callable[..., Bench], roads: Path, shim: bool) -> None:
    """A container's /dev/shm is small, full, or read-only: nothing of ours is in it."""
    bench = make_bench(shim=shim)
    bench.grant(memory=LIMIT)
    script = f"{filled('/dev/shm')}mount -o remount,ro /dev/shm && exec {roads} link edge plain"
    assert bench.answer("sh", "-c", script)["held"] == LIMIT


def small_grants(bench: Bench, *, room_kib: int) -> str:
    """What puts the grants into a memory file system with so much room left."""
    return (
        "mkdir -p /run/small && mount -t tmpfs -o size=1m none /run/small && "
        f"cp --sparse=always -r {bench.grants}/. /run/small/ && "
        "! cat /dev/zero > /run/small/.all 2> /dev/null && "
        f"truncate -s -{room_kib}k /run/small/.all && mount --bind /run/small /run/tessera/grants && "
    )


def test_no_room_for_the_usage_file(bench: Bench, roads: Path) -> None:
    """It is a hole at first. Where that can't be filled, CUDA doesn't start, and says so: no SIGBUS later."""
    bench.grant(memory=LIMIT)
    run = f"exec {roads} link edge plain"
    assert bench.answer("sh", "-c", small_grants(bench, room_kib=32) + run)["held"] == LIMIT
    full = bench.run("sh", "-c", small_grants(bench, room_kib=0) + run)
    assert (full.returncode, "cuInit: 802" in full.stderr) == (3, True)
    assert "tessera: /run/tessera/grants/grant/usage: No space left on device" in full.stderr


def test_a_file_in_which_another_release_counts(bench: Bench, roads: Path) -> None:
    """Nothing in it is touched: CUDA doesn't start, and says what to do."""
    usage = bench.grant(memory=LIMIT) / "usage"
    with usage.open("r+b") as file:
        file.seek(abi_offset("version"))
        file.write((1).to_bytes(4, "little"))
    before = usage.read_bytes()
    result = bench.run(roads, "link", "edge", "plain")
    assert (result.returncode, "cuInit: 802" in result.stderr) == (3, True)
    assert (
        "usage: counted in another release's way: this one starts when the pod is made anew" in result.stderr
    )
    assert usage.read_bytes() == before


def test_no_room_for_a_slot(bench: Bench, roads: Path) -> None:
    """The 30 slots on the page of the file's head are somebody's; the next one needs a page of its own."""
    usage = bench.grant(memory=LIMIT) / "usage"
    first, size = abi_offset("process"), ffi.sizeof("struct tessera_process")
    with usage.open("r+b") as file:
        for slot in range(30):
            file.seek(first + slot * size + ffi.offsetof("struct tessera_process", "start_ns"))
            file.write((1).to_bytes(8, "little"))
        file.seek(abi_offset("slots_high"))
        file.write((30).to_bytes(4, "little"))
    run = f"exec {roads} link edge plain"
    assert bench.answer("sh", "-c", small_grants(bench, room_kib=32) + run)["held"] == LIMIT
    result = bench.run("sh", "-c", small_grants(bench, room_kib=12) + run)  # for what is at the file's end
    assert (answer_of(result)["held"], answer_of(result)["code"]) == (0, 2)
    assert "no slot in /run/tessera/grants/grant/usage: its file system is full" in result.stderr


def test_the_last_slot(bench: Bench, roads: Path) -> None:
    """4096 processes have one each; who comes then can't be counted, so he gets no memory."""
    usage = bench.grant(memory=LIMIT) / "usage"
    first, size = abi_offset("process"), ffi.sizeof("struct tessera_process")
    slots = int(ffi.integer_const("TESSERA_SLOTS"))
    for taken in (slots - 1, slots):
        with usage.open("r+b") as file:
            for slot in range(taken):
                file.seek(first + slot * size + ffi.offsetof("struct tessera_process", "start_ns"))
                file.write((1).to_bytes(8, "little"))
            file.seek(abi_offset("slots_high"))
            file.write(taken.to_bytes(4, "little"))
            file.flush()
            fcntl.lockf(file, fcntl.LOCK_EX, taken)  # they live
            found = bench.run(roads, "link", "edge", "plain")
        if taken < slots:
            assert answer_of(found)["held"] == LIMIT
        else:
            assert (answer_of(found)["held"], answer_of(found)["code"]) == (0, 2)
            assert "no slot in /run/tessera/grants/grant/usage: too many processes" in found.stderr
    assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT  # all have ended
