# SPDX-License-Identifier: Apache-2.0
"""Calls with 32-bit addresses, multicast objects, sparse arrays, green contexts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.fakegpu.conftest import INVENTORIES, Driver

MI = 1 << 20

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
