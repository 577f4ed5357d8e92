# SPDX-License-Identifier: Apache-2.0
"""Multicast objects: no memory of their own, and what they keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.fakegpu.conftest import MI, Driver
from tests.integration.fakegpu.handles import HANDLES


@pytest.fixture
def joined(make_driver: Callable[[str], Driver]) -> Driver:
    """Cards of Hopper's generation, joined by NVLink: what multicast objects need."""
    return make_driver("eight-cards.ini")


MULTICAST = (
    HANDLES
    + """
class Multicast(ctypes.Structure):
    _fields_ = [("devices", u32), ("bytes", ctypes.c_size_t), ("handles", u64), ("flags", u64)]
def team(size, devices, handles=0):
    handle = u64()
    error = cuda.cuMulticastCreate(ctypes.byref(handle), ctypes.byref(Multicast(devices, size, handles, 0)))
    return error, handle
def bind(group, memory, offset=0, size=STEP):
    return cuda.cuMulticastBindMem(group, ctypes.c_size_t(offset), memory, ctypes.c_size_t(0),
        ctypes.c_size_t(size), u64(0))
def unbind(group, device, offset=0, size=STEP):
    return cuda.cuMulticastUnbind(group, device, ctypes.c_size_t(offset), ctypes.c_size_t(size))
"""
)


def test_multicast_takes_no_memory_and_keeps_what_is_bound(joined: Driver) -> None:
    code = """
start(0)
before = free_total()[0]
error, group = team(2 * STEP, 2)
taken = before - free_total()[0]
early = cuda.cuMulticastAddDevice(group, 0) or bind(group, create(STEP))
added = [cuda.cuMulticastAddDevice(group, device) for device in (1, 1, 2)]
memory = create(STEP)
errors = [bind(group, memory), bind(group, memory), bind(group, memory, STEP), bind(group, memory, 1)]
other = create(STEP, 2)
stranger = bind(group, other)
check(cuda.cuMemRelease(memory), "release")
kept = before - free_total()[0]
unbound = [unbind(group, 0), unbind(group, 0), unbind(group, 0, STEP)]
left = before - free_total()[0]
answer(error=error, taken=taken, early=early, added=added, errors=errors, stranger=stranger, kept=kept,
    unbound=unbound,
       left=left, released=[cuda.cuMemRelease(group), cuda.cuMemRelease(group)])
"""
    early = 2 * MI  # the first test of binding has left its memory
    assert joined.cuda(MULTICAST + code) == {
        "error": 0,
        "taken": 0,
        "early": 401,
        "added": [0, 1, 1],
        "errors": [0, 1, 0, 1],
        "stranger": 101,
        "kept": early + 2 * MI,
        "unbound": [0, 1, 0],
        "left": early,
        "released": [0, 1],
    }


def test_multicast_objects_are_mapped_and_go_with_what_they_hold(joined: Driver) -> None:
    code = """
start(0)
before = free_total()[0]
error, group = team(STEP, 1, handles=1)
check(cuda.cuMulticastAddDevice(group, 0), "add")
memory = create(STEP)
check(bind(group, memory), "bind")
check(cuda.cuMemRelease(memory), "release")
address, file, again = u64(), ctypes.c_int(), u64()
check(cuda.cuMemAddressReserve(ctypes.byref(address), ctypes.c_size_t(STEP), ctypes.c_size_t(0), u64(0),
    u64(0)), "reserve")
check(cuda.cuMemMap(address, ctypes.c_size_t(STEP), ctypes.c_size_t(0), group, u64(0)), "map")
check(cuda.cuMemExportToShareableHandle(ctypes.byref(file), group, 1, u64(0)), "export")
check(cuda.cuMemImportFromShareableHandle(ctypes.byref(again), ctypes.c_void_p(file.value), 1), "import")
imported = cuda.cuMulticastAddDevice(again, 1)
check(cuda.cuMemRelease(group), "release")
mapped = before - free_total()[0]
check(cuda.cuMemUnmap(address, ctypes.c_size_t(STEP)), "unmap")
answer(imported=imported, mapped=mapped, left=before - free_total()[0])
"""
    assert joined.cuda(MULTICAST + code) == {"imported": 0, "mapped": 2 * MI, "left": 0}


def test_multicast_needs_joined_cards(driver: Driver) -> None:
    code = """
start(0)
can = ctypes.c_int()
check(cuda.cuDeviceGetAttribute(ctypes.byref(can), 132, 0), "attribute")
answer(error=team(STEP, 1)[0], can=can.value)
"""
    assert driver.cuda(MULTICAST + code) == {"error": 801, "can": 0}
