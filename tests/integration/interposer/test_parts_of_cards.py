# SPDX-License-Identifier: Apache-2.0
"""Green contexts, and the calls of CUDA 2 with 32-bit addresses: charged is what the driver holds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.families import CUDA

CONTEXT = 64

PARTS = (
    CUDA
    + """
u32 = ctypes.c_uint
class Resource(ctypes.Structure):
    _fields_ = [("type", u32), ("internal", ctypes.c_ubyte * 92), ("sms", u32), ("rest", ctypes.c_ubyte * 44)]
def green():
    whole, part, count, description, made = Resource(), Resource(), u32(1), P(), P()
    must(cuda.cuDeviceGetDevResource(0, ref(whole), 1))
    must(cuda.cuDevSmResourceSplitByCount(ref(part), ref(count), ref(whole), None, 0, 8))
    must(cuda.cuDevResourceGenerateDesc(ref(description), ref(part), 1))
    return cuda.cuGreenCtxCreate(ref(made), description, 0, 1), made
def enter(made):
    context = P()
    must(cuda.cuCtxFromGreenCtx(ref(context), made))
    must(cuda.cuCtxSetCurrent(context))
def alloc32(bytes):
    address = u32()
    return cuda.cuMemAlloc(ref(address), u32(bytes)), address
out = {"errors": []}
def step(name): out[name] = used()
"""
)

STEPS = [
    pytest.param(
        """
use(0)
step("context")
error, made = green()
must(error)
step("green")
enter(made)
error, address = alloc(10 * MI)
step("allocated inside")
must(cuda.cuCtxSetCurrent(contexts[0]))
must(cuda.cuGreenCtxDestroy(made))
step("destroyed")
must(cuda.cuMemFree_v2(address))
step("freed")
""",
        {"green": CONTEXT // 8, "allocated inside": CONTEXT // 8 + 10, "destroyed": 10, "freed": 0},
        id="what-is-made-in-a-green-context-is-the-primary-one-s",
    ),
    pytest.param(
        """
error, made = green()
must(error)
enter(made)
error, address = alloc(10 * MI)
step("inside")
must(cuda.cuGreenCtxDestroy(made))
use(0)
step("anew")
""",
        {"anew": -CONTEXT // 8 - 10},
        id="the-last-green-context-ends-the-primary-one",
    ),
    pytest.param(
        """
error, made = green()
must(error)
use(0)
step("both")
must(cuda.cuGreenCtxDestroy(made))
step("destroyed")
error, made = green()
must(error)
step("again")
""",
        {"destroyed": -CONTEXT // 8, "again": 0},
        id="a-green-context-that-was-there-before-the-primary-one",
    ),
    pytest.param(
        """
use(0)
step("context")
error, first = alloc32(30 * MI)
must(error)
pitched, pitch = u32(), u32()
must(cuda.cuMemAllocPitch(ref(pitched), ref(pitch), u32(1000), u32(10 * 1024), u32(4)))
step("held")
must(cuda.cuMemFree(first))
step("one")
must(cuda.cuMemFree(pitched))
step("none")
""",
        {"held": 40, "one": 10, "none": 0},
        id="32-bit-addresses",
    ),
]


@pytest.mark.parametrize(("script", "expected"), STEPS)
def test_what_is_charged_is_what_the_driver_holds(
    make_bench: Callable[..., Bench], script: str, expected: dict[str, int]
) -> None:
    """In MiB more than at the first step. The bare card's figure is the driver's own."""
    for name, preload in (("bare", False), ("limited", True)):
        bench = make_bench(name, preload=preload, driver={"context": f"{CONTEXT}Mi"})
        bench.grant(memory=512 * MI)
        found: dict[str, Any] = json.loads(bench.python(PARTS + script + "\nprint(json.dumps(out))"))
        assert found.pop("errors") == []
        first = next(iter(found.values()))
        assert {step: held - first for step, held in list(found.items())[1:]} == expected, name
        assert bench.held() == 0


def test_a_green_context_beyond_the_share_is_refused(make_bench: Callable[..., Bench]) -> None:
    """The context alone fits; nothing of the refused one stays, and what fits still does."""
    bench = make_bench(driver={"context": f"{CONTEXT}Mi"})
    bench.grant(memory=(CONTEXT + 4) * MI)
    script = """
use(0)
before = used()
errors = [green()[0], green()[0], alloc(4 * MI)[0], alloc(MI)[0], alloc32(MI)[0]]
print(json.dumps([errors, used() - before]))
"""
    assert json.loads(bench.python(PARTS + script)) == [[2, 2, 0, 2, 2], 4]
    assert bench.high_water() <= (CONTEXT + 4) * MI


def test_32_bit_allocations_up_to_the_last_byte(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.grant(memory=64 * MI)
    script = """
use(0)
taken = []
for bytes in (40 * MI, 40 * MI, 24 * MI, 512): taken.append(alloc32(bytes)[0])
print(json.dumps(taken))
"""
    assert json.loads(bench.python(PARTS + script)) == [0, 2, 0, 2]
    assert bench.high_water() == 64 * MI
