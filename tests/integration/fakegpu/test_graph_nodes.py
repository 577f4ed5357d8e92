# SPDX-License-Identifier: Apache-2.0
"""Graph nodes beyond the common ones, batches of operations on words of memory, batches of copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.fakegpu.conftest import Driver
from tests.integration.fakegpu.graphs import GRAPHS

STEPS = (
    GRAPHS
    + """
class Word(ctypes.Structure):
    _fields_ = [("kind", U), ("address", u64), ("value", u64), ("flags", U), ("alias", u64), ("rest", u64)]
class Reduction(ctypes.Structure):
    _fields_ = [("kind", U), ("flags", U), ("operation", U), ("type", U), ("address", u64), ("value", u64),
        ("alias", u64)]
WIDE, NARROW = 2 | 4 | 16, 2 | 4 | 8
def as_word(operation):
    found = Word()
    ctypes.memmove(ctypes.byref(found), ctypes.byref(operation), 48)
    return found
def batch(*operations):
    return (Word * len(operations))(*[as_word(each) for each in operations])
def words():
    error, address = allocate(64)
    check(error, "alloc")
    check(cuda.cuMemsetD8_v2(address, 0, S(64)), "clear")
    return address.value
def read(address, count=2):
    found = (u64 * count)()
    check(cuda.cuMemcpyDtoH_v2(found, u64(address), S(8 * count)), "read")
    return list(found)
class Params(ctypes.Structure):
    _fields_ = [("type", U), ("reserved", U * 3), ("bytes", ctypes.c_ubyte * 232), ("more", u64)]
class Condition(ctypes.Structure):
    _fields_ = [("handle", u64), ("type", U), ("size", U), ("graphs", ctypes.POINTER(P)), ("context", P)]
class Batch(ctypes.Structure):
    _fields_ = [("context", P), ("count", U), ("operations", P), ("flags", U)]
def launches(executable):
    check(cuda.cuGraphLaunch(executable, None), "launch graph")
    check(cuda.cuCtxSynchronize(), "wait")
"""
)


def test_batches_of_operations_on_words(driver: Driver) -> None:
    code = """
start()
at = words()
operations = batch(Word(5, at, 40), Reduction(8, 0, 0, WIDE, at, 3), Word(2, at + 8, 0x1_0000_00f0),
                   Reduction(8, 0, 6, NARROW, at + 8, 0xf), Reduction(8, 0, 5, NARROW, at + 8, 0x3f),
                   Word(6), Word(3),
                   Word(4, at, 43, 1), Word(1, at + 8, 0x3f, 1))
errors = [cuda.cuStreamBatchMemOp_v2(None, len(operations), operations, 0)]
for bad in (Word(7), Word(5, at + 3, 1), Word(5, 0, 1), Reduction(8, 0, 1, WIDE, at, 3)):
    errors.append(cuda.cuStreamBatchMemOp_v2(None, 1, batch(bad), 0))
errors.append(cuda.cuStreamBatchMemOp_v2(None, 257, operations, 0))
answer(size=ctypes.sizeof(Word), errors=errors, words=read(at))
"""
    assert driver.cuda(STEPS + code) == {"size": 48, "errors": [0, 1, 1, 1, 1, 1], "words": [43, 0x3F]}


def test_nodes_that_work_on_words(driver: Driver) -> None:
    """The arrays belong to the graph from the call on; what is set in an instantiated one stays there."""
    code = """
start()
at, g = words(), graph()
first, other = batch(Reduction(8, 0, 0, WIDE, at, 1)), batch(Reduction(8, 0, 0, WIDE, at, 10))
node = add("BatchMemOp", g, [], ctypes.byref(Batch(None, 1, ctypes.addressof(first), 0)))
ctypes.memset(first, 0, ctypes.sizeof(first))
ready = instantiate(g)
launches(ready); launches(ready)
twice = read(at)[0]
changed = Batch(None, 1, ctypes.addressof(other), 0)
check(cuda.cuGraphExecBatchMemOpNodeSetParams(ready, node, ctypes.byref(changed)), "change")
launches(ready)
ten = read(at)[0]
launches(instantiate(g))
got = Batch()
check(cuda.cuGraphBatchMemOpNodeGetParams(node, ctypes.byref(got)), "get")
answer(twice=twice, ten=ten, eleven_more=read(at)[0], count=got.count,
    wrong=cuda.cuGraphExecBatchMemOpNodeSetParams(
    ready, add("Empty", g, []), ctypes.byref(changed)))
"""
    assert driver.cuda(STEPS + code) == {"twice": 2, "ten": 12, "eleven_more": 13, "count": 1, "wrong": 1}


@pytest.mark.parametrize(
    ("kind", "size", "value", "ran"),
    [
        pytest.param(0, 1, 1, [1, 0], id="if"),
        pytest.param(0, 1, 0, [0, 0], id="if not"),
        pytest.param(0, 2, 0, [0, 1], id="else"),
        pytest.param(1, 1, 1, [1, 0], id="while"),
        pytest.param(2, 2, 1, [0, 1], id="switch"),
        pytest.param(2, 2, 7, [0, 0], id="no branch of the switch"),
    ],
)
def test_conditions_choose_what_is_run(
    driver: Driver, kind: int, size: int, value: int, ran: list[int]
) -> None:
    code = f"""
start()
at, g, handle = words(), graph(), u64()
check(cuda.cuGraphConditionalHandleCreate(ctypes.byref(handle), g, None, {value}, 1), "handle")
params, condition = Params(13), Condition(handle.value, {kind}, {size})
ctypes.memmove(params.bytes, ctypes.byref(condition), ctypes.sizeof(condition))
node = P()
check(cuda.cuGraphAddNode_v2(ctypes.byref(node), g, None, None, S(0), ctypes.byref(params)), "add")
bodies = Condition.from_buffer(params, 16).graphs
for place in range({size}):
    work = batch(Reduction(8, 0, 0, WIDE, at + 8 * place, 1))
    add("BatchMemOp", P(bodies[place]), [], ctypes.byref(Batch(None, 1, ctypes.addressof(work), 0)))
launches(instantiate(g))
answer(ran=read(at), type=kinds(g), destroyed=cuda.cuGraphDestroy(P(bodies[0])), whole=cuda.cuGraphDestroy(g))
"""
    assert driver.cuda(STEPS + code) == {"ran": ran, "type": [13], "destroyed": 1, "whole": 0}


def test_conditions_need_a_handle(driver: Driver) -> None:
    code = """
start()
g, errors = graph(), []
for condition in (Condition(0, 0, 1), Condition(99, 0, 1), Condition(1, 0, 3), Condition(1, 3, 1)):
    params, node = Params(13), P()
    ctypes.memmove(params.bytes, ctypes.byref(condition), ctypes.sizeof(condition))
    errors.append(cuda.cuGraphAddNode_v2(ctypes.byref(node), g, None, None, S(0), ctypes.byref(params)))
answer(errors=errors)
"""
    assert driver.cuda(STEPS + code) == {"errors": [1, 1, 1, 1]}


def test_a_child_s_contents_are_replaced(driver: Driver) -> None:
    code = """
start()
at, g = words(), graph()
def child(*steps):
    made, before = graph(), []
    for step in steps:
        work = batch(Reduction(8, 0, 0, WIDE, at, step))
        before = [add("BatchMemOp", made, before, ctypes.byref(Batch(None, 1, ctypes.addressof(work), 0)))]
    return made
node = add("ChildGraph", g, [], child(1, 2))
ready = instantiate(g)
errors = [cuda.cuGraphExecChildGraphNodeSetParams(ready, node, child(10, 20)),
          cuda.cuGraphExecChildGraphNodeSetParams(ready, node, child(10))]
other = graph()
add("Empty", other, [add("Empty", other, [])])
errors.append(cuda.cuGraphExecChildGraphNodeSetParams(ready, node, other))
launches(ready)
answer(errors=errors, sum=read(at)[0])
"""
    assert driver.cuda(STEPS + code) == {"errors": [0, 1, 1], "sum": 30}


def test_semaphores_in_graphs(driver: Driver) -> None:
    code = """
start()
class Handle(ctypes.Structure): _fields_ = [("type", U), ("file", u64 * 2), ("flags", U), ("reserved",
    U * 16)]
class Nodes(ctypes.Structure): _fields_ = [("semaphores", P), ("params", P), ("count", U)]
semaphore, file = P(), os.open("/dev/null", os.O_RDONLY)
check(cuda.cuImportExternalSemaphore(ctypes.byref(semaphore), ctypes.byref(Handle(1, (file, 0)))), "import")
array, params, g = (P * 1)(semaphore), (ctypes.c_ubyte * 144)(), graph()
given = Nodes(ctypes.addressof(array), ctypes.addressof(params), 1)
signal = add("ExternalSemaphoresSignal", g, [], ctypes.byref(given))
wait = add("ExternalSemaphoresWait", g, [signal], ctypes.byref(given))
launches(instantiate(g))
ready, got = instantiate(g), Nodes()
check(cuda.cuGraphExternalSemaphoresWaitNodeGetParams(wait, ctypes.byref(got)), "get")
check(cuda.cuDestroyExternalSemaphore(semaphore), "destroy")
answer(kinds=kinds(g), count=got.count, mixed=cuda.cuGraphExternalSemaphoresSignalNodeGetParams(wait,
    ctypes.byref(got)),
       gone=cuda.cuGraphLaunch(ready, None))
"""
    assert driver.cuda(STEPS + code) == {"kinds": [8, 9], "count": 1, "mixed": 1, "gone": 400}


def test_kernel_nodes_have_attributes(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "graph.dot"
    code = f"""
start()
g, function = graph(), kernel()
one = add_kernel(g, [], function, 1)
two = add_kernel(g, [one], function, 1)
value, read_back = (ctypes.c_int * 16)(1), (ctypes.c_int * 16)()
check(cuda.cuGraphKernelNodeSetAttribute(one, 2, value), "set")
check(cuda.cuGraphKernelNodeCopyAttributes(two, one), "copy")
check(cuda.cuGraphKernelNodeGetAttribute(two, 2, read_back), "get")
check(cuda.cuGraphDebugDotPrint(g, {str(path).encode()!r}, 0), "print")
answer(cooperative=read_back[0], wrong=cuda.cuGraphKernelNodeSetAttribute(add("Empty", g, []), 2, value))
"""
    assert driver.cuda(STEPS + code) == {"cooperative": 1, "wrong": 1}
    assert path.read_text().count("->") == 1


def test_batches_of_boxes(driver: Driver) -> None:
    """From memory in rows to an array of 4-byte cells, and back to memory without gaps."""
    code = """
start()
class Memory(ctypes.Structure): _fields_ = [("address", u64), ("row", S), ("layer", S), ("place", u64)]
class Place(ctypes.Structure): _fields_ = [("array", P), ("x", S), ("y", S), ("z", S)]
class Ends(ctypes.Union): _fields_ = [("memory", Memory), ("array", Place)]
class End(ctypes.Structure): _fields_ = [("type", U), ("end", Ends)]
class Box(ctypes.Structure):
    _fields_ = [("source", End), ("target", End), ("width", S), ("height", S), ("depth", S), ("order", U),
        ("flags", U)]
class Descriptor(ctypes.Structure): _fields_ = [("width", S), ("height", S), ("format", U), ("channels", U)]
array, stream = P(), P()
check(cuda.cuStreamCreate(ctypes.byref(stream), 1), "stream")
check(cuda.cuArrayCreate_v2(ctypes.byref(array), ctypes.byref(Descriptor(16, 16, 0x20, 1))), "array")
source, target = (ctypes.c_uint * 64)(*range(64)), (ctypes.c_uint * 4)()
def memory(buffer, row=0): return End(1, Ends(memory=Memory(ctypes.addressof(buffer), row)))
inside = End(2, Ends(array=Place(array, 5, 6, 0)))
boxes = (Box * 2)(Box(memory(source, 8), inside, 2, 2, 1), Box(inside, memory(target), 2, 2, 1))
failed = S()
errors = [cuda.cuMemcpy3DBatchAsync(S(2), boxes, ctypes.byref(failed), u64(0), stream),
          cuda.cuMemcpy3DBatchAsync_v2(S(2), boxes, u64(0), None), cuda.cuMemcpy3DBatchAsync_v2(S(0), boxes,
          u64(0), stream)]
answer(size=ctypes.sizeof(Box), errors=errors, target=list(target))
"""
    assert driver.cuda(STEPS + code) == {"size": 112, "errors": [0, 1, 1], "target": [0, 1, 8, 9]}
