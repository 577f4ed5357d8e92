# SPDX-License-Identifier: Apache-2.0
"""What Python clients that make memory by handle begin with."""

from __future__ import annotations

# Handles of memory; 2 MiB is what everything virtual is counted in.
HANDLES = """
u32 = ctypes.c_uint
STEP = 2 << 20
class Properties(ctypes.Structure):
    _fields_ = [("type", u32), ("handles", u32), ("place", u32), ("id", ctypes.c_int), ("windows", u64),
                ("compression", ctypes.c_ubyte), ("rdma", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("rest", ctypes.c_ubyte * 4)]
def create(size, device=0, usage=0, handles=0):
    handle, wish = u64(), Properties(1, handles, 1, device, 0, 0, 0, usage)
    check(cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(wish), u64(0)), "create")
    return handle
"""
