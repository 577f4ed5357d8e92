# SPDX-License-Identifier: Apache-2.0
"""Device time: kernels one after another over all processes, fair turns, events, utilization."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakegpu.driver_root import program
from tests.fakegpu.virtual_time import VirtualTime
from tests.integration.fakegpu.conftest import INVENTORIES, Driver


def burn(*arguments: str) -> list[str]:
    return [str(program("cuda-burn")), "--json", *arguments]


def share(output: str) -> float:
    found: float = json.loads(output)["share"]
    return found


def shares(driver: Driver, *burns: list[str]) -> list[float]:
    """Of programs that run side by side."""
    return [share(output) for output in driver.in_virtual_time(*burns)]


def test_one_process_gets_the_whole_card(driver: Driver) -> None:
    assert shares(driver, burn("--seconds", "0.5")) == pytest.approx([1], abs=0.03)


@pytest.mark.parametrize("kernels", [("1", "1"), ("1", "5"), ("0.2", "20")], ids="-".join)
def test_two_processes_share_evenly_whatever_their_kernels(driver: Driver, kernels: tuple[str, str]) -> None:
    first, second = (burn("--seconds", "1", "--kernel-ms", length) for length in kernels)
    assert shares(driver, first, second) == pytest.approx([0.5, 0.5], abs=0.04)


def test_cards_are_independent(driver: Driver) -> None:
    first, second = (burn("--seconds", "0.5", "--device", device) for device in "01")
    assert shares(driver, first, second) == pytest.approx([1, 1], abs=0.03)


def test_without_time_slices_a_kernel_is_never_interrupted(make_driver: Callable[[str], Driver]) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text().replace("time_slice_us = 2000", "time_slice_us = 0")
    first, second = (burn("--seconds", "1", "--kernel-ms", length) for length in ("2", "8"))
    assert shares(make_driver(text), first, second) == pytest.approx([0.2, 0.8], abs=0.03)


@pytest.mark.parametrize("slices", ["2000", "0"], ids=["slices", "whole kernels"])
def test_a_killed_process_does_not_hold_the_card(make_driver: Callable[[str], Driver], slices: str) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text()
    driver = make_driver(text.replace("time_slice_us = 2000", f"time_slice_us = {slices}"))
    hog = "start(); f = kernel(); [launch(f, 5000) for _ in range(100)]; answer(ready=1); time.sleep(600)"
    waiter = "start(); f = kernel(); launch(f, 1); answer(ready=1); cuda.cuCtxSynchronize(); answer(done=1)"
    with driver.spawn(*driver.client(hog)) as first, driver.spawn(*driver.client(waiter)) as second:
        assert first.stdout is not None and second.stdout is not None
        first.stdout.readline()
        second.stdout.readline()
        first.kill()
        first.wait()
        begin = time.monotonic()
        assert json.loads(second.stdout.readline()) == {"done": 1}
        assert time.monotonic() - begin < 30  # the killed one had work for 500


def test_streams_and_events_follow_the_work(driver: Driver) -> None:
    found = driver.timed("""
start()
f = kernel()
def stream(flags=0):
    made = ctypes.c_void_p()
    check(cuda.cuStreamCreate(ctypes.byref(made), flags))
    return made
def event(flags=0):
    made = ctypes.c_void_p()
    check(cuda.cuEventCreate(ctypes.byref(made), flags))
    return made
def elapsed(a, b):
    value = ctypes.c_float()
    return cuda.cuEventElapsedTime(ctypes.byref(value), a, b), value.value
one, two, apart = stream(), stream(), stream(1)
a, b, c, idle = event(), event(), event(), event()
early = elapsed(a, b)[0]
check(cuda.cuEventRecord(a, one))
check(launch(f, 100, one))
check(cuda.cuEventRecord(b, one))
check(launch(f, 60, one))
check(cuda.cuEventRecord(c, one))
check(cuda.cuEventRecord(idle, apart))
states = [cuda.cuStreamQuery(s) for s in (one, two, None, apart)]
events = [cuda.cuEventQuery(e) for e in (a, b, c, idle)]
running = elapsed(a, b)[0]
check(cuda.cuEventSynchronize(b))
middle = [cuda.cuEventQuery(e) for e in (b, c)]
check(cuda.cuStreamWaitEvent(two, c, 0))
waits = cuda.cuStreamQuery(two)
check(cuda.cuStreamSynchronize(two))
check(cuda.cuStreamDestroy_v2(one))
answer(early=early, states=states, events=events, running=running, middle=middle, waits=waits,
       first=elapsed(a, b), next=elapsed(b, c), stale=cuda.cuStreamQuery(one))""")
    assert found["early"] == 400  # never recorded
    assert found["states"] == [600, 0, 600, 0]  # the legacy stream waits for blocking streams only
    assert found["events"] == [0, 600, 600, 0]
    assert found["running"] == 600
    assert found["middle"] == [0, 600]
    assert found["waits"] == 600
    assert found["first"][0] == 0
    assert found["first"][1] >= 100  # from the moment of the record, a busy host launches later
    assert found["next"] == [0, pytest.approx(60, abs=0.1)]
    assert found["stale"] == 400


def test_event_times_survive_a_long_queue(driver: Driver) -> None:
    found = driver.timed("""
start()
f = kernel()
def event():
    made = ctypes.c_void_p()
    check(cuda.cuEventCreate(ctypes.byref(made), 0))
    return made
a, b = event(), event()
check(launch(f, 100))
check(cuda.cuEventRecord(a, None))
check(launch(f, 5))
check(cuda.cuEventRecord(b, None))
begin = time.monotonic()
for _ in range(3000): check(launch(f, 0.05))
check(cuda.cuCtxSynchronize())
value = ctypes.c_float()
check(cuda.cuEventElapsedTime(ctypes.byref(value), a, b))
answer(elapsed=value.value, seconds=time.monotonic() - begin)""")
    assert found["elapsed"] == pytest.approx(5, abs=0.1)
    assert found["seconds"] > 0.2


def test_per_thread_default_streams_are_apart(driver: Driver) -> None:
    found = driver.timed("""
import threading
context = start()
f = kernel()
states = []
query = cuda.cuStreamQuery
def other():
    check(cuda.cuCtxSetCurrent(context))
    states.append([cuda.cuStreamQuery_ptsz(None), query(ctypes.c_void_p(2)), query(None)])
check(launch(f, 200, call="cuLaunchKernel_ptsz"))
mine = [cuda.cuStreamQuery_ptsz(None), query(ctypes.c_void_p(2)), cuda.cuStreamQuery_ptsz(ctypes.c_void_p(1))]
thread = threading.Thread(target=other); thread.start(); thread.join()
begin = time.monotonic()
_, address = allocate(16)
check(cuda.cuMemcpyHtoD_v2_ptds(address, b"x" * 16, ctypes.c_size_t(16)))
answer(mine=mine, other=states[0], waited=time.monotonic() - begin)""")
    assert found["mine"] == [600, 600, 600]
    assert found["other"] == [0, 0, 600]
    assert found["waited"] > 0.03  # the synchronous copy waited for its own thread's stream


def test_utilization_is_the_busy_share(driver: Driver, tmp_path: Path) -> None:
    """One kernel in four milliseconds."""
    clock = VirtualTime(tmp_path / "clock")
    code = "start(); f = kernel()\nwhile True: launch(f, 1); cuda.cuCtxSynchronize(); time.sleep(0.003)"
    device = "n.nvmlDeviceGetHandleByIndex(0)"
    gpu = f"n.nvmlDeviceGetUtilizationRates({device}).gpu"
    own = f"[[s.pid, s.smUtil] for s in n.nvmlDeviceGetProcessUtilization({device}, 0)]"
    other = "n.nvmlDeviceGetUtilizationRates(n.nvmlDeviceGetHandleByIndex(1)).gpu"

    def seen(what: str) -> Any:
        return driver.nvml(what, env=clock.observer())

    with driver.spawn(*driver.client(code), env=clock.member()) as process:
        clock.wait_for_members()
        clock.advance(2)
        assert [seen(gpu), seen(own), seen(other)] == [25, [[process.pid, 25]], 0]
    clock.advance(2)
    assert seen(gpu) == 0


def test_contexts_and_modules_take_the_time_that_the_inventory_says(
    make_driver: Callable[[str], Driver],
) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text()
    text = text.replace("kernel_us = 10", "kernel_us = 10\ncontext_us = 200000\nmodule_us = 100000")
    found = make_driver(text).timed("""
check(cuda.cuInit(0))
begin = time.monotonic()
start()
first = time.monotonic() - begin
start()
second = time.monotonic() - begin - first
kernel()
answer(first=first, second=second, module=time.monotonic() - begin - first - second)""")
    assert found == pytest.approx({"first": 0.2, "second": 0, "module": 0.1}, abs=0.001)
