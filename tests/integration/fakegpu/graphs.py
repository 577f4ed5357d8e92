# SPDX-License-Identifier: Apache-2.0
"""What Python clients that make graphs begin with."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import Driver

GRAPHS = """
P, S, U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
class Kernel(ctypes.Structure):
    _fields_ = [("function", P)] + [(n, U) for n in "gx gy gz bx by bz shared".split()] + [
        ("params", P), ("extra", P), ("kernel", P), ("context", P)]
class Fill(ctypes.Structure):
    _fields_ = [("target", u64), ("pitch", S), ("value", U), ("cell", U), ("width", S), ("height", S)]
class Host(ctypes.Structure): _fields_ = [("function", P), ("data", P)]
class Pool(ctypes.Structure):
    _fields_ = [("kind", U), ("handles", U), ("where", U), ("id", ctypes.c_int), ("security", P), ("most", S),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]
class Alloc(ctypes.Structure):
    _fields_ = [("pool", Pool), ("accesses", P), ("count", S), ("bytes", S), ("address", u64)]
def graph():
    made = P()
    check(cuda.cuGraphCreate(ctypes.byref(made), 0), "create")
    return made
def add(kind, g, needs, *more, want=0):
    node = P()
    array = (P * len(needs))(*needs) if needs else None
    error = getattr(cuda, f"cuGraphAdd{kind}Node")(ctypes.byref(node), g, array, S(len(needs)), *more)
    check(error != want and error, kind)
    return node if error == 0 else error
def kernel_params(function, milliseconds):
    n = u64(int(milliseconds * 1e6))
    params = (P * 1)(ctypes.addressof(n))
    k = Kernel(function, 1, 1, 1, 32, 1, 1, 0, ctypes.addressof(params), None, None, None)
    k.keep = n, params
    return k
def add_kernel(g, needs, function, milliseconds):
    k = kernel_params(function, milliseconds)
    node = P()
    array = (P * len(needs))(*needs) if needs else None
    outs = ctypes.byref(node), g, array, S(len(needs)), ctypes.byref(k)
    check(cuda.cuGraphAddKernelNode_v2(*outs), "kernel")
    return node
def add_alloc(g, needs, size, device=0):
    a = Alloc(pool=Pool(1, 0, 1, device), bytes=size)
    node = add("MemAlloc", g, needs, ctypes.byref(a))
    return node, a.address
def instantiate(g, flags=0):
    made = P()
    error = cuda.cuGraphInstantiateWithFlags(ctypes.byref(made), g, u64(flags))
    return made if error == 0 else error
def nodes(g):
    count = S()
    check(cuda.cuGraphGetNodes(g, None, ctypes.byref(count)))
    found = (P * count.value)()
    check(cuda.cuGraphGetNodes(g, found, ctypes.byref(count)))
    return list(found)
def kinds(g):
    out = []
    for node in nodes(g):
        kind = U()
        check(cuda.cuGraphNodeGetType(P(node), ctypes.byref(kind)))
        out.append(kind.value)
    return out
def edges(g):
    place = {node: index for index, node in enumerate(nodes(g))}
    count = S()
    check(cuda.cuGraphGetEdges(g, None, None, ctypes.byref(count)))
    a, b = (P * count.value)(), (P * count.value)()
    check(cuda.cuGraphGetEdges(g, a, b, ctypes.byref(count)))
    return sorted([place[x], place[y]] for x, y in zip(a, b))
def stream(flags=1):
    made = P()
    check(cuda.cuStreamCreate(ctypes.byref(made), flags))
    return made
def event(flags=0):
    made = P()
    check(cuda.cuEventCreate(ctypes.byref(made), flags))
    return made
def begin(s, mode=0): return cuda.cuStreamBeginCapture_v2(s, mode)
def end(s):
    g = P()
    error = cuda.cuStreamEndCapture(s, ctypes.byref(g))
    return g if error == 0 else error
def status(s):
    found = U()
    error = cuda.cuStreamIsCapturing(s, ctypes.byref(found))
    return found.value if error == 0 else -error
def took(action):
    start_ns = time.monotonic()
    check(action(), "run"); check(cuda.cuCtxSynchronize(), "synchronize")
    return (time.monotonic() - start_ns) * 1000
def used(): free, total = free_total(); return total - free
def pool():
    out = []
    for number in range(4):
        value = u64()
        check(cuda.cuDeviceGetGraphMemAttribute(0, number, ctypes.byref(value)))
        out.append(value.value >> 20)
    return out
MIB = 1 << 20
start()
f = kernel()
"""


def graphs(driver: Driver, code: str) -> dict[str, object]:
    found: dict[str, object] = driver.timed(GRAPHS + code)
    return found
