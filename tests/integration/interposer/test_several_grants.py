# SPDX-License-Identifier: Apache-2.0
"""Several grants of one card in one container: they add up, for whatever is asked for, and one of them is as
good as another."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import LARGE, MI, Bench, finished
from tests.integration.interposer.families import CUDA
from tests.integration.interposer.test_memory import KINDS, OUT_OF_MEMORY
from tests.integration.interposer.test_views import NVML

FIRST, SECOND = 48 * MI, 32 * MI
BOTH = FIRST + SECOND


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench()
    bench.grant("first", memory=FIRST)
    bench.grant("second", memory=SECOND)
    return bench


def charged(bench: Bench) -> list[int]:
    return [bench.usage(name).memory_bytes for name in ("first", "second")]


def filled(bench: Bench, roads: Path, block: int, kind: str = "plain") -> int:
    """What a process that goes on holds in blocks of this size."""
    process = bench.start(roads, "link", "fill", str(block), kind)
    assert process.stdout is not None
    found = json.loads(process.stdout.readline())
    assert found["code"] == OUT_OF_MEMORY
    return int(found["held"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_that_none_has_room_for_alone(bench: Bench, roads: Path, kind: str) -> None:
    assert filled(bench, roads, 72 * MI, kind) == 72 * MI
    assert sum(charged(bench)) == bench.held() == 72 * MI
    assert filled(bench, roads, 8 * MI, kind) == 8 * MI  # of another process
    assert charged(bench) == [FIRST, SECOND]
    assert bench.high_water() == BOTH
    for process in bench.started:
        process.kill()
        process.wait()
    found = bench.answer(roads, "link", "edge", kind)
    kept = found["free"] if kind != "keep" else BOTH
    assert (found["held"], found["total"], found["free_after"] + kept) == (BOTH, BOTH, BOTH)
    assert charged(bench) == [0, 0]


def test_a_context_that_none_has_room_for_alone(make_bench: Callable[..., Bench], roads: Path) -> None:
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant("first", memory=24 * MI)
    bench.grant("second", memory=24 * MI)
    for _ in range(3):  # measured, and known from the others before it
        assert bench.answer(roads, "link", "edge", "plain")["held"] == 8 * MI
        assert charged(bench) == [0, 0]


def test_what_is_freed_is_free_whichever_it_was_charged_to(bench: Bench) -> None:
    """Blocks of several sizes and kinds, freed in another order: in the end there is room for one again."""
    found = json.loads(
        bench.python(
            CUDA
            + """
use(0)
keeping = pool(2**64 - 1)
first, (code, pooled), third = alloc(40 * MI)[1], alloc_from(keeping, 30 * MI), alloc(10 * MI)[1]
out["held"] = [code, used(), alloc(512)[0]]
must(cuda.cuMemFree_v2(first))
out["one"] = used()
must(cuda.cuMemFreeAsync(pooled, P()))
must(cuda.cuMemPoolTrimTo(keeping, S(0)))
out["two"] = used()
code, handle = create(70 * MI)
out["virtual"] = [code, used(), alloc(512)[0]]
must(cuda.cuMemFree_v2(third))
must(cuda.cuMemRelease(handle))
out["end"] = [used(), alloc(80 * MI)[0]]
print(json.dumps(out))
"""
        )
    )
    assert found == {
        "held": [0, 80, OUT_OF_MEMORY],
        "one": 40,
        "two": 10,
        "virtual": [0, 80, OUT_OF_MEMORY],
        "end": [0, 0],
    }
    assert bench.high_water() == BOTH


@pytest.mark.parametrize("kind", ["plain", "keep", "virtual"])
def test_processes_race(bench: Bench, roads: Path, kind: str) -> None:
    processes = [bench.start(roads, "link", "race", "4", "2000", kind) for _ in range(4)]
    codes = [finished(process) for process in processes]
    assert all(set(each) <= {"0", str(OUT_OF_MEMORY)} for each in codes)
    assert any(str(OUT_OF_MEMORY) in each for each in codes)
    assert bench.high_water() <= BOTH
    assert charged(bench) == [0, 0]
    assert filled(bench, roads, 80 * MI) == BOTH


def test_as_many_as_a_container_can_have(make_bench: Callable[..., Bench], roads: Path) -> None:
    bench = make_bench()
    names = [f"grant-{number}" for number in range(64)]
    for name in names:
        bench.grant(name, memory=MI)
    assert filled(bench, roads, 63 * MI) == 63 * MI
    assert filled(bench, roads, MI // 2) == MI
    assert [bench.usage(name).memory_bytes for name in names] == [MI] * 64
    bench.grant("one-more", memory=MI)
    result = bench.run(roads, "link", "info")
    assert "more than 64 grants" in result.stderr
    assert "cuInit: 802" in result.stderr


TURNS = (
    CUDA
    + """
import sys
use(0)
refused = 0
for _ in range(5000):
    code, address = alloc(30 * MI)
    if code == 0: must(cuda.cuMemFree_v2(address))
    else: refused += 1
print(refused, flush=True)
sys.stdin.readline()
"""
)


def test_a_part_is_given_back_where_the_rest_is_refused(bench: Bench) -> None:
    """Four race for the parts of both grants, in which there is room for two of them."""
    processes = [bench.start(sys.executable, "-c", TURNS) for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() != ""
    assert len(bench.usage("first").processes) == 4
    assert charged(bench) == [0, 0]


def test_a_process_is_one_process(bench: Bench, roads: Path) -> None:
    """NVML's lists have it once, with all that it holds."""
    bench.grant("other", uuid=LARGE, memory=FIRST)
    assert filled(bench, roads, 10 * MI) == BOTH
    (holder,) = bench.started
    small, large = bench.answer(sys.executable, "-c", NVML)
    assert small["memory"] == small["memory_v2"] == [BOTH, BOTH, 0]
    assert small["processes"] == small["processes_v2"] == small["details"][0] == [[holder.pid, BOTH]]
    assert (large["memory"], large["processes"]) == ([FIRST, 0, FIRST], [])


def test_a_containers_cap_is_of_one_of_them(make_bench: Callable[..., Bench], roads: Path) -> None:
    bench = make_bench(container="trainer")
    bench.grant("first", memory=FIRST, caps=(abi.Cap("trainer", 8 * MI, 0),))
    bench.grant("second", memory=SECOND)
    assert filled(bench, roads, 40 * MI) == 40 * MI
    assert charged(bench) == [8 * MI, SECOND]
    assert bench.answer(roads, "link", "info")[0] == {"device_total": 40 * MI, "free": 0, "total": 40 * MI}


def test_a_grant_of_another_card_is_none_of_them(bench: Bench, roads: Path) -> None:
    bench.grant("other", uuid=LARGE, memory=8 * MI)
    assert filled(bench, roads, 8 * MI) == BOTH
    assert [bench.high_water(0), bench.high_water(1)] == [BOTH, 0]
    assert bench.usage("other").memory_bytes == 0
