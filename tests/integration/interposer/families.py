# SPDX-License-Identifier: Apache-2.0
"""A Python program's beginning for tests of memory: the driver by ctypes, and a call for each family."""

from __future__ import annotations

import json
from typing import Any

from tests.integration.interposer.bench import MI, Bench

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
image = (b".version 8.0\\n.target sm_52\\n.address_size 64\\n"
         b".visible .entry spin_ns(.param .u64 n)\\n{ ret; }\\n")
def kernel():
    module, function = P(), P()
    must(cuda.cuModuleLoadData(ref(module), image))
    must(cuda.cuModuleGetFunction(ref(function), module, b"spin_ns"))
    return function
def launch(function, nanoseconds):
    duration = u64(nanoseconds)
    arguments = (P * 1)(ctypes.cast(ref(duration), P))
    must(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, P(), arguments, None))
out = {}
"""


def run(bench: Bench, script: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bench.python(CUDA + script + "\nprint(json.dumps(out))"))
    return found
