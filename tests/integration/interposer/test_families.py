# SPDX-License-Identifier: Apache-2.0
"""Each family of memory through its whole life: what is held, what is charged, and that both are the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench

OUT_OF_MEMORY = 2
LIMIT = 300 * MI

CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
u64, P, S, I = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
MI = 1 << 20
def must(code): assert code == 0, code
def new(kind=u64): return kind()
def ref(value): return ctypes.byref(value)
must(cuda.cuInit(0))
contexts = []
def use(device):
    context = P()
    must(cuda.cuDevicePrimaryCtxRetain(ref(context), device))
    must(cuda.cuCtxSetCurrent(context))
    contexts.append(context)
def used():
    free, total = S(), S()
    must(cuda.cuMemGetInfo_v2(ref(free), ref(total)))
    return (total.value - free.value) // MI
def alloc(bytes):
    address = u64()
    return cuda.cuMemAlloc_v2(ref(address), S(bytes)), address
class Location(ctypes.Structure): _fields_ = [("type", I), ("id", I)]
class Handle(ctypes.Structure):
    _fields_ = [("type", I), ("shareable", I), ("location", Location), ("rest", u64 * 3)]
def create(bytes, device=0, place=1):
    handle, wanted = u64(), Handle(1, 1, Location(place, device))
    return cuda.cuMemCreate(ref(handle), S(bytes), ref(wanted), u64(0)), handle
def mapped(handle, bytes):
    address = u64()
    must(cuda.cuMemAddressReserve(ref(address), S(bytes), S(0), u64(0), u64(0)))
    must(cuda.cuMemMap(address, S(bytes), S(0), handle, u64(0)))
    return address
class Pool(ctypes.Structure):
    _fields_ = [("type", I), ("shareable", I), ("location", Location), ("rest", u64 * 9)]
def pool(keep, device=0):
    made, threshold = P(), u64(keep)
    must(cuda.cuMemPoolCreate(ref(made), ref(Pool(1, 0, Location(1, device)))))
    must(cuda.cuMemPoolSetAttribute(made, 4, ref(threshold)))
    return made
def alloc_from(pool, bytes):
    address = u64()
    return cuda.cuMemAllocFromPoolAsync(ref(address), S(bytes), pool, P()), address
class Node(ctypes.Structure):
    _fields_ = [("pool", Pool), ("accesses", P), ("count", S), ("bytes", S), ("address", u64)]
def allocating_graph(bytes, flags=0, times=1):
    graph, last, executable, addresses = P(), P(), P(), []
    must(cuda.cuGraphCreate(ref(graph), 0))
    for _ in range(times):
        node = Node(pool=Pool(1, 0, Location(1, 0)), bytes=bytes)
        before = ref(last) if last else None
        must(cuda.cuGraphAddMemAllocNode(ref(last), graph, before, S(bool(last)), ref(node)))
        addresses.append(node.address)
    must(cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(flags)))
    return executable, addresses
out = {}
"""


def run(bench: Bench, script: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench.python(CUDA + script + "\nprint(json.dumps(out))"))
    return found


def test_virtual_memory_is_held_by_handles_and_by_mappings(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
code, handle = create(100 * MI)
out["made"] = used()
address = mapped(handle, 100 * MI)
must(cuda.cuMemRelease(handle))
out["mapped_only"] = used()
again = u64()
must(cuda.cuMemRetainAllocationHandle(ref(again), P(address.value + 4096)))
must(cuda.cuMemUnmap(address, S(100 * MI)))
out["retained_only"] = used()
out["refused"] = create(202 * MI)[0]
must(cuda.cuMemRelease(again))
out["nothing"] = used()
out["unknown"] = cuda.cuMemRelease(u64(12345))
codes, held = [], []
for _ in range(4):
    code, handle = create(100 * MI)
    codes.append(code)
    if code == 0: held.append(handle)
out["codes"] = codes
base = u64()
must(cuda.cuMemAddressReserve(ref(base), S(300 * MI), S(0), u64(0), u64(0)))
for at, handle in enumerate(held):
    must(cuda.cuMemMap(u64(base.value + at * 100 * MI), S(100 * MI), S(0), handle, u64(0)))
    must(cuda.cuMemRelease(handle))
out["three"] = used()
must(cuda.cuMemUnmap(base, S(300 * MI)))
out["end"] = used()
""",
    )
    assert found == {
        "made": 100,
        "mapped_only": 100,
        "retained_only": 100,
        "refused": OUT_OF_MEMORY,
        "nothing": 0,
        "unknown": 1,
        "codes": [0, 0, 0, OUT_OF_MEMORY],
        "three": 300,
        "end": 0,
    }
    assert bench.high_water() == LIMIT


def test_virtual_memory_goes_by_its_location(bench: Bench) -> None:
    """Not by the context that is current; the host's is nobody's."""
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=4 * MI)
    found = run(
        bench,
        """
use(1); use(0)
out["codes"] = [create(4 * MI, device=1)[0], create(2 * MI, device=1)[0], create(512 * MI, place=2)[0]]
out["small"] = used()
must(cuda.cuCtxSetCurrent(contexts[0]))
out["large"] = used()
""",
    )
    assert found == {"codes": [0, OUT_OF_MEMORY, 0], "small": 0, "large": 4}
    assert [bench.high_water(0), bench.high_water(1)] == [0, 4 * MI]


def test_imports_are_the_exporters(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
code, handle = create(200 * MI)
file, imported = I(), u64()
must(cuda.cuMemExportToShareableHandle(ref(file), handle, 1, u64(0)))
must(cuda.cuMemImportFromShareableHandle(ref(imported), P(file.value), 1))
out["both"] = used()
address = mapped(imported, 200 * MI)
out["mapped"] = used()
must(cuda.cuMemUnmap(address, S(200 * MI)))
must(cuda.cuMemRelease(imported))
out["exporter"] = used()
must(cuda.cuMemRelease(handle))
out["nobody"] = used()
""",
    )
    assert found == {"both": 200, "mapped": 200, "exporter": 200, "nobody": 0}


IPC = """
import os, sys
ready, told = os.pipe(), os.pipe()
child = os.fork()
"""


def test_memory_opened_by_ipc_is_charged_once(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    script = CUDA.replace("must(cuda.cuInit(0))", IPC + "must(cuda.cuInit(0))")
    found = json.loads(
        bench.python(
            script
            + """
use(0)
class Token(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
token = Token()
if child != 0:
    code, address = alloc(200 * MI)
    must(cuda.cuIpcGetMemHandle(ref(token), address))
    os.write(told[1], bytes(token))
    out["opened"] = int(os.read(ready[0], 16))
    out["both"] = used()
    os.write(told[1], b"x")
    out["child"] = os.waitpid(child, 0)[1]
    must(cuda.cuMemFree_v2(address))
    out["end"] = used()
    print(json.dumps(out))
else:
    ctypes.memmove(ref(token), os.read(told[0], 64), 64)
    address = u64()
    cuda.cuIpcOpenMemHandle_v2.argtypes = [P, Token, ctypes.c_uint]
    must(cuda.cuIpcOpenMemHandle_v2(ref(address), token, 1))
    os.write(ready[1], str(used()).encode())
    os.read(told[0], 1)
    must(cuda.cuIpcCloseMemHandle(address))
    os._exit(0)
"""
        )
    )
    assert found == {"opened": 200, "both": 200, "child": 0, "end": 0}
    assert bench.high_water() == 200 * MI


def test_what_a_pool_keeps_is_charged_and_gives_way(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
keeping = pool(2**64 - 1)
code, address = alloc_from(keeping, 200 * MI)
must(cuda.cuMemFreeAsync(address, P()))
out["kept"] = used()
code, address = alloc_from(keeping, 150 * MI) # out of what is kept, though 350 would be too much
out["again"] = [code, used()]
code, second = alloc_from(keeping, 101 * MI) # 150 in use, 50 kept, 100 free: the 50 go first
out["second"] = [code, used(), alloc_from(keeping, 50 * MI)[0]]
must(cuda.cuMemFree_v2(second))
must(cuda.cuMemFreeAsync(address, P()))
out["all_kept"] = used()
code, plain = alloc(300 * MI) # the pool gives way to another kind
out["plain"] = [code, used()]
must(cuda.cuMemFree_v2(plain))
code, address = alloc_from(keeping, 64 * MI)
must(cuda.cuMemFreeAsync(address, P()))
must(cuda.cuMemPoolTrimTo(keeping, S(32 * MI)))
out["trimmed"] = used()
code, address = alloc_from(keeping, 64 * MI)
must(cuda.cuMemPoolDestroy(keeping))
out["destroyed"] = used()
must(cuda.cuMemFreeAsync(address, P()))
out["end"] = used()
""",
    )
    assert found == {
        "kept": 200,
        "again": [0, 200],
        "second": [0, 251, OUT_OF_MEMORY],
        "all_kept": 251,
        "plain": [0, 300],
        "trimmed": 32,
        "destroyed": 64,
        "end": 0,
    }
    assert bench.high_water() == LIMIT


def test_what_a_pool_gives_back_at_a_wait_is_another_processs(bench: Bench, roads: Path) -> None:
    """Whether the process that has waited ever calls again or not."""
    bench.grant(memory=LIMIT)
    holder = bench.start(
        sys.executable,
        "-c",
        CUDA
        + """
import sys
use(0)
address, event = u64(), P()
must(cuda.cuEventCreate(ref(event), 2))
stream, context = (cuda.cuStreamSynchronize, [P()]), (cuda.cuCtxSynchronize, [])
for wait, what in (stream, context, (cuda.cuEventSynchronize, [event])):
    must(cuda.cuMemAllocAsync(ref(address), S(200 * MI), P()))
    must(cuda.cuMemFreeAsync(address, P()))
    must(cuda.cuEventRecord(event, P()))
    must(wait(*what))
    print("waited", flush=True)
    sys.stdin.readline()
""",
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    for _ in range(3):
        assert holder.stdout.readline() == "waited\n"
        assert bench.usage().memory_bytes == 0
        assert bench.answer(roads, "link", "edge", "plain")["held"] == LIMIT
        holder.stdin.write("on\n")
        holder.stdin.flush()
    assert holder.wait(60) == 0


def test_a_device_takes_from_another_pool(bench: Bench) -> None:
    """Which pool an allocation comes from is remembered, until somebody changes it."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
def passing():
    address = u64()
    must(cuda.cuMemAllocAsync(ref(address), S(100 * MI), P()))
    must(cuda.cuMemFreeAsync(address, P()))
    return used()
default = P()
must(cuda.cuDeviceGetMemPool(ref(default), 0))
keeping, other = pool(2**64 - 1), pool(2**64 - 1)
out["default"] = passing()
must(cuda.cuDeviceSetMemPool(0, keeping))
out["keeping"] = passing()
place = Location(1, 0)
must(cuda.cuMemSetMemPool(ref(place), 1, other))
out["other"] = passing()
must(cuda.cuMemPoolDestroy(other))
out["destroyed"] = passing()
must(cuda.cuDeviceSetMemPool(0, default))
must(cuda.cuMemPoolTrimTo(keeping, S(0)))
out["default-again"] = passing()
""",
    )
    assert found == {"default": 0, "keeping": 100, "other": 200, "destroyed": 100, "default-again": 0}
    assert bench.high_water() == 200 * MI


def test_a_pool_of_another_card_is_charged_there(bench: Bench) -> None:
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=8 * MI)
    found = run(
        bench,
        """
use(1); use(0)
other = pool(0, device=1)
out["codes"] = [alloc_from(other, 8 * MI)[0], alloc_from(other, 512)[0]]
out["small"] = used()
must(cuda.cuCtxSetCurrent(contexts[0]))
out["large"] = used()
""",
    )
    assert found == {"codes": [0, OUT_OF_MEMORY], "small": 0, "large": 8}


def test_graphs_that_allocate(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
first, (address,) = allocating_graph(200 * MI)
out["instantiated"] = used()
must(cuda.cuGraphLaunch(first, P()))
out["launched"] = used()
second, _ = allocating_graph(101 * MI)
out["too_much"] = cuda.cuGraphLaunch(second, P())
must(cuda.cuMemFree_v2(u64(address)))
out["freed"] = used() # the graphs keep it
out["relaunched"] = [cuda.cuGraphLaunch(first, P()), used()]
must(cuda.cuMemFreeAsync(u64(address), P()))
out["other"] = [cuda.cuGraphLaunch(second, P()), used()]
""",
    )
    assert found == {
        "instantiated": 0,
        "launched": 200,
        "too_much": OUT_OF_MEMORY,
        "freed": 200,
        "relaunched": [0, 200],
        "other": [0, 200],
    }
    assert bench.high_water() <= LIMIT


def test_what_graphs_keep_gives_way(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
graph, (address,) = allocating_graph(200 * MI)
must(cuda.cuGraphLaunch(graph, P()))
must(cuda.cuMemFree_v2(u64(address)))
out["plain"] = [alloc(300 * MI)[0], used()]
out["launch"] = cuda.cuGraphLaunch(graph, P())
""",
    )
    assert found == {"plain": [0, 300], "launch": OUT_OF_MEMORY}


def test_a_graph_that_frees_on_launch_is_launched_again(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
graph, (address,) = allocating_graph(200 * MI, flags=1)
out["launches"] = [cuda.cuGraphLaunch(graph, P()) for _ in range(3)]
out["held"] = used()
must(cuda.cuMemFree_v2(u64(address)))
code, block = alloc(150 * MI) # what the graphs keep gives way
out["refused"] = [code, cuda.cuGraphLaunch(graph, P())]
must(cuda.cuMemFree_v2(block))
out["again"] = [cuda.cuGraphLaunch(graph, P()), cuda.cuGraphLaunch(graph, P()), used()]
""",
    )
    assert found == {"launches": [0, 0, 0], "held": 200, "refused": [0, OUT_OF_MEMORY], "again": [0, 0, 200]}
    assert bench.high_water() <= LIMIT


def test_a_captured_allocation_costs_nothing_before_the_launch(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
stream, graph, executable, address = P(), P(), P(), u64()
must(cuda.cuStreamCreate(ref(stream), 1))
must(cuda.cuStreamBeginCapture_v2(stream, 2))
must(cuda.cuMemAllocAsync(ref(address), S(200 * MI), stream))
must(cuda.cuMemFreeAsync(address, stream))
must(cuda.cuStreamEndCapture(stream, ref(graph)))
must(cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(0)))
out["captured"] = used()
out["launches"] = [cuda.cuGraphLaunch(executable, stream) for _ in range(3)]
out["kept"] = used()
must(cuda.cuDeviceGraphMemTrim(0))
out["trimmed"] = used()
code, block = alloc(200 * MI)
out["refused"] = cuda.cuGraphLaunch(executable, stream)
""",
    )
    assert found == {
        "captured": 0,
        "launches": [0, 0, 0],
        "kept": 200,
        "trimmed": 0,
        "refused": OUT_OF_MEMORY,
    }
    assert bench.high_water() == 200 * MI


def test_a_graph_needs_what_lives_at_the_same_time(bench: Bench) -> None:
    """One after the other in one place; side by side each in its own."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
stream, fork, event, address = P(), P(), P(), u64()
must(cuda.cuStreamCreate(ref(stream), 1))
must(cuda.cuStreamCreate(ref(fork), 1))
must(cuda.cuEventCreate(ref(event), 2))
def captured(record):
    graph, executable = P(), P()
    must(cuda.cuStreamBeginCapture_v2(stream, 2))
    record()
    must(cuda.cuStreamEndCapture(stream, ref(graph)))
    must(cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(0)))
    return executable
def passing(bytes, into):
    must(cuda.cuMemAllocAsync(ref(address), S(bytes), into))
    must(cuda.cuMemFreeAsync(address, into))
def chain():
    for size in (200, 100, 200, 50): passing(size * MI, stream)
def growing():
    for size in (50, 100, 200): passing(size * MI, stream)
def beside():
    must(cuda.cuEventRecord(event, stream))
    must(cuda.cuStreamWaitEvent(fork, event, 0))
    passing(160 * MI, stream)
    passing(160 * MI, fork)
    must(cuda.cuEventRecord(event, fork))
    must(cuda.cuStreamWaitEvent(stream, event, 0))
for name, record in (("chain", chain), ("growing", growing), ("beside", beside)):
    executable = captured(record)
    out[name] = [cuda.cuGraphLaunch(executable, stream), used()]
    must(cuda.cuDeviceGraphMemTrim(0))
""",
    )
    assert found["chain"] == [0, 200]
    assert found["growing"] == [OUT_OF_MEMORY, 0]  # none fits into the place of a smaller one
    assert found["beside"] == [OUT_OF_MEMORY, 0]
    assert bench.high_water() == 200 * MI


def test_contexts_and_modules_are_measured(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(driver={"context": "40Mi", "module": "6Mi"})
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        r"""
use(0)
out["first"] = used()
second, module, library, loaded = P(), P(), P(), P()
must(cuda.cuCtxCreate_v2(ref(second), 0, 0))
out["second"] = used()
image = b".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry spin_ns(.param .u64 n)\n{ ret; }\n"
must(cuda.cuModuleLoadData(ref(module), image))
out["module"] = used()
must(cuda.cuLibraryLoadData(ref(library), image, None, None, 0, None, None, 0))
out["library"] = used()
must(cuda.cuLibraryGetModule(ref(loaded), library))
must(cuda.cuLibraryGetModule(ref(loaded), library))
out["loaded"] = used()
code, block = alloc(208 * MI)
out["full"] = [code, used(), alloc(512)[0]]
must(cuda.cuLibraryUnload(library))
out["unloaded"] = used()
must(cuda.cuCtxDestroy_v2(second)) # and its module with it, and the block
must(cuda.cuCtxSetCurrent(contexts[0]))
out["destroyed"] = used()
out["too_much"] = [alloc(230 * MI)[0], cuda.cuCtxCreate_v2(ref(second), 0, 0), used()]
must(cuda.cuCtxSetCurrent(contexts[0]))
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
use(0)
out["end"] = used()
""",
    )
    assert found == {
        "first": 40,
        "second": 80,
        "module": 86,
        "library": 86,
        "loaded": 92,
        "full": [0, 300, OUT_OF_MEMORY],
        "unloaded": 294,
        "destroyed": 40,
        "too_much": [0, OUT_OF_MEMORY, 270],
        "end": 40,
    }
    assert bench.high_water() <= LIMIT


def test_contexts_of_many_processes_fit_or_are_refused(make_bench: Callable[..., Bench], roads: Path) -> None:
    """Once the first has been measured, the limit holds to the byte whoever starts when."""
    bench = make_bench(driver={"context": "40Mi"})
    limit = 210 * MI
    bench.grant(memory=limit)
    assert bench.answer(roads, "link", "edge", "plain")["held"] == 170 * MI
    processes = [bench.start(roads, "gpa2", "fill", str(50 * MI)) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    assert bench.usage().memory_bytes == bench.held() <= limit
    assert bench.high_water() <= limit
    assert all(
        process.context_bytes == 40 * MI for process in bench.usage().processes if process.memory_bytes
    )


def test_a_context_of_another_card_is_charged_there(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    found = run(bench, "use(0)\nout['small'] = used()\nuse(1)\nout['large'] = used()\n")
    assert found == {"small": 40, "large": 40}
