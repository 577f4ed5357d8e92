# SPDX-License-Identifier: Apache-2.0
"""Processes race, and are killed, in every family of memory: the limit holds and all of it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import HANGS, MI, Bench, answer_of, finished

OUT_OF_MEMORY = 2
LIMIT = 300 * MI


@pytest.mark.parametrize("kind", ["async", "keep", "virtual", "array", "graph"])
def test_processes_race_by_every_kind(bench: Bench, roads: Path, kind: str) -> None:
    limit = 64 * MI
    bench.grant(memory=limit)
    threads = "1" if kind == "graph" else "4"  # the client's own list of graphs knows no locks
    processes = [bench.start(roads, "link", "race", threads, "4000", kind) for _ in range(4)]
    codes = [finished(process) for process in processes]
    assert all(set(each) <= {"0", str(OUT_OF_MEMORY)} for each in codes)
    assert any(str(OUT_OF_MEMORY) in each for each in codes)
    assert bench.high_water() <= limit
    assert bench.held() == 0
    assert bench.usage().memory_bytes == 0


@pytest.mark.parametrize("kind", ["keep", "virtual", "mipmap"])
def test_memory_of_the_killed_is_back_of_every_kind(bench: Bench, roads: Path, kind: str) -> None:
    bench.grant(memory=LIMIT)
    for _ in range(3):
        holder = bench.start(roads, "link", "fill", str(2 * MI), kind)
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline())["held"] == LIMIT
        holder.kill()
        holder.wait()
    assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT


def test_a_storm_of_kills_by_every_kind(make_bench: Callable[..., Bench], roads: Path) -> None:
    """While they start, make contexts, allocate, free: afterwards all is there, and nobody was held up."""
    bench = make_bench(driver={"context": "8Mi"})
    bench.grant(memory=LIMIT)
    survivor = bench.start(roads, "link", "race", "2", "400000")
    for round in range(8):
        kinds = ("plain", "keep", "virtual", "graph", "array")
        victims = [bench.start(roads, "gpa2", "churn", str(2 * MI), kind) for kind in kinds]
        for number, victim in enumerate(victims):
            if (number + round) % 2 == 0:  # the others die while they start
                assert victim.stdout is not None
                victim.stdout.readline()
            victim.kill()
            victim.wait()
    assert answer_of(bench.run(roads, "link", "info", timeout=HANGS))[0]["total"] == LIMIT
    assert set(finished(survivor)) <= {"0", str(OUT_OF_MEMORY)}
    assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT - 8 * MI
    assert bench.high_water() <= LIMIT
