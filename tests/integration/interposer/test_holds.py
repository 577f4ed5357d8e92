# SPDX-License-Identifier: Apache-2.0
"""Memory by handle that something else than a handle or a mapping holds: sparse arrays, multicast objects.

What is charged is what the driver holds, at every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.families import CUDA

LIMIT = 300 * MI
HOPPER = "GPU-7a1c40f2-91d3-4e05-8b6a-d0c2e4f61801"
NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", *(f"nvidia{index}" for index in range(8)))

HOLDS = (
    CUDA
    + """
u32, STEP = ctypes.c_uint, 2 * MI
class Whole(ctypes.Structure):
    _fields_ = [("type", I), ("shareable", I), ("location", Location), ("metadata", P),
                ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]
def memory(bytes=STEP, usage=0):
    handle, wish = u64(), Whole(1, 0, Location(1, 0), None, 0, 0, usage)
    must(cuda.cuMemCreate(ref(handle), S(bytes), ref(wish), u64(0)))
    return handle
def step(name): out[name] = used() // 2
"""
)

SPARSE = """
use(0)
class Array(ctypes.Structure):
    _fields_ = [("width", S), ("height", S), ("depth", S), ("format", u32), ("channels", u32), ("flags", u32)]
class Map(ctypes.Structure):
    _fields_ = [("resource_type", u32), ("resource", P), ("kind", u32), ("pad", u32), ("part", u32 * 8),
                ("operation", u32), ("handle_type", u32), ("handle", u64), ("offset", u64), ("devices", u32),
                ("flags", u32), ("reserved", u32 * 2)]
def change(array, operation, x, width=128, handle=0):
    part = (u32 * 8)(0, 0, x, 0, 0, width, 128, 1)
    return cuda.cuMemMapArrayAsync(ref(Map(0, array.value, 0, 0, part, operation, 0, handle, 0, 1)), 1, None)
def array():
    made = P()
    must(cuda.cuArray3DCreate_v2(ref(made), ref(Array(1024, 1024, 0, 0x20, 1, 0x40))))
    return made
"""

MULTICAST = """
class Team(ctypes.Structure):
    _fields_ = [("devices", u32), ("bytes", S), ("handles", u64), ("flags", u64)]
def team(size=4 * STEP):
    handle = u64()
    must(cuda.cuMulticastCreate(ref(handle), ref(Team(1, size, 0, 0))))
    must(cuda.cuMulticastAddDevice(handle, 0))
    return handle
def bind(group, handle, offset=0):
    must(cuda.cuMulticastBindMem(group, S(offset), handle, S(0), S(STEP), u64(0)))
"""

CASES = [
    pytest.param(
        SPARSE
        + """
sparse = array()
step("an-array")
first, second = memory(2 * STEP, usage=1), memory(usage=1)
must(change(sparse, 1, 0, 128, first.value))
must(change(sparse, 1, 128, 128, first.value))
must(change(sparse, 1, 256, 128, second.value))
for handle in (first, second): must(cuda.cuMemRelease(handle))
step("mapped")
must(change(sparse, 2, 0, 128))
step("a-half-unmapped")
must(change(sparse, 2, 128, 128))
step("all-of-the-first")
must(cuda.cuArrayDestroy(sparse))
step("destroyed")
""",
        {"an-array": 0, "mapped": 3, "a-half-unmapped": 3, "all-of-the-first": 1, "destroyed": 0},
        id="a-sparse-array",
    ),
    pytest.param(
        SPARSE
        + """
sparse = array()
old, new = memory(usage=1), memory(usage=1)
must(change(sparse, 1, 0, 128, old.value))
must(cuda.cuMemRelease(old))
must(change(sparse, 1, 0, 128, new.value))
must(cuda.cuMemRelease(new))
step("mapped-anew")
must(change(sparse, 2, 0, 128))
step("unmapped")
kept = memory(usage=1)
must(change(sparse, 1, 0, 128, kept.value))
must(change(sparse, 2, 0, 128))
step("the-handle-is-left")
must(cuda.cuMemRelease(kept))
step("end")
""",
        {"mapped-anew": 1, "unmapped": 0, "the-handle-is-left": 1, "end": 0},
        id="a-sparse-array-mapped-anew",
    ),
    pytest.param(
        MULTICAST
        + """
use(0)
group, first, second = team(), memory(), memory()
step("two-handles")
bind(group, first)
bind(group, second, STEP)
for handle in (first, second): must(cuda.cuMemRelease(handle))
step("bound")
must(cuda.cuMulticastUnbind(group, 0, S(0), S(STEP)))
step("one-unbound")
must(cuda.cuMemRelease(group))
step("released")
""",
        {"two-handles": 2, "bound": 2, "one-unbound": 1, "released": 0},
        id="a-multicast-object",
    ),
    pytest.param(
        MULTICAST
        + """
use(0)
group, held = team(STEP), memory()
bind(group, held)
must(cuda.cuMemRelease(held))
address = mapped(group, STEP)
must(cuda.cuMemRelease(group))
step("mapped")
must(cuda.cuMemUnmap(address, S(STEP)))
step("unmapped")
""",
        {"mapped": 1, "unmapped": 0},
        id="a-mapped-multicast-object",
    ),
]

BY_ADDRESS = """
use(0)
group, held = team(STEP), memory()
address = mapped(held, STEP)
must(cuda.cuMulticastBindAddr(group, S(0), address, S(STEP), u64(0)))
must(cuda.cuMemUnmap(address, S(STEP)))
must(cuda.cuMemRelease(held))
step("bound")
must(cuda.cuMulticastUnbind(group, 0, S(0), S(STEP)))
step("unbound")
"""


@pytest.mark.parametrize(("script", "expected"), CASES)
def test_what_is_charged_is_what_the_driver_holds(
    make_bench: Callable[..., Bench], script: str, expected: dict[str, int]
) -> None:
    """In units of 2 MiB. Bare and limited alike: the bare card's figure is the driver's own."""
    found: dict[str, Any] = {}
    for name, preload in (("bare", False), ("limited", True)):
        bench = make_bench(name, cards="eight-cards.ini", nodes=NODES, preload=preload)
        bench.grant(uuid=HOPPER, memory=LIMIT)
        found[name] = json.loads(bench.python(HOLDS + script + "\nprint(json.dumps(out))"))
        assert bench.held() == 0
    taken = next(iter(found["bare"].values())) - next(iter(expected.values()))
    assert {step: units - taken for step, units in found["bare"].items()} == expected
    assert found["limited"] == expected


def test_what_is_bound_by_its_address_is_charged_until_it_is_unbound(
    make_bench: Callable[..., Bench],
) -> None:
    """Whether the driver holds it so long no manual says: charged is what it may hold."""
    bench = make_bench(cards="eight-cards.ini", nodes=NODES)
    bench.grant(uuid=HOPPER, memory=LIMIT)
    found = json.loads(bench.python(HOLDS + MULTICAST + BY_ADDRESS + "\nprint(json.dumps(out))"))
    assert found == {"bound": 1, "unbound": 0}
