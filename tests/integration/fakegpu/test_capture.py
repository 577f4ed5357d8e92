# SPDX-License-Identifier: Apache-2.0
"""Graphs made by stream capture."""

from __future__ import annotations

import pytest

from tests.integration.fakegpu.conftest import Driver
from tests.integration.fakegpu.graphs import graphs


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
spoil("legacy asked", lambda s: cuda.cuStreamIsCapturing(None, ctypes.byref(U())), flags=0)
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
        "legacy asked": [906, 0],
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
