# SPDX-License-Identifier: Apache-2.0
"""Sparse arrays and mipmaps, by their tiles."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import MI, Driver
from tests.integration.fakegpu.handles import HANDLES

SPARSE = (
    HANDLES
    + """
class Descriptor(ctypes.Structure):
    _fields_ = [("width", ctypes.c_size_t), ("height", ctypes.c_size_t), ("depth", ctypes.c_size_t),
        ("format", u32),
                ("channels", u32), ("flags", u32)]
class Level(ctypes.Structure):
    _fields_ = [(name, u32) for name in ("level", "layer", "x", "y", "z", "width", "height", "depth")]
class Map(ctypes.Structure):
    _fields_ = [("resource_type", u32), ("resource", ctypes.c_void_p), ("part", u32), ("pad", u32),
        ("level", Level), ("operation", u32),
                ("handle_type", u32), ("handle", u64), ("offset", u64), ("devices", u32), ("flags", u32),
                ("reserved", u32 * 2)]
def tile(array, x, operation, handle=0):
    info = Map(0, array.value, 0, 0, Level(0, 0, x, 0, 0, 128, 128, 1), operation, 0, handle, 0, 1)
    return cuda.cuMemMapArrayAsync(ctypes.byref(info), 1, None)
"""
)


def test_sparse_arrays_take_what_is_mapped(driver: Driver) -> None:
    code = """
start()
before, array = free_total()[0], ctypes.c_void_p()
check(cuda.cuArray3DCreate_v2(ctypes.byref(array), ctypes.byref(Descriptor(1024, 1024, 0, 0x20, 1, 0x40))),
    "array")
shape = (ctypes.c_uint * 12)()
check(cuda.cuArrayGetSparseProperties(ctypes.byref(shape), array), "properties")
own = before - free_total()[0]
memory = create(STEP, usage=1)
errors = [tile(array, 0, 1, memory.value), tile(array, 128, 1, memory.value), tile(array, 256, 2)]
wrong = tile(array, 0, 1, create(STEP).value)
check(cuda.cuMemRelease(memory), "release")
held = before - free_total()[0]
check(tile(array, 0, 2), "unmap")
one = before - free_total()[0]
check(cuda.cuArrayDestroy(array), "destroy")
answer(size=ctypes.sizeof(Map), own=own, shape=list(shape[:3]), errors=errors, wrong=wrong, held=held,
    one=one, left=before - free_total()[0])
"""
    left = 2 * MI  # the handle that was no tile pool
    assert driver.cuda(SPARSE + code) == {
        "size": 96,
        "own": 0,
        "shape": [128, 128, 1],
        "errors": [0, 0, 1],
        "wrong": 1,
        "held": left + 2 * MI,
        "one": left + 2 * MI,
        "left": left,
    }


def test_sparse_mipmaps_have_a_tail(driver: Driver) -> None:
    code = """
start()
mipmap = ctypes.c_void_p()
wish = Descriptor(1024, 1024, 0, 0x20, 1, 0x40)
check(cuda.cuMipmappedArrayCreate(ctypes.byref(mipmap), ctypes.byref(wish), 11), "mipmap")
class Found(ctypes.Structure):
    _fields_ = [("tile", u32 * 3), ("first", u32), ("tail", u64), ("flags", u32), ("reserved", u32 * 4)]
found, plain = Found(), ctypes.c_void_p()
check(cuda.cuMipmappedArrayGetSparseProperties(ctypes.byref(found), mipmap), "properties")
check(cuda.cuArray3DCreate_v2(ctypes.byref(plain), ctypes.byref(Descriptor(64, 64, 0, 0x20, 1, 0))), "array")
answer(first=found.first, tail=found.tail, flags=found.flags,
    plain=cuda.cuArrayGetSparseProperties(ctypes.byref(found), plain))
"""
    assert driver.cuda(SPARSE + code) == {"first": 4, "tail": 65536, "flags": 1, "plain": 1}
