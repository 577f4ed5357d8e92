"""The compute limit in real time: the share of the card that programs get, by the driver's own count.
How exact it is for which kernels is seen in virtual time (test_share_of_time.py).

Kernels of the fake driver take exact device time, one after another over all processes. Shares are looked at
once all programs are at work, since on a busy machine they start one by one. More than the limit, by a tenth,
is never right; less may be this machine's doing, where nobody woke the program in time: it is looked again.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, MI, PATIENCE, Bench
from tests.integration.interposer.families import CUDA


def burning(bench: Bench, kernel_ms: float, processes: int = 1) -> None:
    """Processes that launch kernels back to back, all of them under way."""
    for _ in range(processes):
        bench.start(FAKE / "cuda-burn", "--kernel-ms", str(kernel_ms), "--seconds", "600")
    at_work(bench, processes)


def at_work(bench: Bench, processes: int) -> None:
    deadline = time.monotonic() + PATIENCE
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


def test_share_is_the_limit(bench: Bench) -> None:
    bench.grant(cores=30)
    burning(bench, 10, processes=4)
    before = launched(bench)
    assert_share(lambda: share(bench), 30)
    assert all(now > then for now, then in zip(launched(bench), before, strict=True))  # nobody starves


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


HUNDRED_KERNELS = (
    CUDA
    + """
import sys
use(0)
spinning = kernel()
for _ in range(100):
    launch(spinning, 5_000_000)
    must(cuda.cuCtxSynchronize())
print("done", flush=True)
sys.stdin.read()
"""
)


def test_what_the_agent_reads(bench: Bench) -> None:
    bench.grant(cores=25, memory=64 * MI)
    process = bench.start(sys.executable, "-c", HUNDRED_KERNELS)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    (entry,) = bench.usage().processes
    assert entry.launches == 100
    assert entry.busy_ns / 1e6 == pytest.approx(100 * 5, rel=0.1)
    assert entry.waited_ns > 1e9  # of the 2 s that 0.5 s take by a quarter of the card
    process.communicate(timeout=PATIENCE)
    assert bench.usage().processes == ()
