# SPDX-License-Identifier: Apache-2.0
"""A cap is for one container of several that share a grant."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.families import CUDA
from tests.integration.interposer.test_views import nvml

OUT_OF_MEMORY = 2
LIMIT = 300 * MI


def caps(**memory: int) -> tuple[abi.Cap, ...]:
    return tuple(abi.Cap(name, bytes, 0) for name, bytes in memory.items())


@pytest.mark.parametrize(
    ("container", "limit"),
    [("trainer", 100 * MI), ("sidecar", 20 * MI), ("other", LIMIT), ("", 20 * MI)],
    ids=["capped", "less", "uncapped", "nameless"],
)
def test_a_cap_holds_for_its_container(
    make_bench: Callable[..., Bench], roads: Path, container: str, limit: int
) -> None:
    """Without a name nobody gets more than the least of the caps."""
    bench = make_bench(container=container)
    bench.grant(memory=LIMIT, caps=caps(trainer=100 * MI, sidecar=20 * MI))
    for kind in ("plain", "async", "virtual", "graph"):
        found = bench.answer(roads, "link", "edge", kind)
        assert (found["held"], found["total"], found["free_after"]) == (limit, limit, limit), kind
    assert bench.high_water() == limit


def test_a_cap_is_for_all_processes_of_a_container(make_bench: Callable[..., Bench], roads: Path) -> None:
    trainer = make_bench("trainer", container="trainer")
    other = make_bench("other", container="other", shares_cards_of=trainer)
    trainer.grant(memory=LIMIT, caps=caps(trainer=100 * MI))
    other.grants = trainer.grants

    def held(bench: Bench, block: int) -> int:
        process = bench.start(roads, "link", "fill", str(block))
        assert process.stdout is not None
        return int(json.loads(process.stdout.readline())["held"])

    assert held(trainer, 60 * MI) == 60 * MI
    assert held(trainer, 10 * MI) == 40 * MI
    assert held(other, 10 * MI) == 200 * MI
    assert trainer.answer(roads, "link", "info")[0] == {
        "device_total": 100 * MI,
        "free": 0,
        "total": 100 * MI,
    }
    assert other.answer(roads, "link", "info")[0] == {"device_total": LIMIT, "free": 0, "total": LIMIT}
    assert trainer.high_water() == LIMIT


def test_a_cap_is_no_reservation(make_bench: Callable[..., Bench], roads: Path) -> None:
    """What the others have taken of the grant is not there for the capped one either."""
    trainer = make_bench("trainer", container="trainer")
    other = make_bench("other", container="other", shares_cards_of=trainer)
    trainer.grant(memory=LIMIT, caps=caps(trainer=100 * MI))
    other.grants = trainer.grants
    process = other.start(roads, "link", "fill", str(250 * MI))
    assert process.stdout is not None
    process.stdout.readline()
    found = trainer.answer(roads, "link", "edge", "plain")
    assert (found["held"], found["total"], found["free_after"]) == (50 * MI, 100 * MI, 50 * MI)


FILL = (
    CUDA
    + """
import sys
use(0)
count = 0
while True:
    code = 0
    while code == 0:
        code, address = alloc(10 * MI)
        count += code == 0
    print(json.dumps([code, 10 * count]), flush=True)
    sys.stdin.readline()
"""
)


@pytest.mark.parametrize("container", ["trainer", ""], ids=["named", "nameless"])
def test_a_cap_that_changes_is_followed(make_bench: Callable[..., Bench], container: str) -> None:
    """Without a name by the least of those that there are now."""
    bench = make_bench(container=container)
    bench.grant(memory=LIMIT, caps=caps(trainer=40 * MI, sidecar=90 * MI))
    process = bench.start(sys.executable, "-c", FILL)
    assert process.stdin is not None
    assert process.stdout is not None
    assert json.loads(process.stdout.readline()) == [OUT_OF_MEMORY, 40]
    bench.grant(memory=LIMIT, caps=caps(trainer=80 * MI, sidecar=70 * MI))
    process.stdin.write("on\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline()) == [OUT_OF_MEMORY, 80 if container else 70]


def test_the_dead_of_a_container_are_out_of_its_views(make_bench: Callable[..., Bench], roads: Path) -> None:
    """Also where nobody looks but who holds nothing himself."""
    bench = make_bench(container="trainer")
    bench.grant(memory=LIMIT, caps=caps(trainer=100 * MI))
    process = bench.start(roads, "link", "fill", str(MI))
    assert process.stdout is not None
    process.stdout.readline()
    assert nvml(bench)[0]["memory"] == [100 * MI, 100 * MI, 0]
    process.kill()
    process.wait()
    assert nvml(bench)[0]["memory"] == [100 * MI, 0, 100 * MI]
