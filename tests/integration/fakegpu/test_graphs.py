# SPDX-License-Identifier: Apache-2.0
"""Graphs made by calls: nodes and their order, memory nodes, launches, user objects."""

from __future__ import annotations

import pytest

from tests.integration.fakegpu.conftest import Driver
from tests.integration.fakegpu.graphs import graphs


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


def test_an_upload_reserves_what_a_launch_uses(driver: Driver) -> None:
    """What lives one after the other in one place, once; the pool keeps it until somebody trims it."""
    found = graphs(
        driver,
        """
g = graph()
a, first = add_alloc(g, [], 10 * MIB)
freed = add("MemFree", g, [a], u64(first))
b, second = add_alloc(g, [freed], 10 * MIB)
c, third = add_alloc(g, [b], 20 * MIB)
e = instantiate(g)
check(cuda.cuGraphUpload(e, None))
pools = [pool()]
check(cuda.cuGraphUpload(e, None))
check(cuda.cuGraphLaunch(e, None))
check(cuda.cuGraphUpload(e, None))
pools.append(pool())
for address in (second, third): check(cuda.cuMemFree_v2(u64(address)))
check(cuda.cuDeviceGraphMemTrim(0))
answer(pools=pools, used=used(), room=allocate(23 << 30)[0], upload=cuda.cuGraphUpload(e, None))""",
    )
    assert found == {"pools": [[0, 30, 30, 30], [30, 30, 30, 30]], "used": 0, "room": 0, "upload": 0}


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
