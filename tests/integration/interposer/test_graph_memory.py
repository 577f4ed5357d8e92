# SPDX-License-Identifier: Apache-2.0
"""Memory of graphs through its whole life: what is held, what is charged, and that both are the same."""

from __future__ import annotations

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import LIMIT, OUT_OF_MEMORY, run


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


def test_a_graph_allocates_on_several_cards(bench: Bench) -> None:
    """Each card is charged what is its own; where one has no room, nothing is left on the other."""
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    found = run(
        bench,
        """
use(0); use(1)
def instantiated(*sizes):
    graph, last, executable, addresses = P(), P(), P(), []
    must(cuda.cuGraphCreate(ref(graph), 0))
    for device, size in enumerate(sizes):
        node = Node(pool=Pool(1, 0, Location(1, device)), bytes=size * MI)
        must(cuda.cuGraphAddMemAllocNode(ref(last), graph, None, S(0), ref(node)))
        addresses.append(node.address)
    must(cuda.cuGraphInstantiateWithFlags(ref(executable), graph, u64(0)))
    return executable, addresses
def step(name, executable, launch=cuda.cuGraphLaunch):
    out[name] = [launch(executable, P())]
    for context in contexts:
        must(cuda.cuCtxSetCurrent(context))
        out[name].append(used())
step("small-full", instantiated(301, 50)[0])
step("large-full", instantiated(50, 301)[0])
fitting, addresses = instantiated(200, 250)
step("fitting", fitting)
for address in addresses: must(cuda.cuMemFree_v2(u64(address)))
step("destroyed", fitting, lambda executable, _: cuda.cuGraphExecDestroy(executable))
must(cuda.cuDeviceGraphMemTrim(1))
out["trimmed"] = used()
""",
    )
    assert found == {
        "small-full": [OUT_OF_MEMORY, 0, 0],
        "large-full": [OUT_OF_MEMORY, 0, 0],
        "fitting": [0, 200, 250],
        "destroyed": [0, 200, 250],
        "trimmed": 0,
    }
    assert (bench.high_water(0), bench.high_water(1)) == (200 * MI, 250 * MI)


def test_an_upload_takes_what_the_launch_then_uses(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
first, (address,) = allocating_graph(200 * MI)
second, _ = allocating_graph(310 * MI)
for upload in (cuda.cuGraphUpload, cuda.cuGraphUpload_ptsz):
    out[upload.__name__] = [upload(first, P()), used(), upload(second, P()), used()]
    must(cuda.cuDeviceGraphMemTrim(0))
must(cuda.cuGraphUpload(first, P()))
out["room"] = [alloc(101 * MI)[0], used()] # what was uploaded gives way
out["upload"] = [cuda.cuGraphUpload(first, P()), cuda.cuGraphLaunch(first, P()), used()]
""",
    )
    taken = [0, 200, OUT_OF_MEMORY, 0]  # before a refusal all gives way that is kept
    assert found == {
        "cuGraphUpload": taken,
        "cuGraphUpload_ptsz": taken,
        "room": [0, 101],
        "upload": [OUT_OF_MEMORY, OUT_OF_MEMORY, 101],
    }
    assert bench.high_water() == 200 * MI


def test_an_upload_with_the_instantiation_is_charged(bench: Bench) -> None:
    """Where it does not fit, there is no executable graph either, and the flags are as they were."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
class With(ctypes.Structure): _fields_ = [("flags", u64), ("stream", P), ("node", P), ("result", I)]
def instantiated(bytes):
    graph, last, executable, wanted = P(), P(), P(), With(flags=2)
    must(cuda.cuGraphCreate(ref(graph), 0))
    node = Node(pool=Pool(1, 0, Location(1, 0)), bytes=bytes)
    must(cuda.cuGraphAddMemAllocNode(ref(last), graph, None, S(0), ref(node)))
    code = cuda.cuGraphInstantiateWithParams(ref(executable), graph, ref(wanted))
    return [code, used(), wanted.flags], executable
out["too-much"], gone = instantiated(301 * MI)
out["gone"] = gone.value
out["fits"], graph = instantiated(200 * MI)
out["full"] = alloc(101 * MI)[0] # the pool gives way, and there is more than 100 free again
out["launch"] = cuda.cuGraphLaunch(graph, P())
""",
    )
    assert found["too-much"] == [OUT_OF_MEMORY, 0, 2]
    assert found["fits"] == [0, 200, 2]
    assert (found["gone"], found["full"], found["launch"]) == (None, 0, OUT_OF_MEMORY)
    assert bench.high_water() == 200 * MI
