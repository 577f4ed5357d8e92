# SPDX-License-Identifier: Apache-2.0
"""Virtual time: members sleep, launch and wait without taking real time, and the same way each time."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.fakegpu.virtual_time import VirtualTime
from tests.integration.fakegpu.conftest import INVENTORIES, Driver

# Sleeps for a while, over and over, and says when it has woken; the first line is when it began.
SLEEPER = """
begin = time.monotonic_ns()
answer(woke=begin)
for _ in range(3):
    time.sleep({span})
    answer(woke=time.monotonic_ns())
"""

# Kernels back to back, two in flight; in the end what each event says of the time between.
LAUNCHER = """
start(0)
spin = kernel()
events = [ctypes.c_void_p() for _ in range(21)]
for event in events: check(cuda.cuEventCreate(ctypes.byref(event), 0), "event")
check(cuda.cuEventRecord(events[0], None), "record")
for place in range(1, 21):
    check(launch(spin, {milliseconds}), "launch")
    check(cuda.cuEventRecord(events[place], None), "record")
    check(cuda.cuEventSynchronize(events[max(place - 1, 0)]), "wait")
check(cuda.cuCtxSynchronize(), "wait")
between = ctypes.c_float()
times = []
for place in range(1, 21):
    check(cuda.cuEventElapsedTime(ctypes.byref(between), events[place - 1], events[place]), "elapsed")
    times.append(round(between.value, 3))
answer(times=times)
"""


@pytest.fixture
def clock(tmp_path: Path) -> VirtualTime:
    return VirtualTime(tmp_path / "clock")


def busy(driver: Driver, clock: VirtualTime) -> float:
    shown = driver.tool("fakegpu-ctl", "show", driver.state, env=clock.observer())
    return float(shown.split("busy ")[1].split()[0])


def lines(process: Popen[str]) -> list[dict[str, Any]]:
    output, _ = process.communicate(timeout=300)
    return [json.loads(line) for line in output.splitlines()]


def test_nobody_lives_in_it(clock: VirtualTime) -> None:
    before = clock.now_ns()
    clock.advance(3600)
    assert clock.now_ns() == before + 3600 * 10**9


def test_sleepers_wake_on_time_in_no_time(driver: Driver, clock: VirtualTime) -> None:
    """An hour each time; looks at the clock take 100 ns."""
    with ExitStack() as started:
        spans = 3600.0, 1800.0
        processes = [
            started.enter_context(driver.spawn(*driver.client(SLEEPER.format(span=span)), env=clock.member()))
            for span in spans
        ]
        clock.wait_for_members()
        clock.advance(4 * 3600)
        for process, span in zip(processes, spans, strict=True):
            woke = [line["woke"] for line in lines(process)]
            slept = [(after - before) / 1e9 for before, after in pairwise(woke)]
            assert slept == pytest.approx([span] * 3, abs=1e-4)


def test_stands_still_between_advances(driver: Driver, clock: VirtualTime) -> None:
    with driver.spawn(*driver.client(LAUNCHER.format(milliseconds=1000)), env=clock.member()):
        clock.wait_for_members()
        clock.advance(5)
        first = busy(driver, clock)
        assert first == pytest.approx(5, abs=0.01)
        assert busy(driver, clock) == first
        clock.advance(2.5)
        assert busy(driver, clock) - first == pytest.approx(2.5, abs=1e-6)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_is_the_same_each_time(make_driver: Callable[[str], Driver], tmp_path: Path, count: int) -> None:
    """Kernels of 7 ms, so turns of 2 ms divide them among the processes."""
    seen = []
    for attempt in range(2):
        driver = make_driver("two-cards.ini")
        clock = VirtualTime(tmp_path / f"clock{attempt}")
        with ExitStack() as started:
            code = driver.client(LAUNCHER.format(milliseconds=7))
            processes = [started.enter_context(driver.spawn(*code, env=clock.member())) for _ in range(count)]
            clock.wait_for_members()
            clock.advance(1)
            answers = [lines(process)[-1] for process in processes]
            seen.append([answer["times"] for answer in answers])
    assert seen[0] == seen[1]
    assert sum(seen[0][0]) >= 7 * 20 * (count - 0.1)


def test_a_killed_member_holds_nobody_up(driver: Driver, clock: VirtualTime) -> None:
    spin = "while True: time.monotonic()"  # it has the turn, and never hands it on
    with (
        driver.spawn(*driver.client(spin), env=clock.member()) as stuck,
        driver.spawn(*driver.client(SLEEPER.format(span=1)), env=clock.member()) as other,
    ):
        clock.wait_for_members()
        with pytest.raises(TimeoutError):
            clock.advance(1, patience=0.3)
        stuck.send_signal(signal.SIGKILL)
        clock.advance(10)
        assert len(lines(other)) == 4


def test_a_futex_is_waited_for_in_virtual_time(driver: Driver, clock: VirtualTime) -> None:
    """FUTEX_WAIT until its time is over; FUTEX_WAKE of another process ends it early."""
    wait = """
import mmap
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.mmap(os.open(os.environ["WORD"], os.O_RDWR), 4096)
word = ctypes.c_uint32.from_buffer(page)
class Span(ctypes.Structure): _fields_ = ("seconds", ctypes.c_long), ("ns", ctypes.c_long)
def futex(command, value, span=None):
    at = ctypes.c_long(ctypes.addressof(word)), ctypes.c_long(command), ctypes.c_long(value)
    number = 202 if os.uname().machine == "x86_64" else 98
    return libc.syscall(ctypes.c_long(number), *at, span, None, ctypes.c_long(0))
"""
    waiter = """
begin = time.monotonic_ns()
results = [futex(0, 0, ctypes.byref(Span(2, 0)))]
first = time.monotonic_ns()
results.append(futex(0, 0, ctypes.byref(Span(1000, 0))))
answer(results=results, spans=[(first - begin) / 1e9, (time.monotonic_ns() - first) / 1e9])
"""
    waker = "time.sleep(5)\nword.value = 1\nfutex(1, 1)\n"
    path = driver.root / "word"
    path.write_bytes(bytes(4096))
    words = {"WORD": str(path)}
    with (
        driver.spawn(*driver.client(wait + waiter), env=clock.member() | words) as process,
        driver.spawn(*driver.client(wait + waker), env=clock.member() | words),
    ):
        clock.wait_for_members()
        clock.advance(60)
        (answer,) = lines(process)
    assert answer["results"] == [-1, 0]
    assert answer["spans"] == pytest.approx([2, 3], abs=1e-3)


def test_an_event_waits_for_the_turn_of_its_process(driver: Driver, clock: VirtualTime) -> None:
    """Two others take turns of 2 ms when one that has launched nothing records an event."""
    other = "start(0)\nspin = kernel()\ncheck(launch(spin, 1000))\ncheck(cuda.cuCtxSynchronize())"
    code = """
start(0)
event = ctypes.c_void_p()
check(cuda.cuEventCreate(ctypes.byref(event), 0), "event")
time.sleep(0.1005)
check(cuda.cuEventRecord(event, None), "record")
before = time.monotonic_ns()
check(cuda.cuEventSynchronize(event), "wait")
answer(waited=(time.monotonic_ns() - before) / 1e6)
"""
    with (
        driver.spawn(*driver.client(other), env=clock.member()),
        driver.spawn(*driver.client(other), env=clock.member()),
        driver.spawn(*driver.client(code), env=clock.member()) as process,
    ):
        clock.wait_for_members()
        clock.advance(4)
        (answer,) = lines(process)
    assert 1 < answer["waited"] <= 4


COPIES = """
start(0)
error, here = allocate(1 << 30)
error, there = allocate(1 << 30)
host = ctypes.create_string_buffer(1 << 20)
stream = ctypes.c_void_p()
check(cuda.cuStreamCreate(ctypes.byref(stream), 1), "stream")
before = time.monotonic_ns()
check({call}, "copy")
check(cuda.cuStreamSynchronize(stream), "wait")
check(cuda.cuCtxSynchronize(), "wait")
answer(took=(time.monotonic_ns() - before) / 1e6)
"""
MEBIBYTE = "ctypes.c_size_t(1 << 20)"


@pytest.mark.parametrize(
    ("call", "mebibytes"),
    [
        pytest.param(f"cuda.cuMemcpyDtoD_v2(here, there, {MEBIBYTE})", 1, id="device to device"),
        pytest.param(f"cuda.cuMemcpyAsync(here, there, {MEBIBYTE}, stream)", 1, id="unified"),
        pytest.param(f"cuda.cuMemsetD32Async(here, 1, {MEBIBYTE}, stream)", 4, id="fill"),
        pytest.param("cuda.cuMemsetD2D8_v2(here, u64(4096), 1, u64(2048), u64(512))", 1, id="2D fill"),
        pytest.param(f"cuda.cuMemcpyHtoD_v2(here, host, {MEBIBYTE})", 0, id="from the host"),
        pytest.param(f"cuda.cuMemcpyDtoH_v2(host, here, {MEBIBYTE})", 0, id="to the host"),
    ],
)
def test_copies_within_a_card_take_its_time(
    make_driver: Callable[[str], Driver], clock: VirtualTime, call: str, mebibytes: int
) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text()
    driver = make_driver(text.replace("[driver]\n", "[driver]\ncopy_gib_s = 1\n", 1))
    with driver.spawn(*driver.client(COPIES.format(call=call)), env=clock.member()) as process:
        clock.wait_for_members()
        clock.advance(10)
        (answer,) = lines(process)
    assert answer["took"] == pytest.approx(mebibytes / 1.024, abs=0.1)
