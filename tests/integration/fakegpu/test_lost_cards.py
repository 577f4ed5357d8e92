# SPDX-License-Identifier: Apache-2.0
"""Cards that are lost and found again on command, as NVML and CUDA show them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable

import pytest

from tests.integration.fakegpu.conftest import Driver, eventually
from tests.integration.fakegpu.controls import LISTENER, LOST, WHOLE_CARD, XID, Listener, control
from tests.integration.fakegpu.test_mig import CARD, FIRST, THREE
from tests.integration.fakegpu.test_nvml import attempts

WATCH = """
import pynvml as n
n.nvmlInit()
handle = n.nvmlDeviceGetHandleByIndex(1)
calls = [lambda: n.nvmlDeviceGetUUID(handle)[:3], lambda: n.nvmlDeviceGetCount(),
         lambda: n.nvmlDeviceGetHandleByIndex(1) and 0, lambda: n.nvmlDeviceGetMinorNumber(
             n.nvmlDeviceGetHandleByIndex(0))]
def attempt(call):
    try: return call()
    except n.NVMLError as e: return -e.value
for line in sys.stdin:
    if line.strip() == "again": n.nvmlShutdown(); n.nvmlInit()
    answer(seen=[attempt(call) for call in calls])"""


@pytest.mark.parametrize(("gone", "anew"), [((), [LOST, 2, LOST, 0]), (("--gone",), [-2, 1, -2, 0])])
def test_a_lost_card_answers_lost_until_it_is_found(
    driver: Driver, gone: tuple[str, ...], anew: list[object]
) -> None:
    """Gone from the list too: for who starts NVML anew; its old handles answer as those of a lost one."""
    good = ["GPU", 2, 0, 0]
    with driver.spawn(*driver.client(WATCH), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None

        def look(word: str = "look") -> object:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(word + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["seen"]

        assert look() == good
        control(driver, "lose", "1", *gone)
        assert look() == [LOST, 2, LOST, 0]
        assert look("again") == anew
        control(driver, "find", "1")
        assert look("again") == good


def test_a_waiting_process_hears_of_the_loss(driver: Driver) -> None:
    """First the event that the driver could still send, then that a card of the set is lost."""
    with driver.spawn(*driver.client(LISTENER.replace("{types}", str(XID)))) as process:
        listener = Listener(process)
        control(driver, "xid", "1", "48")
        control(driver, "lose", "1")
        assert listener.next() in ([1, XID, 48, WHOLE_CARD, WHOLE_CARD], LOST)
        assert eventually(lambda: listener.next() == LOST)
        control(driver, "reset")
        control(driver, "xid", "1", "31")
        assert eventually(lambda: listener.next() == [1, XID, 31, WHOLE_CARD, WHOLE_CARD])


def test_the_instances_of_a_lost_card_are_lost(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("mig.ini")
    control(driver, "xid", THREE, "79")
    calls = {
        "card": "n.nvmlDeviceGetUUID(h(0))",
        "instance": f"n.nvmlDeviceGetHandleByUUID('{FIRST}') and 0",
        "unknown": "n.nvmlDeviceGetHandleByUUID('GPU-none') and 0",
        "other": "n.nvmlDeviceGetMinorNumber(h(1))",
    }
    assert attempts(driver, calls) == {"card": LOST, "instance": LOST, "unknown": LOST, "other": 1}
    control(driver, "find", CARD)
    assert attempts(driver, {"instance": f"n.nvmlDeviceGetHandleByUUID('{FIRST}') and 0"}) == {"instance": 0}


def test_cuda_does_not_list_a_lost_card(driver: Driver) -> None:
    control(driver, "lose", "0")
    code = (
        "start(); n, c = ctypes.create_string_buffer(64), ctypes.c_int(); cuda.cuDeviceGetName(n, 64, 0);"
        "cuda.cuDeviceGetCount(ctypes.byref(c)); answer(name=n.value.decode(), count=c.value)"
    )
    assert driver.cuda(code) == {"name": "NVIDIA A100-SXM4-80GB", "count": 1}


def test_running_processes_feel_the_loss(driver: Driver) -> None:
    code = """
start()
f = kernel()
stream = ctypes.c_void_p()
check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
answer(ready=True)
sys.stdin.readline()
answer(errors=[allocate(64)[0], launch(f, 1), launch(f, 1, stream), cuda.cuCtxSynchronize()])
sys.stdin.readline()
answer(errors=[allocate(64)[0], launch(f, 1, stream), cuda.cuCtxSynchronize()])"""
    with driver.spawn(*driver.client(code), stdin=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        for command, expected in (("lose", [999] * 4), ("find", [0] * 3)):
            control(driver, command, "0")
            process.stdin.write("\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["errors"] == expected
