# SPDX-License-Identifier: Apache-2.0
"""Each spelling of what takes memory of a card is charged, and refused by error 2 where there is no room.

A case makes 60 MiB by one symbol of the hooks' table: an allocation, a graph that allocates, a module, or
another context.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.families import CUDA, OUT_OF_MEMORY
from tests.integration.interposer.test_reach import TABLES

LIMIT = 160 * MI
"""A context, one case, and less than another one."""
DRIVER = {"cuda": "13.5", "context": "60Mi", "module": "60Mi"}

ELSEWHERE = {
    "cuDevicePrimaryCtxRetain|cuGreenCtxCreate|cuCtxAttach": "test_contexts, test_parts_of_cards",
    "cuGraphUpload": "test_graph_memory",
    "cuMem(Map|RetainAllocationHandle)": "test_virtual_memory",
    "cuMemMapArrayAsync|cuMulticast.*": "test_holds",
    "cuMemPoolCreate|cu(Mem|Device)(Get|GetDefault|Set)MemPool": "test_pools; nothing is taken by them",
    "cu(Ctx|DevicePrimaryCtx|GreenCtx)(Destroy|Detach|Release|Reset)": "they give back",
    "cuModuleGetFunction|cuFuncLoad|cuCtxSetLimit|cuLibraryGet(Global|Managed)": (
        "measured as cuLibraryGetModule is; the fake driver takes nothing for them"
    ),
}
"""Symbols (whole, without versions) that have no case here, and why."""

CASES = (
    CUDA
    + """
import sys, tempfile
u32, SIZE = ctypes.c_uint, 60 * MI
def structure(number, *names, last=()):
    fields = [(name, number) for name in names] + [("format", I), ("channels", u32), *last]
    return type("Shape", (ctypes.Structure,), {"_fields_": fields})
def flat(number): return ref(structure(number, "width", "height")(128, SIZE // 2048, 0x20, 4))
def deep(number):
    kind = structure(number, "width", "height", "depth", last=[("flags", u32)])
    return ref(kind(128, 8, SIZE // 16384, 0x20, 4, 0))
use(0)
default, pitches = P(), (u32(), S())
must(cuda.cuDeviceGetDefaultMemPool(ref(default), 0))
file = tempfile.NamedTemporaryFile()
file.write(image)
file.flush()
def out_of_stream(made):
    must(cuda.cuMemFreeAsync(made, P()))
    must(cuda.cuCtxSynchronize())

def makes(kind, end, *rest):
    def case(symbol):
        made = kind()
        return cuda[symbol](ref(made), *rest), lambda: end(made)
    return case
def library(first_use):
    def case(symbol):
        made, none = P(), (None, None, 0, None, None, 0)
        from_file = symbol == "cuLibraryLoadFromFile"
        what = cuda.cuLibraryLoadFromFile if from_file else cuda.cuLibraryLoadData
        must(what(ref(made), file.name.encode() if from_file else image, *none))
        return first_use(made), lambda: must(cuda.cuLibraryUnload(made))
    return case
def its_function(made):
    kernel = P()
    must(cuda.cuLibraryGetKernel(ref(kernel), made, b"spin_ns"))
    return cuda.cuKernelGetFunction(ref(P()), kernel)

class AnyNode(ctypes.Structure):
    _fields_ = [("type", I), ("reserved", I * 3), ("node", Node), ("rest", u64 * 16)]
def added(symbol, graph):
    node, wish = P(), Node(pool=Pool(1, 0, Location(1, 0)), bytes=SIZE)
    edges = [None] if symbol in ("cuGraphAddNode_v2", "cuGraphAddNode_v3") else []
    if "AddNode" in symbol:
        must(cuda[symbol](ref(node), graph, None, *edges, S(0), ref(AnyNode(type=10, node=wish))))
    else:
        must(cuda.cuGraphAddMemAllocNode(ref(node), graph, None, S(0), ref(wish)))
    must(cuda.cuGraphMemAllocNodeGetParams(node, ref(wish)))
    return wish.address
def instantiated(symbol, graph):
    ready, old, flags = P(), (None, None, S(0)), u64(0)
    rest = {"cuGraphInstantiate": old, "cuGraphInstantiate_v2": old, "cuGraphInstantiateWithFlags": (flags,)}
    chosen = symbol if "Instantiate" in symbol else "cuGraphInstantiateWithFlags"
    must(cuda[chosen](ref(ready), graph, *rest.get(chosen, [ref((u64 * 8)())])))
    return ready
def graph(symbol):
    graph = P()
    must(cuda.cuGraphCreate(ref(graph), 0))
    address = added(symbol, graph)
    ready = instantiated(symbol, graph)
    code = cuda.cuGraphLaunch(ready, P())
    def undo():
        if code == 0: must(cuda.cuMemFree_v2(u64(address)))
        must(cuda.cuGraphExecDestroy(ready))
        must(cuda.cuGraphDestroy(graph))
        must(cuda.cuDeviceGraphMemTrim(0))
    return code, undo

def ends(symbol): return lambda made: must(cuda[symbol](made))
old, freed, unloaded = ends("cuMemFree"), ends("cuMemFree_v2"), ends("cuModuleUnload")
destroyed, ended = ends("cuArrayDestroy"), ends("cuCtxDestroy_v2")
in_stream = makes(u64, out_of_stream, S(SIZE), P())
in_pool = makes(u64, out_of_stream, S(SIZE), default, P())
cases = {
    "cuMemAlloc": makes(u32, old, u32(SIZE)),
    "cuMemAlloc_v2": makes(u64, freed, S(SIZE)),
    "cuMemAllocPitch": makes(u32, old, ref(pitches[0]), u32(512), u32(SIZE // 512), u32(4)),
    "cuMemAllocPitch_v2": makes(u64, freed, ref(pitches[1]), S(512), S(SIZE // 512), u32(4)),
    "cuMemAllocManaged": makes(u64, freed, S(SIZE), u32(1)),
    "cuMemAllocAsync": in_stream, "cuMemAllocAsync_ptsz": in_stream,
    "cuMemAllocFromPoolAsync": in_pool, "cuMemAllocFromPoolAsync_ptsz": in_pool,
    "cuMemCreate": makes(u64, ends("cuMemRelease"), S(SIZE), ref(Handle(1, 1, Location(1, 0))), u64(0)),
    "cuArrayCreate": makes(P, destroyed, flat(u32)), "cuArrayCreate_v2": makes(P, destroyed, flat(S)),
    "cuArray3DCreate": makes(P, destroyed, deep(u32)), "cuArray3DCreate_v2": makes(P, destroyed, deep(S)),
    "cuMipmappedArrayCreate": makes(P, ends("cuMipmappedArrayDestroy"), deep(S), u32(1)),
    "cuCtxCreate": makes(P, ended, u32(0), 0), "cuCtxCreate_v2": makes(P, ended, u32(0), 0),
    "cuCtxCreate_v3": makes(P, ended, None, 0, u32(0), 0), "cuCtxCreate_v4": makes(P, ended, None, u32(0), 0),
    "cuModuleLoad": makes(P, unloaded, file.name.encode()), "cuModuleLoadData": makes(P, unloaded, image),
    "cuModuleLoadDataEx": makes(P, unloaded, image, 0, None, None),
    "cuModuleLoadFatBinary": makes(P, unloaded, image),
    "cuKernelGetFunction": library(its_function),
}
its_module = library(lambda made: cuda.cuLibraryGetModule(ref(P()), made))
cases |= {name: its_module for name in ("cuLibraryLoadData", "cuLibraryLoadFromFile", "cuLibraryGetModule")}

def tried(symbol):
    case = cases.get(symbol, graph)
    before = used()
    first, undo = case(symbol)
    held = used() - before
    second, undo_second = case(symbol)
    if second == 0 or symbol.startswith(("cuGraph", "cuLibrary", "cuKernel")): undo_second()
    after = used() - before
    undo()
    must(cuda.cuCtxSetCurrent(contexts[0]))
    return [first, held, second, after, used() - before]

print(json.dumps({symbol: tried(symbol) for symbol in sys.argv[1:]}))
"""
)


def rows() -> list[str]:
    """The symbols that take memory, but for those of other tests."""
    text = "".join(path.read_text() for path in TABLES)
    found = re.findall(r'^CUDA_HOOK\((\w+),\s*"(\w+)", \d+, [01], (?:CHARGE|CONTEXT),', text, re.MULTILINE)
    bases = {base for _, base in found}
    assert [names for names in ELSEWHERE if not any(re.fullmatch(names, base) for base in bases)] == []
    return [symbol for symbol, base in found if not any(re.fullmatch(names, base) for names in ELSEWHERE)]


@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_it_is_charged_and_refused(make_bench: Callable[..., Bench], shim: bool) -> None:
    """Held by the driver, and shown as held; after the refusal no more is, and in the end nothing."""
    symbols = rows()
    bare, limited = (
        make_bench("bare", preload=False, driver=DRIVER),
        make_bench("limited", shim=shim, driver=DRIVER),
    )
    limited.grant(memory=LIMIT)
    expected, found = (json.loads(bench.python(CASES, *symbols)) for bench in (bare, limited))
    assert expected == {symbol: [0, 60, 0, 60, 0] for symbol in symbols}
    assert found == {symbol: [0, 60, OUT_OF_MEMORY, 60, 0] for symbol in symbols}
    assert limited.usage().memory_bytes == limited.held() == 0
