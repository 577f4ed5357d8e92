"""The memory limit, by every road and kind, against the fake driver's own count of what it holds."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import HANGS, LARGE, MI, SMALL, Bench, answer_of, finished

ROADS = ["link", "dlsym", "next", "gpa1", "gpa2", "ptsz"]
KINDS = [
    *("plain", "managed", "async", "pool", "keep", "pitch"),
    *("virtual", "array", "array3d", "mipmap", "graph"),
]
UNIT = {"virtual": 2 * MI}
"""What is allocated of this kind is a multiple of so many bytes; of the others, of 512."""
OUT_OF_MEMORY = 2
LIMIT = 300 * MI + 512

CTYPES = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), 64 << 20
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
held, code = 0, 0
while block:
    code = cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(block))
    if code == 0: held += block
    else: block //= 2
print(json.dumps({"held": held, "code": code}))
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("road", ROADS)
def test_limit_is_exact(bench: Bench, roads: Path, road: str, kind: str) -> None:
    bench.grant(memory=LIMIT)
    rest = LIMIT % UNIT.get(kind, 512)
    assert bench.answer(roads, road, "edge", kind) == {
        "held": LIMIT - rest,
        "code": OUT_OF_MEMORY,
        "free": rest,
        "total": LIMIT,
        "free_after": 0 if kind == "keep" else LIMIT,
    }
    assert bench.high_water() == LIMIT - rest
    assert bench.usage().peak_memory_bytes == LIMIT - rest
    assert bench.usage().memory_bytes == 0


def test_limit_is_exact_through_ctypes(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    assert bench.python(CTYPES) == f'{{"held": {LIMIT}, "code": {OUT_OF_MEMORY}}}\n'
    assert bench.high_water() == LIMIT


def test_answers_to_odd_calls_are_the_drivers(make_bench: Callable[..., Bench], roads: Path) -> None:
    bare, limited = make_bench("bare", preload=False), make_bench("limited")
    limited.grant(memory=LIMIT)
    expected = bare.answer(roads, "link", "mixed") | {"free": LIMIT, "total": LIMIT}
    assert limited.answer(roads, "link", "mixed") == expected


def test_a_context_ends_with_its_blocks(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    expected = {"held": 100 * 512, "after_destroy": 0, "after_reset": 0}
    assert bench.answer(roads, "link", "contexts") == expected


def test_parent_and_child_are_two_processes(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    assert bench.answer(roads, "link", "fork") == {"both": 2 * MI, "alone": MI}


def test_eight_processes_of_eight_threads_never_pass_the_limit(bench: Bench, roads: Path) -> None:
    limit = 64 * MI  # a quarter of what they want
    bench.grant(memory=limit)
    processes = [bench.start(roads, "link", "race", "8", "4000") for _ in range(8)]
    codes = [finished(process) for process in processes]
    assert all(set(each) <= {"0", str(OUT_OF_MEMORY)} for each in codes)
    assert any(str(OUT_OF_MEMORY) in each for each in codes)
    assert bench.high_water() <= limit
    assert bench.usage().memory_bytes == 0
    assert bench.answer(roads, "link", "edge", "plain")["held"] == limit


def test_processes_fill_the_limit_together(bench: Bench, roads: Path) -> None:
    limit = 4096 * 512
    bench.grant(memory=limit)
    processes = [bench.start(roads, "gpa2", "fill", "512") for _ in range(4)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    assert bench.usage().memory_bytes == bench.held() == bench.high_water() == limit


def test_memory_of_the_killed_is_back(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    holder = bench.start(roads, "link", "fill", str(MI))
    assert holder.stdout is not None
    holder.stdout.readline()
    assert bench.answer(roads, "link", "edge", "plain")["held"] < MI
    holder.kill()
    holder.wait()
    assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT


def test_a_storm_of_kills_hangs_nobody(bench: Bench, roads: Path) -> None:
    """Neighbours are killed while they allocate; a survivor goes on, and in the end all memory is there."""
    bench.grant(memory=LIMIT)
    survivor = bench.start(roads, "link", "race", "2", "1500000")
    for _ in range(12):
        victims = [bench.start(roads, "link", "churn", str(MI)) for _ in range(4)]
        for delay, victim in enumerate(victims):
            if delay % 2 == 0:  # the others die while they start
                assert victim.stdout is not None
                victim.stdout.readline()
            victim.send_signal(signal.SIGKILL)
            victim.wait()
    assert answer_of(bench.run(roads, "link", "info", timeout=HANGS))[0]["total"] == LIMIT
    assert set(finished(survivor)) <= {"0", str(OUT_OF_MEMORY)}
    assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT
    assert bench.high_water() <= LIMIT


@pytest.mark.parametrize("order", ["0,1", "1,0", f"{LARGE},{SMALL}"], ids=["as-is", "reversed", "by-uuid"])
def test_limits_go_by_uuid(bench: Bench, roads: Path, order: str) -> None:
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=2 * LIMIT)
    found = bench.answer(roads, "link", "info", environment={"CUDA_VISIBLE_DEVICES": order})
    expected = [LIMIT, 2 * LIMIT] if order == "0,1" else [2 * LIMIT, LIMIT]
    assert [device["total"] for device in found] == expected
    assert [device["device_total"] for device in found] == expected


def test_a_device_without_a_grant_is_passed_through(bench: Bench, roads: Path) -> None:
    bench.grant(uuid=SMALL, memory=LIMIT)
    assert [device["total"] for device in bench.answer(roads, "gpa2", "info")] == [LIMIT, 80 << 30]


def test_a_limit_that_grows_is_followed(bench: Bench, roads: Path) -> None:
    bench.grant(memory=MI)
    holder = bench.start(roads, "link", "fill", str(MI))
    assert holder.stdout is not None
    holder.stdout.readline()
    bench.grant(memory=3 * MI)
    assert bench.answer(roads, "link", "edge", "plain")["held"] == 2 * MI
    bench.grant(memory=512)  # less than is held: nothing is free, nothing underflows
    assert bench.answer(roads, "link", "info")[0] == {"device_total": 512, "free": 0, "total": 512}


def test_free_is_never_more_than_the_card_has(make_bench: Callable[..., Bench], roads: Path) -> None:
    neighbour = make_bench("neighbour")
    neighbour.grant(memory=20 << 30)
    holder = neighbour.start(roads, "link", "fill", str(1 << 30))
    assert holder.stdout is not None
    holder.stdout.readline()
    bench = make_bench("bench", shares_cards_of=neighbour)
    bench.grant(memory=10 << 30)
    found = bench.answer(roads, "link", "info")[0]
    assert (found["free"], found["total"]) == (4 << 30, 10 << 30)


@pytest.mark.parametrize(
    "variables",
    [
        {"CUDA_DEVICE_MEMORY_LIMIT": "0", "CUDA_DEVICE_MEMORY_LIMIT_0": "100g"},
        {"CUDA_DISABLE_CONTROL": "true", "GPU_CORE_UTILIZATION_POLICY": "disable"},
        {"TESSERA_GRANTS_DIRECTORY": "/nonexistent", "TESSERA_DISABLE": "1"},
    ],
    ids=["hami-limit", "hami-disable", "own"],
)
def test_no_variable_loosens_anything(bench: Bench, roads: Path, variables: dict[str, str]) -> None:
    bench.grant(memory=LIMIT)
    assert bench.run(roads, "link", "edge", "plain", environment=variables).stdout.startswith(
        f'{{"held": {LIMIT},'
    )
