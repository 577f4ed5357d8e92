# SPDX-License-Identifier: Apache-2.0
"""Green contexts: cards divided, and contexts on a part."""

from __future__ import annotations

from collections.abc import Callable

from tests.integration.fakegpu.conftest import INVENTORIES, MI, Driver

GREEN = """
u32 = ctypes.c_uint
class Resource(ctypes.Structure):
    _fields_ = [("type", u32), ("internal", ctypes.c_ubyte * 92), ("sms", u32), ("smallest", u32),
        ("alignment", u32),
                ("rest", ctypes.c_ubyte * 28), ("next", ctypes.c_void_p)]
def whole():
    found = Resource()
    check(cuda.cuDeviceGetDevResource(0, ctypes.byref(found), 1), "resource")
    return found
def split(groups, smallest, flags=0):
    parts, count, rest = (Resource * groups)(), u32(groups), Resource()
    error = cuda.cuDevSmResourceSplitByCount(parts, ctypes.byref(count), ctypes.byref(whole()),
        ctypes.byref(rest), flags, smallest)
    return error, [part.sms for part in parts[:count.value]], rest.sms, parts
def green(part):
    description, made = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuDevResourceGenerateDesc(ctypes.byref(description), ctypes.byref(part), 1), "describe")
    check(cuda.cuGreenCtxCreate(ctypes.byref(made), description, 0, 1), "create")
    return made
"""


def inventory(name: str, **driver: str) -> str:
    """An inventory with other values in its [driver] section."""
    values = "".join(f"{key} = {value}\n" for key, value in driver.items())
    lines = (INVENTORIES / name).read_text().splitlines(keepends=True)
    kept = [line for line in lines if line.split(" = ")[0] not in driver]
    return "".join(kept).replace("[driver]\n", f"[driver]\n{values}", 1)


def test_cards_are_divided_by_their_generation_s_rules(driver: Driver) -> None:
    """An Ada card: parts of at least 4 SMs, in steps of 2."""
    code = """
start()
count = u32()
check(cuda.cuDevSmResourceSplitByCount(None, ctypes.byref(count), ctypes.byref(whole()), None, 0, 8), "count")
answer(whole=whole().sms, count=count.value, size=ctypes.sizeof(Resource), even=split(2, 20)[:3],
    odd=split(2, 7)[:3],
       small=split(1, 1)[:3], many=split(1, 1000)[0])
"""
    found = driver.cuda(GREEN + code)
    sms = found["whole"]
    assert found == {
        "whole": sms,
        "count": sms // 8,
        "size": 144,
        "even": [0, [20, 20], sms - 40],
        "odd": [0, [8, 8], sms - 16],
        "small": [0, [4], sms - 4],
        "many": 1,
    }


def test_a_green_context_is_a_context(make_driver: Callable[[str], Driver]) -> None:
    """It retains the primary one, takes memory, runs kernels, and goes with all that it holds."""
    driver = make_driver(inventory("two-cards.ini", context="64Mi"))
    code = """
context = start()
before = free_total()[0]
made = green(split(1, 8)[3][0])
taken = before - free_total()[0]
inside, found, again, stream = (ctypes.c_void_p() for _ in range(4))
check(cuda.cuCtxFromGreenCtx(ctypes.byref(inside), made), "context")
check(cuda.cuGreenCtxStreamCreate(ctypes.byref(stream), made, 1, 0), "stream")
check(cuda.cuStreamGetGreenCtx(stream, ctypes.byref(found)), "of stream")
part = Resource()
check(cuda.cuStreamGetDevResource(stream, ctypes.byref(part), 1), "resource")
check(cuda.cuCtxSetCurrent(inside), "set current")
spin, event = kernel(), ctypes.c_void_p()
check(cuda.cuEventCreate(ctypes.byref(event), 0), "event")
check(launch(spin, 1, stream), "launch")
check(cuda.cuGreenCtxRecordEvent(made, event), "record")
pending = cuda.cuEventQuery(event)
check(cuda.cuEventSynchronize(event), "wait")
done = cuda.cuEventQuery(event)
error, address = allocate(1 << 20)
check(cuda.cuCtxSetCurrent(context), "set current")
direct = cuda.cuCtxDestroy_v2(inside)
check(cuda.cuDevicePrimaryCtxRelease_v2(0), "release")
active = ctypes.c_int()
check(cuda.cuDevicePrimaryCtxGetState(0, None, ctypes.byref(active)), "state")
check(cuda.cuGreenCtxDestroy(made), "destroy")
after = ctypes.c_int()
check(cuda.cuDevicePrimaryCtxGetState(0, None, ctypes.byref(after)), "state")
answer(taken=taken, own=found.value == made.value, sms=part.sms, pending=pending, done=done, error=error,
    direct=direct,
       retained=active.value, after=after.value, twice=cuda.cuGreenCtxDestroy(made))
"""
    assert driver.cuda(GREEN + code) == {
        "taken": 8 * MI,
        "own": True,
        "sms": 8,
        "pending": 600,
        "done": 0,
        "error": 0,
        "direct": 201,
        "retained": 1,
        "after": 0,
        "twice": 1,
    }
    assert driver.used() == 0
