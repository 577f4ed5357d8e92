"""The compute limit: the share of device time that a grant's programs get, by the driver's clock.

Kernels of the fake driver take exact device time, one after another over all processes. Shares are looked at
once all programs are at work, since on a busy machine they start one by one. More than the limit, by a tenth,
is never right; less may be this machine's doing, where nobody woke the program in time: it is looked again.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, MI, Bench, finished


def burning(bench: Bench, kernel_ms: float, processes: int = 1) -> None:
    """Processes that launch kernels back to back, all of them under way."""
    for _ in range(processes):
        bench.start(FAKE / "cuda-burn", "--kernel-ms", str(kernel_ms), "--seconds", "60")
    at_work(bench, processes)


def at_work(bench: Bench, processes: int) -> None:
    deadline = time.monotonic() + 30
    while sum(process.launches > 2 for process in bench.usage().processes) < processes:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def share(bench: Bench, seconds: float = 2.0) -> float:
    """Percent of its time that the card was busy."""
    began, busy = time.monotonic(), bench.busy_seconds()
    time.sleep(seconds)
    done = bench.busy_seconds() - busy
    return done / (time.monotonic() - began) * 100


def assert_share(measure: Callable[[], float], cores: float, tolerance: float = 0.1) -> None:
    """`measure` looks at a window of time and says how many percent of it were used."""
    seen = []
    for _ in range(4):
        seen.append(measure())
        assert seen[-1] <= cores * (1 + tolerance), seen
        if seen[-1] >= cores * (1 - tolerance):
            return
    pytest.fail(f"expected {cores} %, got {seen}")


def launched(bench: Bench) -> list[int]:
    return [process.launches for process in bench.usage().processes]


@pytest.mark.parametrize("processes", [1, 4])
@pytest.mark.parametrize("kernel_ms", [1, 10])
@pytest.mark.parametrize("cores", [30, 50])
def test_share_is_the_limit(bench: Bench, cores: int, kernel_ms: float, processes: int) -> None:
    bench.grant(cores=cores)
    burning(bench, kernel_ms, processes)
    before = launched(bench)
    assert_share(lambda: share(bench), cores)
    assert all(now > then for now, then in zip(launched(bench), before, strict=True))  # nobody starves


def test_short_kernels_are_timed_now_and_then(bench: Bench) -> None:
    bench.grant(cores=30)
    burning(bench, 0.05)
    assert_share(lambda: share(bench), 30)


@pytest.mark.parametrize(
    ("how", "times", "streams"),
    [
        ("kernel_ptsz", "5", 1),
        ("ex", "5", 1),
        ("ex_ptsz", "5", 1),
        ("cooperative", "5", 1),
        ("cooperative_ptsz", "5", 1),
        ("multi", "5", 1),
        ("legacy", "5", 1),
        ("graph", "1", 1),
        ("graph_ptsz", "0.05", 1),
        ("graph", "0.005", 1),
        ("after_graph", "0.05", 1),
        ("kernel", "5", 4),
        ("kernel", "1,10", 1),
        ("kernel", "0.05,5", 1),
        ("kernel", "0.01,0.02,20", 1),
    ],
    ids=str,
)
def test_however_it_is_launched(bench: Bench, launches: Path, how: str, times: str, streams: int) -> None:
    """Several times: one function takes now this long, now that."""
    bench.grant(cores=30)
    bench.start(launches, how, times, str(streams))
    at_work(bench, 1)
    time.sleep(2 if "," in times else 0.5)
    assert_share(lambda: share(bench), 30, tolerance=0.05)


@pytest.mark.parametrize(
    "values",
    [
        {"cores": 0},
        {"cores": 100},
        {"cores": 10, "policy": abi.Policy.DISABLE},
        {"cores": 10, "effective_cores": 100, "lease_until_ns": 1 << 62},
    ],
    ids=["no-cores", "all-cores", "disabled", "lent"],
)
def test_not_held_back(bench: Bench, values: dict[str, Any]) -> None:
    bench.grant(**values)
    burning(bench, 1)
    assert max(share(bench, seconds=0.5) for _ in range(3)) > 85


def test_who_is_stopped_holds_nobody_up(bench: Bench) -> None:
    """Wherever SIGSTOP finds a process, with work on the card or waiting, the others have the whole grant."""
    bench.grant(cores=30)
    burning(bench, 5, processes=3)
    for process in bench.started[1:]:
        process.send_signal(signal.SIGSTOP)  # of the shell's exec: the program itself
    time.sleep(0.5)
    assert_share(lambda: share(bench), 30)


def test_a_containers_cap_holds_in_its_grant(make_bench: Callable[..., Bench]) -> None:
    """Two containers of one claim: one has a cap of its own, the other the rest of the grant."""
    capped = make_bench("capped", container="capped")
    capped.grant(cores=50, caps=(abi.Cap("capped", 0, 10), abi.Cap("other", 0, 0)))
    burning(capped, 2)
    assert_share(lambda: share(capped), 10)
    burning(capped, 2)  # two processes of it share the cap
    assert_share(lambda: share(capped), 10)


def test_force_holds_the_guaranteed_share(bench: Bench) -> None:
    bench.grant(cores=20, effective_cores=100, lease_until_ns=1 << 62, policy=abi.Policy.FORCE)
    burning(bench, 1)
    assert_share(lambda: share(bench), 20)


def test_a_new_limit_is_followed_while_it_waits(bench: Bench) -> None:
    bench.grant(cores=1)
    bench.start(FAKE / "cuda-burn", "--kernel-ms", "100", "--seconds", "60")
    while not launched(bench):
        time.sleep(0.02)
    time.sleep(1)  # at 1 % a kernel of 100 ms is waited for ten seconds
    count = launched(bench)[0]
    bench.grant(cores=80)
    assert share(bench) > 50
    assert launched(bench)[0] >= count + 10


def test_what_the_agent_reads(bench: Bench) -> None:
    bench.grant(cores=25, memory=64 * MI)
    process = bench.start(FAKE / "cuda-burn", "--kernel-ms", "5", "--seconds", "2", "--json")
    seen = [bench.usage()]
    while process.poll() is None:
        seen.append(bench.usage())
    report = finished(process)
    busiest = max((each.processes[0] for each in seen if each.processes), key=lambda entry: entry.launches)
    assert busiest.launches == pytest.approx(report["kernels"], abs=3)
    assert busiest.busy_ns / 1e6 == pytest.approx(report["kernels"] * 5, rel=0.1)
    assert busiest.waited_ns > 1e9
    assert bench.usage().processes == ()
