# SPDX-License-Identifier: Apache-2.0
"""Arguments that a program should not give: the answer is the driver's own, call by call, and nothing is
charged that the driver doesn't hold.

Every hooked function is called with nothing but zeros, and with an address of some zeros in one place or
several; before the driver is started, without a context, and with one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.interposer.bench import Bench
from tests.integration.interposer.test_reach import hooks

CALLS = """
import ctypes, json, os, sys
PLACES, SIZE = 10, 1 << 16
P, S, u64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
mmap = ctypes.CDLL(None).mmap
mmap.restype, mmap.argtypes = P, [P, S, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
# As low as can be, so that it is a harmless size as well; private, anonymous, at this address.
zeros = mmap(0x10000, SIZE, 3, 0x32, -1, 0)
assert zeros == 0x10000

def must(code): assert code == 0, code

def used():
    free, total = S(), S()
    code = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return -code if code else total.value - free.value

def arguments():
    yield [0] * PLACES
    for place in range(6):
        yield [zeros if place == other else 0 for other in range(PLACES)]
    for places in (2, 3, PLACES):
        yield [zeros] * places + [0] * (PLACES - places)
    yield [zeros, 0] + [zeros] * (PLACES - 2)
    yield [0] + [zeros] * (PLACES - 1)

def prepared(name, started, context):
    if name.startswith("nvml"):
        device = P()
        if started:
            must(nvml.nvmlInit_v2())
            must(nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)))
        return nvml[name], device.value or 0
    made = P()
    if started:
        must(cuda.cuInit(0))
    if context:
        must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0))
        must(cuda.cuCtxSetCurrent(made))
    return cuda[name], 0

def answers(name, *state):
    call, device = prepared(name, *state)
    call.argtypes = [u64] * PLACES
    for given in arguments():
        ctypes.memset(zeros, 0, SIZE)
        if device:
            given = [device, *given[:-1]]
        code = call(*given)
        written = any(ctypes.string_at(zeros, SIZE)) if code else None
        yield [code, written, used() if name.startswith("cu") and state[1] else None]

for name in sys.argv[1:]:
    for state in ((0, 0), (1, 0), (1, 1)):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            for answer in answers(name, *state):
                print(json.dumps([name, *state, *answer]), flush=True)
            os._exit(0)
        print(json.dumps([name, *state, "ended", os.waitpid(child, 0)[1]]))
"""


def answers(bench: Bench, names: list[str]) -> list[Any]:
    return [json.loads(line) for line in bench.python(CALLS, *names).splitlines()]


@pytest.mark.parametrize("library", ["cu", "nvml"])
def test_the_answer_is_the_drivers(make_bench: Callable[..., Bench], library: str) -> None:
    names = sorted(name for name in hooks() if name.startswith(library))
    bare, limited = make_bench("bare", preload=False), make_bench("limited")
    limited.grant(memory=20 << 30, cores=90)
    expected, found = answers(bare, names), answers(limited, names)
    assert [pair for pair in zip(found, expected, strict=True) if pair[0] != pair[1]] == []
    assert all(ended == 0 for *_, what, ended in expected if what == "ended")
    assert {code for *_, code, _, _ in expected} >= ({0, 1, 3, 201} if library == "cu" else {0, 1, 2})
    assert limited.held() == limited.usage().memory_bytes == 0
