# SPDX-License-Identifier: Apache-2.0
"""Families with few functions: from registered host memory and linking to core dumps and logs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.fakegpu.conftest import Driver, hopper

MORE = """
P, S, U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
context = start()
f = kernel()
def stream(flags=1):
    made = P()
    check(cuda.cuStreamCreate(ctypes.byref(made), flags))
    return made
def took(action):
    begin = time.monotonic()
    check(action(), "run"); check(cuda.cuCtxSynchronize(), "synchronize")
    return (time.monotonic() - begin) * 1000
"""


def more(driver: Driver, code: str) -> dict[str, object]:
    found: dict[str, object] = driver.timed(MORE + code)
    return found


def test_registered_host_memory_is_known(driver: Driver) -> None:
    found = more(
        driver,
        """
import mmap
own = mmap.mmap(-1, 8192)
base = ctypes.addressof(ctypes.c_char.from_buffer(own))
errors = [cuda.cuMemHostRegister_v2(P(base), S(8192), 0), cuda.cuMemHostRegister_v2(P(base + 4096), S(10), 0),
          cuda.cuMemHostRegister_v2(None, S(10), 0), cuda.cuMemHostUnregister(P(base + 1))]
kind, device = U(), u64()
check(cuda.cuPointerGetAttribute(ctypes.byref(kind), 2, u64(base + 100)))
check(cuda.cuMemHostGetDevicePointer_v2(ctypes.byref(device), P(base), 0))
errors.append(cuda.cuMemFreeHost(P(base)))
_, memory = allocate(16)
own[0:3] = b"abc"
check(cuda.cuMemcpyDtoD_v2(memory, device, S(3)))
errors += [cuda.cuMemHostUnregister(P(base)), cuda.cuMemHostUnregister(P(base))]
answer(errors=errors, kind=kind.value, same=device.value == base,
       after=cuda.cuPointerGetAttribute(ctypes.byref(kind), 2, u64(base)))""",
    )
    assert found == {"errors": [0, 712, 1, 713, 1, 0, 713], "kind": 1, "same": True, "after": 1}


def test_code_is_linked_from_parts(driver: Driver) -> None:
    found = more(
        driver,
        """
other = b".version 6.0\\n.target sm_50\\n.visible .entry second() { ret; }\\n"
link, code, size, module, function, count = P(), P(), S(), P(), P(), U()
check(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link)))
early = cuda.cuLinkComplete(link, ctypes.byref(code), ctypes.byref(size))
for part in (PTX, other): check(cuda.cuLinkAddData_v2(link, 1, part, S(len(part)), b"part", 0, None, None))
missing = cuda.cuLinkAddFile_v2(link, 1, b"/nonexistent", 0, None, None)
check(cuda.cuLinkComplete(link, ctypes.byref(code), ctypes.byref(size)))
check(cuda.cuModuleLoadData(ctypes.byref(module), code)); check(cuda.cuLinkDestroy(link))
check(cuda.cuModuleGetFunctionCount(ctypes.byref(count), module))
functions, name, names = (P * count.value)(), ctypes.c_char_p(), []
check(cuda.cuModuleEnumerateFunctions(functions, count, module))
for one in functions:
    check(cuda.cuFuncGetName(ctypes.byref(name), P(one)))
    names.append(name.value.decode())
answer(early=early, missing=missing, names=names, gone=cuda.cuLinkDestroy(link),
       launch=cuda.cuLaunchKernel(P(functions[1]), 1, 1, 1, 32, 1, 1, 0, None, None, None))""",
    )
    assert found == {"early": 1, "missing": 301, "names": ["spin_ns", "second"], "gone": 400, "launch": 0}


def test_old_and_many_device_launches_take_their_time(driver: Driver) -> None:
    found = more(
        driver,
        """
n = u64(20_000_000)
check(cuda.cuFuncSetBlockShape(f, 32, 1, 1)); check(cuda.cuFuncSetSharedSize(f, 128))
check(cuda.cuParamSetv(f, 0, ctypes.byref(n), 8)); check(cuda.cuParamSetSize(f, 8))
times = [took(lambda: cuda.cuLaunch(f)), took(lambda: cuda.cuLaunchGrid(f, 4, 4))]
class Launch(ctypes.Structure):
    _fields_ = [("f", P)] + [(x, U) for x in "gx gy gz bx by bz shared".split()] + [
        ("stream", P), ("params", P)]
params = (P * 1)(ctypes.addressof(n))
one = Launch(f, 1, 1, 1, 32, 1, 1, 0, stream(), ctypes.cast(params, P))
times.append(took(lambda: cuda.cuLaunchCooperativeKernelMultiDevice(ctypes.byref(one), 1, 0)))
one.stream = None
answer(times=times, default=cuda.cuLaunchCooperativeKernelMultiDevice(ctypes.byref(one), 1, 0),
       shape=cuda.cuFuncSetBlockShape(f, 0, 1, 1), grid=cuda.cuLaunchGrid(f, 0, 1))""",
    )
    times = found.pop("times")
    assert isinstance(times, list)
    assert times == pytest.approx([20] * 3, abs=1)
    assert found == {"default": 1, "shape": 1, "grid": 1}


def test_streams_write_words_and_wait_for_them(driver: Driver) -> None:
    found = driver.cuda(
        MORE
        + """
import threading
happened = []
_, memory = allocate(64)
check(cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), S(64)))
one, two = stream(), stream()
def later():
    check(cuda.cuCtxSetCurrent(context))
    time.sleep(0.5)
    happened.append("writes")
    check(cuda.cuStreamWriteValue32_v2(one, memory, 5, 0))
thread = threading.Thread(target=later)
thread.start()
check(cuda.cuStreamWaitValue32_v2(two, memory, 5, 0))
happened.append("has waited")
thread.join()
kinds = (4, 0), (5, 1), (4, 2), (2, 3)
ready = [cuda.cuStreamWaitValue32_v2(two, memory, value, kind) for value, kind in kinds]
check(cuda.cuStreamWriteValue64_v2(one, u64(memory.value + 8), u64(1 << 40), 0))
ready.append(cuda.cuStreamWaitValue64_v2(one, u64(memory.value + 8), u64(1 << 40), 1))
errors = [cuda.cuStreamWriteValue32_v2(one, u64(memory.value + 1), 5, 0),
          cuda.cuStreamWaitValue32_v2(one, memory, 5, 9), cuda.cuStreamWriteValue32_v2(one, u64(0), 5, 0)]
answer(happened=happened, ready=ready, errors=errors)""",
    )
    assert found == {"happened": ["writes", "has waited"], "ready": [0] * 5, "errors": [1, 1, 1]}


def test_a_batch_copies_all_its_pairs(driver: Driver) -> None:
    found = more(
        driver,
        """
_, a = allocate(64)
_, b = allocate(64)
check(cuda.cuMemcpyHtoD_v2(a, b"abcdefgh", S(8)))
targets, sources = (u64 * 2)(b.value, b.value + 4), (u64 * 2)(a.value + 4, a.value)
sizes, places, failed, s = (S * 2)(4, 4), (S * 1)(0), S(), stream()
attributes = ctypes.create_string_buffer(64)
more_ = attributes, places, S(1)
error = cuda.cuMemcpyBatchAsync(targets, sources, sizes, S(2), *more_, ctypes.byref(failed), s)
text = ctypes.create_string_buffer(8)
check(cuda.cuMemcpyDtoH_v2(text, b, S(8)))
answer(error=error, text=text.raw.decode(),
       legacy=cuda.cuMemcpyBatchAsync_v2(targets, sources, sizes, S(2), *more_, None),
       none=cuda.cuMemcpyBatchAsync_v2(targets, sources, sizes, S(0), *more_, s))""",
    )
    assert found == {"error": 0, "text": "efghabcd", "legacy": 1, "none": 1}


def test_peers_are_those_with_a_link(make_driver: Callable[[str], Driver]) -> None:
    found = more(
        make_driver("four-cards.ini"),
        """
others = []
for device in (1, 2):
    other = P()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(other), device)); others.append(other)
near, far = others
value = ctypes.c_int()
access = []
for peer in (1, 2):
    check(cuda.cuDeviceGetP2PAttribute(ctypes.byref(value), 2, 0, peer)); access.append(value.value)
answer(access=access, near=[cuda.cuCtxEnablePeerAccess(near, 0), cuda.cuCtxEnablePeerAccess(near, 0),
       cuda.cuCtxDisablePeerAccess(near), cuda.cuCtxDisablePeerAccess(near)],
       far=cuda.cuCtxEnablePeerAccess(far, 0), own=cuda.cuCtxEnablePeerAccess(context, 0))""",
    )
    assert found == {"access": [1, 0], "near": [0, 704, 0, 705], "far": 217, "own": 201}


def test_questions_have_sane_answers(driver: Driver) -> None:
    found = more(
        driver,
        """
value, size, pool, same = ctypes.c_int(7), S(), P(), P()
class Location(ctypes.Structure): _fields_ = [("type", U), ("id", ctypes.c_int)]
check(cuda.cuFuncIsLoaded(ctypes.byref(value), f))
loaded = value.value
check(cuda.cuMemGetDefaultMemPool(ctypes.byref(pool), ctypes.byref(Location(1, 0)), 1))
check(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(same), 0))
managed = u64()
check(cuda.cuMemAllocManaged(ctypes.byref(managed), S(4096), 1))
mostly, place = ctypes.c_int(9), ctypes.c_int(9)
check(cuda.cuMemRangeGetAttribute(ctypes.byref(mostly), S(4), 1, managed, S(4096)))
check(cuda.cuMemRangeGetAttribute(ctypes.byref(place), S(4), 2, managed, S(4096)))
attribute = ctypes.create_string_buffer(64)
s = P()
check(cuda.cuStreamCreateWithPriority(ctypes.byref(s), 1, -3))
check(cuda.cuStreamGetAttribute(s, 8, attribute))
answer(loaded=loaded, pool=pool.value == same.value, host=cuda.cuMemGetMemPool(ctypes.byref(pool),
       ctypes.byref(Location(2, 0)), 1), range=[mostly.value, place.value],
       priority=ctypes.c_int.from_buffer(attribute).value, luid=cuda.cuDeviceGetLuid(None, None, 0),
       profiler=[cuda.cuProfilerStart(), cuda.cuProfilerStop(), cuda.cuProfilerInitialize(None, None, 0)],
       param=cuda.cuFuncGetParamInfo(f, S(0), ctypes.byref(size), None))""",
    )
    assert found == {
        "loaded": 1,
        "pool": True,
        "host": 801,
        "range": [0, -2],
        "priority": -3,
        "luid": 801,
        "profiler": [0, 0, 801],
        "param": 1,
    }


def test_core_dumps_have_settings(driver: Driver) -> None:
    code = """
S = ctypes.c_size_t
cuda.cuInit(0)
def get(attribute, call="cuCoredumpGetAttributeGlobal"):
    value, size = ctypes.create_string_buffer(1024), S(1024)
    return getattr(cuda, call)(attribute, value, ctypes.byref(size)), value.raw[:size.value].decode()
def put(attribute, value, call="cuCoredumpSetAttributeGlobal"):
    return getattr(cuda, call)(attribute, value, ctypes.byref(S(len(value))))
before = [get(attribute) for attribute in (1, 2, 5)]
no_context = get(1, "cuCoredumpGetAttribute")[0]
start()
errors = [put(1, b"\\1"), put(1, b"\\1\\0"), put(5, b"dump.%p\\0"), put(8, b"1"), put(5, b"x",
    "cuCoredumpSetAttribute")]
answer(before=before, no_context=no_context, errors=errors, after=[get(1), get(5, "cuCoredumpGetAttribute")])
"""
    assert driver.cuda(code) == {
        "before": [[0, "\0"], [0, "\1"], [0, "core_%t_%h_%p\0"]],
        "no_context": 201,
        "errors": [0, 1, 0, 1, 800],
        "after": [[0, "\1"], [0, "dump.%p\0"]],
    }


def test_nothing_is_logged(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = f"""
start()
place, buffer, size = ctypes.c_uint(9), ctypes.create_string_buffer(b"old", 8), ctypes.c_size_t(8)
errors = [cuda.cuLogsCurrent(ctypes.byref(place), 0), cuda.cuLogsDumpToFile(None, {str(path).encode()!r}, 0),
          cuda.cuLogsDumpToMemory(None, buffer, ctypes.byref(size), 0), cuda.cuLogsDumpToFile(None,
          b"/none/log", 0)]
answer(errors=errors, place=place.value, text=buffer.value.decode(), size=size.value)
"""
    assert driver.cuda(code) == {"errors": [0, 0, 0, 304], "place": 0, "text": "", "size": 0}
    assert path.read_bytes() == b""


def test_atomic_operations_reach_over_nvlink(make_driver: Callable[[str], Driver]) -> None:
    code = """
start()
found, wish = (ctypes.c_uint * 2)(9, 9), (ctypes.c_uint * 2)(0, 9)
host = cuda.cuDeviceGetHostAtomicCapabilities(found, wish, 2, 0), list(found)
peer = cuda.cuDeviceGetP2PAtomicCapabilities(found, wish, 2, 0, 1), list(found)
unknown = cuda.cuDeviceGetHostAtomicCapabilities(found, (ctypes.c_uint * 1)(13), 1, 0)
newest = [cuda.cuDeviceGetAttribute(ctypes.byref(ctypes.c_int()), number, 0) for number in (143, 148, 150)]
answer(host=host, peer=peer, unknown=unknown, newest=newest)
"""
    expected = {"host": [0, [0, 0]], "peer": [0, [63, 63]], "unknown": 1}
    for version, newest in (("12.8", [0, 1, 1]), ("13.5", [0, 0, 1])):
        driver = hopper(make_driver, cuda=version)
        assert driver.cuda(code) == expected | {"newest": newest}
