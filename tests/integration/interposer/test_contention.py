"""Several containers on one card, looked after by the agent's own loop: what each gets of the device time.

Shares are kernels launched times their time. The agent's loop runs here on the grants' real files.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.monitor.monitor import Monitor
from dra_driver.names import ClaimUID, DeviceName
from interposer import abi
from tests.integration.interposer.bench import FAKE, SMALL, Bench

Make = Callable[..., Bench]
Loads = list[tuple[Bench, float]]


def container(make_bench: Make, name: str, first: Bench | None, cores: int, **values: object) -> Bench:
    bench = make_bench(name, shares_cards_of=first)
    bench.grant(name, cores=cores, **values)
    return bench


def burn(bench: Bench, kernel_ms: float, processes: int = 1) -> None:
    for _ in range(processes):
        bench.start(FAKE / "cuda-burn", "--kernel-ms", str(kernel_ms), "--seconds", "120")
    deadline = time.monotonic() + 30
    while sum(process.launches > 2 for process in usage(bench).processes) < processes:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def usage(bench: Bench) -> abi.Usage:
    return bench.usage(bench.directory.name)


def launched(bench: Bench) -> int:
    return sum(process.launches for process in usage(bench).processes)


@contextmanager
def agent(
    tmp_path: Path, benches: list[Bench], leads: Callable[[], bool] = lambda: True
) -> Iterator[list[int]]:
    """The agent's loop, and how often it has written."""
    entries = {}
    for bench in benches:
        name = bench.directory.name
        uid = ClaimUID(name)
        link = tmp_path / "claims" / uid
        link.parent.mkdir(exist_ok=True)
        if not link.exists():
            link.symlink_to(bench.grants)
        grant = GrantEntry(
            name=name,
            request="g",
            device=DeviceName("gpu"),
            uuid=SMALL,
            memory=1,
            cores=1,
            shares=1,
            limited=True,
        )
        entries[uid] = Entry(
            uid=uid, namespace="default", name=name, boot_id="b", state=State.PREPARED, grants=(grant,)
        )
    writes: list[int] = []
    monitor = Monitor(
        entries=lambda: entries,
        directories=GrantDirectories(tmp_path),
        leads=leads,
        wrote=lambda: writes.append(time.monotonic_ns()),
    )
    ended = threading.Event()

    async def until_ended() -> None:
        task = asyncio.create_task(monitor.run())
        await asyncio.to_thread(ended.wait)
        task.cancel()

    thread = threading.Thread(target=asyncio.run, args=(until_ended(),))
    thread.start()
    try:
        yield writes
    finally:
        ended.set()
        thread.join()


def shares(loads: Loads, seconds: float = 3.0) -> list[float]:
    """Percent of the card that each had, by the time of its kernels in ms."""
    began, before = time.monotonic(), [launched(bench) for bench, _ in loads]
    time.sleep(seconds)
    passed = time.monotonic() - began
    after = [launched(bench) for bench, _ in loads]
    kernels = zip([kernel for _, kernel in loads], before, after, strict=True)
    return [(now - then) * kernel / 10 / passed for kernel, then, now in kernels]


def assert_shares(loads: Loads, expected: list[float], tolerance: float = 3) -> None:
    """Within so many points, in one of four looks: this machine may have other things to do in between."""
    seen = []
    for _ in range(4):
        seen.append(shares(loads))
        if seen[-1] == pytest.approx(expected, abs=tolerance):
            return
    pytest.fail(f"expected {expected}, got {seen}")


@pytest.mark.parametrize(
    ("first_ms", "second_ms"),
    [(1, 1), (10, 10), (2, 20), (20, 2), (0.05, 10), (10, 0.05), (100, 5)],
    ids=str,
)
def test_each_gets_what_was_promised(
    make_bench: Make, tmp_path: Path, first_ms: float, second_ms: float
) -> None:
    first = container(make_bench, "first", None, 30)
    second = container(make_bench, "second", first, 70)
    with agent(tmp_path, [first, second]):
        burn(first, first_ms)
        burn(second, second_ms)
        time.sleep(1.5)
        assert_shares(
            [(first, first_ms), (second, second_ms)], [30, 70], 4 if min(first_ms, second_ms) < 1 else 3
        )


def test_several_processes_of_each(make_bench: Make, tmp_path: Path) -> None:
    first = container(make_bench, "first", None, 30)
    second = container(make_bench, "second", first, 70)
    with agent(tmp_path, [first, second]):
        burn(first, 10, processes=2)
        burn(second, 5, processes=3)
        time.sleep(1.5)
        assert_shares([(first, 10), (second, 5)], [30, 70])


def test_what_is_idle_is_lent_and_given_back(make_bench: Make, tmp_path: Path) -> None:
    first = container(make_bench, "first", None, 30)
    second = container(make_bench, "second", first, 70)
    with agent(tmp_path, [first, second]) as writes:
        burn(first, 5)
        time.sleep(1)
        assert max(shares([(first, 5)], 1)[0] for _ in range(3)) > 90
        burn(second, 5)
        time.sleep(1)
        assert_shares([(first, 5), (second, 5)], [30, 70])
        for process in second.started:
            process.kill()
            process.wait()
        time.sleep(1)
        assert max(shares([(first, 5)], 1)[0] for _ in range(3)) > 90
        for process in first.started:
            process.kill()
            process.wait()
        time.sleep(0.5)
        count = len(writes)
        time.sleep(1.5)
        assert len(writes) == count  # nobody works, nothing is written


def test_what_was_lent_ends_with_the_agent(make_bench: Make, tmp_path: Path) -> None:
    bench = container(make_bench, "first", None, 30)
    with agent(tmp_path, [bench]):
        burn(bench, 5)
        time.sleep(1)
        assert max(shares([(bench, 5)], 1)[0] for _ in range(3)) > 90
    time.sleep(1.2)
    assert_shares([(bench, 5)], [30], 1.5)


def test_force_priority_and_another_leader(make_bench: Make, tmp_path: Path) -> None:
    """`forced` never borrows; of the others, the one of priority 0 has what is left."""
    forced = container(make_bench, "forced", None, 10, policy=abi.Policy.FORCE)
    before = container(make_bench, "before", forced, 20, priority=0)
    after = container(make_bench, "after", forced, 20)
    leads = threading.Event()
    with agent(tmp_path, [forced, before, after], leads=leads.is_set) as writes:
        for bench in (forced, before, after):
            burn(bench, 5)
        time.sleep(0.5)
        assert writes == []
        leads.set()
        time.sleep(1.5)
        assert_shares([(forced, 5), (before, 5), (after, 5)], [10, 70, 20])
