# SPDX-License-Identifier: Apache-2.0
"""Threads of one process that make and end all that holds memory, on two cards, beside each other."""

from __future__ import annotations

import json
import sys

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import CUDA

LIMIT = 40 * MI

THREADS = (
    CUDA
    + """
import faulthandler, pynvml, random, sys, threading, time
faulthandler.dump_traceback_later(240, exit=True)
pynvml.nvmlInit()
card = pynvml.nvmlDeviceGetHandleByIndex(0)
use(0)
library, default = P(), P()
must(cuda.cuLibraryLoadData(ref(library), image, None, None, 0, None, None, 0))
must(cuda.cuDeviceGetDefaultMemPool(ref(default), 0))

def fits(code):
    assert code in (0, 2), code
    return code == 0
def some(): return random.randrange(1, 20) * MI

def context():
    made = P()
    if not fits(cuda.cuCtxCreate_v2(ref(made), 0, 0)): return
    for _ in range(3): fits(alloc(some())[0])
    fits(cuda.cuLibraryGetModule(ref(P()), library))
    must(cuda.cuCtxDestroy_v2(made))
    must(cuda.cuCtxSetCurrent(contexts[0]))
def primary():
    made = P()
    if not fits(cuda.cuDevicePrimaryCtxRetain(ref(made), 1)): return
    must(cuda.cuCtxPushCurrent_v2(made))
    fits(alloc(MI)[0])
    must(cuda.cuCtxPopCurrent_v2(ref(made)))
    must(cuda.cuDevicePrimaryCtxRelease_v2(1))
def pools():
    made = pool(random.choice([0, 2**64 - 1]))
    must(cuda.cuDeviceSetMemPool(0, made))
    asynchronous()
    must(cuda.cuMemPoolDestroy(made))
def asynchronous():
    address = u64()
    if fits(cuda.cuMemAllocAsync(ref(address), S(some()), P())): must(cuda.cuMemFreeAsync(address, P()))
def plain():
    code, address = alloc(some())
    if fits(code): must(cuda.cuMemFree_v2(address))
def graph():
    executable, (address,) = allocating_graph(some())
    if fits(cuda.cuGraphLaunch(executable, P())): must(cuda.cuMemFree_v2(u64(address)))
    must(cuda.cuGraphExecDestroy(executable))
def view():
    used()
    pynvml.nvmlDeviceGetMemoryInfo(card)
    pynvml.nvmlDeviceGetComputeRunningProcesses(card)

def keep_at(act):
    must(cuda.cuCtxSetCurrent(contexts[0]))
    while time.monotonic() < end: act()
failures = []
threading.excepthook = lambda failed: failures.append(f"{failed.thread.name}: {failed.exc_value}")
end = time.monotonic() + 5
acts = [context] * 4 + [primary] * 2 + [asynchronous] * 2 + [pools, plain, graph, view]
threads = [threading.Thread(target=keep_at, args=[act], name=act.__name__) for act in acts]
for thread in threads: thread.start()
for thread in threads: thread.join()
must(cuda.cuLibraryUnload(library))
must(cuda.cuDeviceGraphMemTrim(0))
must(cuda.cuMemPoolTrimTo(default, S(0)))
print(json.dumps(failures), flush=True)
sys.stdin.read()
"""
)


def test_threads_that_make_and_end_everything_keep_the_limit(bench: Bench) -> None:
    """To the byte; and in the end nothing is charged that isn't held, nor held that isn't charged."""
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    process = bench.start(sys.executable, "-c", THREADS)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    assert json.loads(line) == []
    assert [bench.held(card) for card in (0, 1)] == [0, 0]
    assert [bench.usage(name).memory_bytes for name in ("small", "large")] == [0, 0]
    assert max(bench.high_water(card) for card in (0, 1)) <= LIMIT
