# SPDX-License-Identifier: Apache-2.0
"""Memory: the exact edge on every road, what others see of it, and what the dead leave behind."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, Driver

MIB = 1 << 20


@pytest.mark.parametrize("road", ["plain", "async", "pool", "pitch"])
@pytest.mark.parametrize(("device", "memory"), [(0, 24 * GIB), (1, 80 * GIB)], ids=["24Gi", "80Gi"])
def test_every_road_ends_at_the_last_byte(driver: Driver, road: str, device: int, memory: int) -> None:
    found = driver.json("cuda-alloc", "--device", str(device), "--road", road, "--block", "512Mi")
    assert found["held_bytes"] == memory
    assert found["refusal"] == "CUDA_ERROR_OUT_OF_MEMORY"
    assert found["refused_bytes"] == 1
    assert (found["free_bytes"], found["total_bytes"]) == (0, memory)


def test_managed_memory_goes_on_in_the_host_where_the_card_is_full(driver: Driver) -> None:
    found = driver.json("cuda-alloc", "--road", "managed", "--block", "1Gi", "--total", "30Gi")
    assert found["held_bytes"] == 30 * GIB
    assert found["refusal"] is None
    assert found["free_bytes"] == 0


def test_a_total_is_not_exceeded(driver: Driver) -> None:
    found = driver.json("cuda-alloc", "--total", "3000Mi")
    assert found["held_bytes"] == 3000 * MIB
    assert found["refusal"] is None
    assert found["free_bytes"] == 24 * GIB - 3000 * MIB


def test_the_host_sees_what_a_process_holds(driver: Driver) -> None:
    command = [str(program("cuda-alloc")), "--total", "3Gi", "--hold", "30", "--json", "--device", "1"]
    with driver.spawn(*command) as holder:
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline())["held_bytes"] == 3 * GIB
        assert driver.used(1) == 3 * GIB
        assert driver.used(0) == 0
        processes = driver.nvml(
            "[(p.pid, p.usedGpuMemory) for p in "
            "n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(1))]"
        )
        assert processes == [[holder.pid, 3 * GIB]]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert driver.used(1) == 0


def test_a_killed_holders_memory_serves_the_next_allocation(driver: Driver) -> None:
    with driver.spawn(program("cuda-alloc"), "--hold", "30", "--json") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert driver.json("cuda-alloc", "--total", "1")["refusal"] == "CUDA_ERROR_OUT_OF_MEMORY"
        holder.kill()
        holder.wait()
        assert driver.json("cuda-alloc")["held_bytes"] == 24 * GIB


def test_two_processes_share_one_card_exactly(driver: Driver) -> None:
    with driver.spawn(program("cuda-alloc"), "--total", "10Gi", "--hold", "30", "--json") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert driver.json("cuda-alloc")["held_bytes"] == 14 * GIB


def test_freed_memory_is_free_and_unknown_pointers_are_refused(driver: Driver) -> None:
    found = driver.cuda("""
start()
_, plain = allocate(1 << 20)
_, pooled = allocate(1 << 20, "cuMemAllocAsync", None)
_, crossed = allocate(1 << 20, "cuMemAllocAsync", None)
_, other = allocate(1 << 20)
before = free_total()
answer(
    before=before[1] - before[0],
    inner=cuda.cuMemFree_v2(u64(plain.value + 512)),
    freed=[cuda.cuMemFree_v2(plain), cuda.cuMemFreeAsync(pooled, None),
           cuda.cuMemFree_v2(crossed), cuda.cuMemFreeAsync(other, None)],
    again=cuda.cuMemFree_v2(plain),
    unknown=cuda.cuMemFree_v2(u64(0x1234)),
    null=cuda.cuMemFree_v2(u64(0)),
    zero=allocate(0)[0],
    after=free_total()[1] - free_total()[0],
)""")
    assert found == {
        "before": 4 * MIB,
        "inner": 1,
        "freed": [0, 0, 0, 0],
        "again": 1,
        "unknown": 1,
        "null": 0,
        "zero": 1,
        "after": 0,
    }


def test_copies_move_bytes_through_the_card(driver: Driver) -> None:
    found = driver.cuda("""
start()
_, first = allocate(24 << 30)
check(cuda.cuMemFree_v2(first))
_, a = allocate(1000)
_, b = allocate(8 << 30)
text = b"through the card"
check(cuda.cuMemsetD8_v2(a, ctypes.c_ubyte(7), ctypes.c_size_t(1000)))
check(cuda.cuMemcpyHtoD_v2(a, text, ctypes.c_size_t(len(text))))
check(cuda.cuMemcpyDtoD_v2(u64(b.value + (8 << 30) - 32), a, ctypes.c_size_t(32)))
back = ctypes.create_string_buffer(32)
check(cuda.cuMemcpyDtoHAsync_v2(back, u64(b.value + (8 << 30) - 32), ctypes.c_size_t(32), None))
_, managed = allocate(4096, "cuMemAllocManaged", 1)
ctypes.memset(managed.value, 1, 4096)
answer(
    back=back.raw.hex(),
    beyond=cuda.cuMemcpyHtoD_v2(u64(a.value + 999), text, ctypes.c_size_t(2)),
    nowhere=cuda.cuMemcpyHtoD_v2(u64(0x300000000000), text, ctypes.c_size_t(2)),
)""")
    assert bytes.fromhex(found["back"]) == b"through the card" + b"\x07" * 16
    assert (found["beyond"], found["nowhere"]) == (1, 1)


def test_pool_keeps_memory_up_to_its_threshold(driver: Driver) -> None:
    found = driver.cuda("""
start()
pool = ctypes.c_void_p()
check(cuda.cuDeviceGetDefaultMemPool(ctypes.byref(pool), 0))
def attribute(number):
    value = u64()
    check(cuda.cuMemPoolGetAttribute(pool, number, ctypes.byref(value)))
    return value.value
threshold = u64(1 << 20)
check(cuda.cuMemPoolSetAttribute(pool, 4, ctypes.byref(threshold)))
_, address = allocate(4 << 20, "cuMemAllocAsync", None)
used = [attribute(5), attribute(7)]
check(cuda.cuMemFreeAsync(address, None))
kept = [attribute(5), attribute(6), attribute(7), attribute(8)]
held = free_total()[1] - free_total()[0]
_, rest = allocate((24 << 30) - (1 << 20))
everything = allocate(1 << 20)[0]
answer(used=used, kept=kept, held=held, everything=everything, left=free_total()[0])""")
    assert found["used"] == [4 * MIB, 4 * MIB]
    assert found["kept"] == [MIB, 4 * MIB, 0, 4 * MIB]
    assert found["held"] == MIB
    assert (found["everything"], found["left"]) == (0, 0)  # what the pool kept was given up for it


def test_contexts_and_modules_take_what_the_inventory_says(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver(
        "[driver]\nversion = 570.124.06\ncontext = 300Mi\nmodule = 2Mi\ngranularity = 2Mi\n"
        "[card]\nname = small\nuuid = GPU-00000000-0000-0000-0000-000000000001\nmemory = 1Gi\nsms = 1\n"
        "compute_capability = 8.0\npci = 0000:01:00.0\n"
    )
    found = driver.cuda("""
start()
context = free_total()[0]
kernel()
module = free_total()[0]
allocate(1)
byte = free_total()[0]
check(cuda.cuDevicePrimaryCtxRelease_v2(0))
more = [ctypes.c_void_p() for _ in range(4)]
errors = [cuda.cuCtxCreate_v2(ctypes.byref(c), 0, 0) for c in more]
answer(context=context, module=module, byte=byte, errors=errors)""")
    assert found["context"] == (1024 - 300) * MIB
    assert found["module"] == found["context"] - 2 * MIB
    assert found["byte"] == found["module"] - 2 * MIB
    assert found["errors"] == [0, 0, 0, 2]


def test_pointer_attributes_answer_for_every_pointer(driver: Driver) -> None:
    found = driver.cuda("""
start()
def attributes(address):
    outs = [u64(0xdead), ctypes.c_uint(0xdead), u64(0xdead), u64(0xdead), ctypes.c_int(99), ctypes.c_int(99)]
    numbers = (ctypes.c_uint * 6)(1, 2, 3, 4, 8, 9)
    data = (ctypes.c_void_p * 6)(*[ctypes.addressof(o) for o in outs])
    check(cuda.cuPointerGetAttributes(6, numbers, data, u64(address)))
    return [o.value for o in outs][1:]
_, device = allocate(100)
_, managed = allocate(100, "cuMemAllocManaged", 1)
host = ctypes.c_void_p()
check(cuda.cuMemHostAlloc(ctypes.byref(host), ctypes.c_size_t(100), 0))
local = ctypes.create_string_buffer(10)
base, size = u64(), ctypes.c_size_t()
check(cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), u64(device.value + 50)))
answer(device=[a - device.value if a > 99 else a for a in attributes(device.value + 10)],
       managed=[a - managed.value if a > 99 else a for a in attributes(managed.value)],
       host=[a - host.value if a > 99 else a for a in attributes(host.value)],
       unknown=attributes(ctypes.addressof(local)), base=base.value == device.value, size=size.value,
       single=cuda.cuPointerGetAttribute(ctypes.byref(base), 2, u64(ctypes.addressof(local))))""")
    assert found["device"] == [2, 10, 0, 0, 0]
    assert found["managed"] == [2, 0, 0, 1, 0]
    assert found["host"] == [1, 0, 0, 0, 0]
    assert found["unknown"] == [0, 0, 0, 0, -2]
    assert (found["base"], found["size"], found["single"]) == (True, 100, 1)
