# SPDX-License-Identifier: Apache-2.0
"""Graphs: nodes and their order, memory nodes, launches; made by calls and by stream capture."""

from __future__ import annotations

import pytest

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


# --- made by calls ----------------------------------------------------------------------------------------


def test_a_graph_runs_its_nodes_in_the_order_of_their_needs(driver: Driver) -> None:
    found = graphs(
        driver,
        """
heard = []
CALL = ctypes.CFUNCTYPE(None, P)
calls = [CALL(lambda _, n=n: heard.append(n)) for n in range(3)]
hosts = [Host(ctypes.cast(call, P), None) for call in calls]
_, memory = allocate(64)
g = graph()
last = add("Host", g, [], ctypes.byref(hosts[2]))
middle = add("Host", g, [], ctypes.byref(hosts[1]))
first = add("Host", g, [], ctypes.byref(hosts[0]))
fill = Fill(memory.value, 0, 0x61, 1, 8, 1)
filled = add("Memset", g, [first], ctypes.byref(fill), None)
work = add_kernel(g, [filled], f, 30)
pairs = (P * 2)(work, middle), (P * 2)(middle, last)
check(cuda.cuGraphAddDependencies(g, *pairs, S(2)))
again = cuda.cuGraphAddDependencies(g, *pairs, S(1))
e = instantiate(g)
milliseconds = took(lambda: cuda.cuGraphLaunch(e, None))
text = ctypes.create_string_buffer(9)
check(cuda.cuMemcpyDtoH_v2(text, memory, S(8)))
answer(heard=heard, kinds=kinds(g), edges=edges(g), milliseconds=milliseconds, again=again,
       text=text.value.decode())""",
    )
    assert found.pop("milliseconds") == pytest.approx(30, abs=1)
    assert found == {
        "heard": [0, 1, 2],
        "kinds": [3, 3, 3, 2, 0],
        "edges": [[1, 0], [2, 3], [3, 4], [4, 1]],
        "text": "aaaaaaaa",
        "again": 1,
    }


def test_circles_and_strange_nodes_are_refused(driver: Driver) -> None:
    found = graphs(
        driver,
        """
g, other = graph(), graph()
a, b = add("Empty", g, []), add("Empty", g, [])
strange = add("Empty", other, [])
check(cuda.cuGraphAddDependencies(g, (P * 2)(a, b), (P * 2)(b, a), S(2)))
errors = [instantiate(g), add("Empty", g, [strange], want=1), add("Empty", g, [a, a], want=0) and 0]
check(cuda.cuGraphRemoveDependencies(g, (P * 1)(a), (P * 1)(b), S(1)))
removed = cuda.cuGraphRemoveDependencies(g, (P * 1)(a), (P * 1)(b), S(1))
e = instantiate(g)
check(cuda.cuGraphDestroyNode(a)); check(cuda.cuGraphDestroy(g))
answer(errors=errors, removed=removed, launch=cuda.cuGraphLaunch(e, None), count=len(nodes(other)),
       gone=[cuda.cuGraphDestroy(g), cuda.cuGraphExecDestroy(e), cuda.cuGraphExecDestroy(e),
             cuda.cuGraphLaunch(e, None)])""",
    )
    assert found == {"errors": [1, 1, 0], "removed": 1, "launch": 0, "count": 1, "gone": [1, 0, 1, 1]}


def test_kernels_can_be_changed_switched_off_and_copied(driver: Driver) -> None:
    found = graphs(
        driver,
        """
g = graph()
node = add_kernel(g, [], f, 20)
child = P()
parent = graph()
check(cuda.cuGraphAddChildGraphNode(ctypes.byref(child), parent, None, S(0), g))
check(cuda.cuGraphAddChildGraphNode(ctypes.byref(child), parent, (P * 1)(child), S(1), g))
e, twice = instantiate(g), instantiate(parent)
times = [took(lambda: cuda.cuGraphLaunch(x, None)) for x in (e, twice)]
k = kernel_params(f, 60)
check(cuda.cuGraphExecKernelNodeSetParams_v2(e, node, ctypes.byref(k)))
times.append(took(lambda: cuda.cuGraphLaunch(e, None)))
check(cuda.cuGraphNodeSetEnabled(e, node, 0))
times.append(took(lambda: cuda.cuGraphLaunch(e, None)))
clone, inside = P(), P()
check(cuda.cuGraphClone(ctypes.byref(clone), g))
check(cuda.cuGraphNodeFindInClone(ctypes.byref(inside), node, clone))
check(cuda.cuGraphKernelNodeSetParams_v2(inside, ctypes.byref(k)))
updated = (ctypes.c_uint * 6)()
check(cuda.cuGraphExecUpdate_v2(e, clone, ctypes.byref(updated)))
check(cuda.cuGraphNodeSetEnabled(e, node, 1))
times.append(took(lambda: cuda.cuGraphLaunch(e, None)))
other = cuda.cuGraphExecUpdate_v2(e, parent, ctypes.byref(updated))
shape = Kernel()
check(cuda.cuGraphKernelNodeGetParams_v2(node, ctypes.byref(shape)))
answer(times=times, other=[other, updated[0]], same=shape.function == f.value, shape=[shape.gx, shape.bx])""",
    )
    times = found.pop("times")
    assert isinstance(times, list)
    for measured, expected in zip(times, [20, 40, 60, 0, 60], strict=True):
        assert expected <= measured < expected + 19
    assert found == {"other": [910, 2], "same": True, "shape": [1, 32]}


def test_a_launch_takes_a_graph_s_memory_and_the_pool_keeps_it(driver: Driver) -> None:
    found = graphs(
        driver,
        """
g = graph()
a, first = add_alloc(g, [], 10 * MIB)
b, second = add_alloc(g, [a], 20 * MIB)
fill = Fill(first, 0, 0x62, 1, 4, 1)
add("MemFree", g, [add("Memset", g, [b], ctypes.byref(fill), None)], u64(second))
sums = [used() >> 20]
idle = cuda.cuMemsetD8_v2(u64(first), ctypes.c_ubyte(1), S(1))
e = instantiate(g)
check(cuda.cuGraphLaunch(e, None))
sums.append(used() >> 20)
text = ctypes.create_string_buffer(5)
check(cuda.cuMemcpyDtoH_v2(text, u64(first), S(4)))
attributes = pool()
check(cuda.cuDeviceGraphMemTrim(0)); sums.append(used() >> 20)
again = cuda.cuGraphLaunch(e, None)
check(cuda.cuMemFree_v2(u64(first))); twice = cuda.cuMemFree_v2(u64(first))
check(cuda.cuGraphLaunch(e, None)); check(cuda.cuMemFreeAsync(u64(first), None)); sums.append(used() >> 20)
check(cuda.cuDeviceGraphMemTrim(0)); sums.append(used() >> 20)
answer(sums=sums, idle=idle, text=text.value.decode(), pool=attributes, again=again, twice=twice,
       clone=cuda.cuGraphClone(ctypes.byref(P()), g))""",
    )
    assert found == {
        "sums": [0, 30, 10, 30, 0],
        "idle": 1,
        "text": "bbbb",
        "pool": [10, 30, 30, 30],
        "again": 1,
        "twice": 1,
        "clone": 801,
    }


def test_a_graph_that_does_not_fit_leaves_nothing(driver: Driver) -> None:
    found = graphs(
        driver,
        """
g = graph()
a, _ = add_alloc(g, [], 16 << 30)
add_alloc(g, [a], 16 << 30)
e = instantiate(g)
first = cuda.cuGraphLaunch(e, None)
check(cuda.cuDeviceGraphMemTrim(0))
auto = graph()
add_alloc(auto, [], 16 << 30)
x = instantiate(auto, 1)
errors = [cuda.cuGraphLaunch(x, None) for _ in range(3)]
answer(first=first, left=[used() >> 30], errors=errors, device=add("MemAlloc", g, [], ctypes.byref(
    Alloc(pool=Pool(1, 0, 1, 9), bytes=1)), want=101), size=add("MemAlloc", g, [], ctypes.byref(
    Alloc(pool=Pool(1, 0, 1, 0), bytes=0)), want=1))""",
    )
    assert found == {"first": 2, "left": [16], "errors": [0, 0, 0], "device": 101, "size": 1}


# --- made by capture --------------------------------------------------------------------------------------


def test_what_a_stream_does_is_captured_instead_of_done(driver: Driver) -> None:
    found = graphs(
        driver,
        """
s = stream()
_, memory = allocate(64)
source = ctypes.create_string_buffer(b"captured")
heard = []
CALL = ctypes.CFUNCTYPE(None, P)
call = CALL(lambda _: heard.append(1))
before = status(s)
check(begin(s))
during = status(s)
check(launch(f, 30, s))
check(cuda.cuMemcpyHtoDAsync_v2(memory, source, S(8), s))
check(cuda.cuMemsetD8Async(u64(memory.value + 8), ctypes.c_ubyte(0), S(1), s))
check(cuda.cuLaunchHostFunc(s, call, None))
address = u64()
check(cuda.cuMemAllocAsync(ctypes.byref(address), S(8 * MIB), s))
check(cuda.cuMemFreeAsync(address, s))
state, number, current, needs, count = U(), u64(), P(), P(), S()
check(cuda.cuStreamGetCaptureInfo_v2(s, ctypes.byref(state), ctypes.byref(number), ctypes.byref(current),
                                     ctypes.byref(needs), ctypes.byref(count)))
quiet = [list(heard), used()]
g = end(s)
e = instantiate(g)
milliseconds = [took(lambda: cuda.cuGraphLaunch(e, s)) for _ in range(2)]
text = ctypes.create_string_buffer(9)
check(cuda.cuMemcpyDtoH_v2(text, memory, S(9)))
answer(status=[before, during, status(s)], info=[state.value, count.value, current.value == g.value],
       quiet=quiet, kinds=kinds(g), edges=edges(g), heard=heard, milliseconds=milliseconds,
       text=text.value.decode())""",
    )
    times = found.pop("milliseconds")
    assert times == pytest.approx([30] * 2, abs=1)
    assert found == {
        "status": [0, 1, 0],
        "info": [1, 1, True],
        "quiet": [[], 512],
        "kinds": [0, 1, 2, 3, 10, 11],
        "edges": [[n, n + 1] for n in range(5)],
        "heard": [1, 1],
        "text": "captured",
    }


def test_other_streams_join_by_events_and_must_come_back(driver: Driver) -> None:
    found = graphs(
        driver,
        """
one, two = stream(), stream()
fork, join = event(2), event(2)
def split(come_back):
    check(begin(one))
    check(launch(f, 1, one))
    check(cuda.cuEventRecord(fork, one)); check(cuda.cuStreamWaitEvent(two, fork, 0))
    check(launch(f, 1, two)); check(launch(f, 1, one))
    seen = [status(two), cuda.cuStreamEndCapture(two, None), cuda.cuEventQuery(event(2))]
    if come_back:
        check(cuda.cuEventRecord(join, two)); check(cuda.cuStreamWaitEvent(one, join, 0))
        check(launch(f, 1, one))
    return seen, end(one)
lost = split(False)
seen, g = split(True)
answer(lost=lost[1], seen=seen, edges=edges(g), after=[status(one), status(two), launch(f, 1, two),
       cuda.cuStreamSynchronize(two)])""",
    )
    assert found == {
        "lost": 904,
        "seen": [1, 903, 0],
        "edges": [[0, 1], [0, 2], [1, 3], [2, 3]],
        "after": [0, 0, 0, 0],
    }


def test_what_a_capture_forbids_spoils_it(driver: Driver) -> None:
    found = graphs(
        driver,
        """
out = {}
outside = event(2)
check(cuda.cuEventRecord(outside, None))
def spoil(name, action, mode=0, flags=1):
    s = stream(flags)
    check(begin(s, mode))
    check(launch(f, 1, s))
    error = action(s)
    g = end(s)
    out[name] = [error, g if isinstance(g, int) else 0]
spoil("wait", lambda s: cuda.cuStreamSynchronize(s))
spoil("query", lambda s: cuda.cuStreamQuery(s))
spoil("context", lambda s: cuda.cuCtxSynchronize())
spoil("legacy", lambda s: launch(f, 1, None), flags=0)
spoil("legacy beside", lambda s: launch(f, 1, None), flags=1)
spoil("allocate", lambda s: allocate(64)[0])
spoil("allocate relaxed", lambda s: allocate(64)[0], mode=2)
spoil("outside", lambda s: cuda.cuStreamWaitEvent(s, outside, 0))
spoil("begin", lambda s: begin(s))
def recorded(s):
    e = event(2)
    check(cuda.cuEventRecord(e, s))
    return cuda.cuEventSynchronize(e)
spoil("event", recorded)
def exchanged(s):
    mode = U(2)
    check(cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    error = allocate(64)[0]
    check(cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode)))
    return error
spoil("exchanged", exchanged)
out["null"] = [begin(None), cuda.cuStreamEndCapture(stream(), None)]
answer(**out)""",
    )
    assert found == {
        "wait": [900, 901],
        "query": [900, 901],
        "context": [900, 901],
        "legacy": [906, 901],
        "legacy beside": [0, 0],
        "allocate": [900, 901],
        "allocate relaxed": [0, 0],
        "outside": [905, 0],
        "begin": [401, 0],
        "event": [907, 901],
        "exchanged": [0, 0],
        "null": [900, 401],
    }


def test_a_graph_launched_in_a_capture_becomes_a_child(driver: Driver) -> None:
    found = graphs(
        driver,
        """
g = graph()
add_kernel(g, [add_kernel(g, [], f, 10)], f, 10)
e = instantiate(g)
s = stream()
check(begin(s))
check(launch(f, 10, s)); check(cuda.cuGraphLaunch(e, s))
outer = end(s)
check(cuda.cuGraphExecDestroy(e)); check(cuda.cuGraphDestroy(g))
inner = P()
check(cuda.cuGraphChildGraphNodeGetGraph(P(nodes(outer)[1]), ctypes.byref(inner)))
x = instantiate(outer)
answer(kinds=kinds(outer), inner=kinds(inner), milliseconds=took(lambda: cuda.cuGraphLaunch(x, s)))""",
    )
    assert found.pop("milliseconds") == pytest.approx(30, abs=1)
    assert found == {"kinds": [0, 4], "inner": [0, 0]}


def test_a_user_object_is_destroyed_with_its_last_reference(driver: Driver) -> None:
    found = graphs(
        driver,
        """
heard = []
CALL = ctypes.CFUNCTYPE(None, P)
destroy = CALL(lambda data: heard.append(data))
made = P()
check(cuda.cuUserObjectCreate(ctypes.byref(made), P(7), destroy, 2, 1))
check(cuda.cuUserObjectRetain(made, 1))
steps = [cuda.cuUserObjectRelease(made, 2), list(heard), cuda.cuUserObjectRelease(made, 1), heard,
         cuda.cuUserObjectRelease(made, 1)]
answer(steps=steps)""",
    )
    assert found == {"steps": [0, [], 0, [7], 1]}
