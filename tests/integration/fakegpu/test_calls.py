# SPDX-License-Identifier: Apache-2.0
"""Contexts, modules, libraries and launches: results and errors are the driver's."""

from __future__ import annotations

import pytest

from tests.integration.fakegpu.conftest import Driver


def test_contexts_are_stacked_and_die_with_everything_in_them(driver: Driver) -> None:
    found = driver.cuda("""
check(cuda.cuInit(0))
none = [allocate(1)[0], cuda.cuCtxSynchronize()]
def make(device=0):
    context = ctypes.c_void_p()
    check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
    return context
def device():
    number = ctypes.c_int(-1)
    error = cuda.cuCtxGetDevice(ctypes.byref(number))
    return number.value if error == 0 else -error
def current():
    context = ctypes.c_void_p()
    check(cuda.cuCtxGetCurrent(ctypes.byref(context)))
    return context.value
first, second = make(0), make(1)
devices = [device()]
allocate(1 << 30)
stream = ctypes.c_void_p()
check(cuda.cuStreamCreate(ctypes.byref(stream), 0))
check(cuda.cuCtxPushCurrent_v2(first))
devices.append(device())
check(cuda.cuCtxDestroy_v2(second))
popped = ctypes.c_void_p()
check(cuda.cuCtxPopCurrent_v2(ctypes.byref(popped)))
dead = [-device(), allocate(1)[0], cuda.cuCtxDestroy_v2(second), cuda.cuStreamQuery(stream),
        cuda.cuCtxPushCurrent_v2(second)]
check(cuda.cuCtxSetCurrent(first))
primary = ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 1))
check(cuda.cuCtxSetCurrent(primary))
answer(none=none, devices=devices, popped=popped.value == first.value, dead=dead,
       same=current() == primary.value, free=free_total(),
       primary=cuda.cuCtxDestroy_v2(primary), missing=cuda.cuDevicePrimaryCtxRelease_v2(0),
       ordinal=cuda.cuDevicePrimaryCtxRetain(ctypes.byref(primary), 7))""")
    assert found["none"] == [201, 201]
    assert found["devices"] == [1, 0]
    assert found["popped"] is True
    assert found["dead"] == [709, 709, 201, 709, 709]
    assert found["same"] is True
    assert found["free"] == [80 << 30, 80 << 30]
    assert (found["primary"], found["missing"], found["ordinal"]) == (201, 201, 101)


def test_primary_contexts_are_counted(driver: Driver) -> None:
    found = driver.cuda("""
first, second = start(), start()
def state():
    flags, active = ctypes.c_uint(), ctypes.c_int()
    check(cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)))
    return active.value
allocate(1 << 20)
check(cuda.cuDevicePrimaryCtxRelease_v2(0))
once = state()
check(cuda.cuDevicePrimaryCtxRelease_v2(0))
twice, dead = state(), cuda.cuCtxSynchronize()
start(); allocate(1 << 20)
check(cuda.cuDevicePrimaryCtxReset_v2(0))
reset = state()
start()
answer(same=first.value == second.value, once=once, twice=twice, dead=dead, reset=reset,
       used=free_total()[1] - free_total()[0])""")
    assert found == {"same": True, "once": 1, "twice": 0, "dead": 709, "reset": 0, "used": 0}


def test_modules_offer_what_their_code_names(driver: Driver) -> None:
    found = driver.cuda("""
start()
module, function = ctypes.c_void_p(), ctypes.c_void_p()
check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
address, size = u64(), ctypes.c_size_t()
check(cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, b"table"))
value = ctypes.c_int()
kernel()
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"spin_ns"))
check(cuda.cuFuncGetAttribute(ctypes.byref(value), 0, function))
answer(size=size.value, threads=value.value,
       missing=cuda.cuModuleGetFunction(ctypes.byref(function), module, b"other"),
       variable=cuda.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, b"other"),
       image=cuda.cuModuleLoadData(ctypes.byref(module), b"hello, this is no code"),
       unload=[cuda.cuModuleUnload(module), cuda.cuModuleUnload(module)],
       file=cuda.cuModuleLoad(ctypes.byref(module), b"/nonexistent"))""")
    assert found == {
        "size": 64,
        "threads": 1024,
        "missing": 500,
        "variable": 500,
        "image": 200,
        "unload": [0, 400],
        "file": 301,
    }


def test_a_kernel_of_a_library_is_launched_like_a_function(driver: Driver) -> None:
    found = driver.cuda("""
check(cuda.cuInit(0))
library, spin, function, module = (ctypes.c_void_p() for _ in range(4))
check(cuda.cuLibraryLoadData(ctypes.byref(library), PTX, None, None, 0, None, None, 0))
check(cuda.cuLibraryGetKernel(ctypes.byref(spin), library, b"spin_ns"))
before = launch(spin, 1)
start()
check(launch(spin, 1))
check(cuda.cuKernelGetFunction(ctypes.byref(function), spin))
check(launch(function, 1))
check(cuda.cuLibraryGetModule(ctypes.byref(module), library))
count = ctypes.c_uint()
check(cuda.cuLibraryGetKernelCount(ctypes.byref(count), library))
check(cuda.cuLibraryUnload(library))
answer(before=before, count=count.value, after=launch(spin, 1), unload=cuda.cuModuleUnload(module))""")
    assert found == {"before": 201, "count": 1, "after": 400, "unload": 400}


@pytest.mark.parametrize(
    ("grid", "block", "error"),
    [
        ((1, 1, 1), (32, 1, 1), 0),
        ((65536, 1, 1), (1024, 1, 1), 0),
        ((0, 1, 1), (32, 1, 1), 1),
        ((1, 65536, 1), (32, 1, 1), 1),
        ((1, 1, 1), (1025, 1, 1), 1),
        ((1, 1, 1), (64, 32, 1), 1),
    ],
    ids=str,
)
def test_shapes(driver: Driver, grid: tuple[int, ...], block: tuple[int, ...], error: int) -> None:
    call = f"cuda.cuLaunchKernel(kernel(), *{grid}, *{block}, 0, None, params, None)"
    code = f"start(); params = (ctypes.c_void_p * 1)(ctypes.addressof(u64(0))); answer(error={call})"
    assert driver.cuda(code)["error"] == error


def test_cooperative_grids_must_fit_the_card(driver: Driver) -> None:
    found = driver.cuda("""
start()
f = kernel()
n = u64(1000)
params = (ctypes.c_void_p * 1)(ctypes.addressof(n))
errors = [cuda.cuLaunchCooperativeKernel(f, blocks, 1, 1, 32, 1, 1, 0, None, params)
          for blocks in (128, 128 * 16 + 1)]
answer(errors=errors)""")
    assert found["errors"] == [0, 720]


def test_the_ex_launch_and_packed_parameters(driver: Driver) -> None:
    found = driver.timed("""
start()
f = kernel()
class Config(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint) for n in "gx gy gz bx by bz shared".split()] + [
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint)]
config = Config(1, 1, 1, 32, 1, 1, 0, None, None, 0)
n, size = u64(30_000_000), ctypes.c_size_t(8)
extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(n), 2, ctypes.addressof(size), 0)
begin = time.monotonic()
check(cuda.cuLaunchKernelEx(ctypes.byref(config), f, None, extra))
check(cuda.cuCtxSynchronize())
answer(seconds=time.monotonic() - begin, null=cuda.cuLaunchKernelEx(None, f, None, None))""")
    assert found["seconds"] == pytest.approx(0.03, abs=0.001)
    assert found["null"] == 1


def test_error_names(driver: Driver) -> None:
    found = driver.cuda("""
out = ctypes.c_char_p()
names = {}
for code in (0, 2, 600, 999):
    check(cuda.cuGetErrorName(code, ctypes.byref(out)))
    names[code] = out.value.decode()
answer(names=names, unknown=cuda.cuGetErrorString(12345, ctypes.byref(out)), text=out.value)""")
    assert found["names"] == {
        "0": "CUDA_SUCCESS",
        "2": "CUDA_ERROR_OUT_OF_MEMORY",
        "600": "CUDA_ERROR_NOT_READY",
        "999": "CUDA_ERROR_UNKNOWN",
    }
    assert (found["unknown"], found["text"]) == (1, None)
