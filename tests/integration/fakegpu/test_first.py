# SPDX-License-Identifier: Apache-2.0
"""Calls of CUDA 2, with addresses and sizes of 32 bits."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import MI, Driver


def test_32_bit_calls_take_memory_below_4_gib(driver: Driver) -> None:
    code = """
start()
before, (whole, most) = free_total(), (ctypes.c_uint(), ctypes.c_uint())
u32, address, pitch = ctypes.c_uint, ctypes.c_uint(), ctypes.c_uint()
check(cuda.cuMemAlloc(ctypes.byref(address), u32(3 << 20)), "alloc")
check(cuda.cuMemAllocPitch(ctypes.byref(pitched := u32()), ctypes.byref(pitch), u32(1000), u32(10), u32(4)),
    "pitch")
held = before[0] - free_total()[0]
host = ctypes.create_string_buffer(b"0123456789abcdef", 16)
back = ctypes.create_string_buffer(16)
check(cuda.cuMemcpyHtoD(address, host, u32(16)), "copy")
check(cuda.cuMemcpyDtoD(pitched, address, u32(16)), "copy")
check(cuda.cuMemsetD8(pitched, 120, u32(4)), "fill")
check(cuda.cuMemcpyDtoH(back, pitched, u32(16)), "copy")
base, size = u32(), u32()
check(cuda.cuMemGetAddressRange(ctypes.byref(base), ctypes.byref(size), u32(address.value + 5)), "range")
check(cuda.cuMemGetInfo(ctypes.byref(whole), ctypes.byref(most)), "info")
too_much = cuda.cuMemAlloc(ctypes.byref(u32()), u32(0xffffffff))
for each in (address, pitched): check(cuda.cuMemFree(each), "free")
answer(held=held, pitch=pitch.value, back=back.raw.decode(), base=base.value == address.value,
    size=size.value,
       info=[whole.value, most.value], too_much=too_much, again=cuda.cuMemFree(address),
       left=before[0] - free_total()[0])
"""
    assert driver.cuda(code) == {
        "held": 3 * MI + 10 * 1024,
        "pitch": 1024,
        "back": "xxxx456789abcdef",
        "base": True,
        "size": 3 * MI,
        "info": [0xFFFFFFFF, 0xFFFFFFFF],  # 24 GiB don't fit
        "too_much": 2,
        "again": 1,
        "left": 0,
    }


def test_32_bit_calls_go_with_their_context(driver: Driver) -> None:
    code = """
check(cuda.cuInit(0), "init")
context, address = ctypes.c_void_p(), ctypes.c_uint()
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0), "context")
check(cuda.cuMemAlloc(ctypes.byref(address), ctypes.c_uint(1 << 20)), "alloc")
check(cuda.cuCtxDestroy_v2(context), "destroy")
start()
free, total = free_total()
answer(free=free)
"""
    empty = "start()\nfree, total = free_total()\nanswer(free=free)"
    assert driver.cuda(code) == driver.cuda(empty)
