# SPDX-License-Identifier: Apache-2.0
"""Pools through their whole life: what is held, what is charged, and that both are the same."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import CUDA, LIMIT, OUT_OF_MEMORY, run


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


def test_more_pools_than_can_be_counted_are_refused(bench: Bench) -> None:
    """None is made that would not be limited; those that are destroyed make room."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
def fill():
    pools = []
    while len(pools) < 2000:
        made = P()
        code = cuda.cuMemPoolCreate(ref(made), ref(Pool(1, 0, Location(1, 0))))
        if code != 0: return pools, [code, len(pools) > 500, made.value]
        pools.append(made)
    return pools, "never"
for name in ("first", "second"):
    pools, out[name] = fill()
    code, address = alloc_from(pools[-1], LIMIT)
    out[name + "-last"] = [code, alloc_from(pools[0], 512)[0], cuda.cuMemAllocAsync(ref(u64()), S(512), P())]
    must(cuda.cuMemFreeAsync(address, P()))
    for made in pools: must(cuda.cuMemPoolDestroy(made))
""".replace("LIMIT", str(LIMIT)),
    )
    refused = [OUT_OF_MEMORY, True, None]
    full = [0, OUT_OF_MEMORY, OUT_OF_MEMORY]
    assert found == {"first": refused, "first-last": full, "second": refused, "second-last": full}
    assert bench.high_water() == LIMIT


def test_what_is_no_pool_any_more_is_the_driver_s_to_refuse(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
gone = pool(0)
must(cuda.cuMemPoolDestroy(gone))
out["codes"] = [alloc_from(gone, size * MI)[0] for size in (1, 301)] + [cuda.cuMemPoolDestroy(gone)]
default = P()
must(cuda.cuDeviceGetDefaultMemPool(ref(default), 0))
out["default"] = [cuda.cuMemPoolDestroy(default)] + [alloc_from(default, size * MI)[0] for size in (300, 1)]
""",
    )
    assert found == {"codes": [1, 1, 1], "default": [1, 0, OUT_OF_MEMORY]}


def test_nvml_shows_no_more_than_pools_have(bench: Bench) -> None:
    """As CUDA does, also before anybody has waited for the card."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
import pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def memory(): return pynvml.nvmlDeviceGetMemoryInfo(device).used
def processes(): return pynvml.nvmlDeviceGetComputeRunningProcesses(device)[0].usedGpuMemory
use(0)
address = u64()
for name, ask in (("memory", memory), ("processes", processes)):
    must(cuda.cuMemAllocAsync(ref(address), S(200 * MI), P()))
    out[name] = [ask() // MI]
    must(cuda.cuMemFreeAsync(address, P()))
    out[name].append(ask() // MI)
""",
    )
    assert found == {"memory": [200, 0], "processes": [200, 0]}


def test_whatever_context_is_current_at_the_free(bench: Bench) -> None:
    """A block goes by the card that it lies on, a stream's by the stream's."""
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    found = run(
        bench,
        """
use(0); use(1)
small, large = contexts
stream, address, second, third = P(), u64(), u64(), u64()
def both():
    seen = []
    for context in contexts:
        must(cuda.cuCtxSetCurrent(context))
        must(cuda.cuCtxSynchronize())
        seen.append(used())
    return seen
must(cuda.cuCtxSetCurrent(small))
must(cuda.cuStreamCreate(ref(stream), 1))
must(cuda.cuMemAllocAsync(ref(address), S(40 * MI), stream))
must(cuda.cuCtxSetCurrent(large))
must(cuda.cuMemAllocAsync(ref(second), S(20 * MI), stream))
must(cuda.cuMemAllocAsync(ref(third), S(10 * MI), P()))
code, plain = alloc(5 * MI)
out["held"] = both()
for block, of, current in ((address, P(), large), (second, stream, large), (third, P(), small)):
    must(cuda.cuCtxSetCurrent(current))
    must(cuda.cuMemFreeAsync(block, of))
must(cuda.cuCtxSetCurrent(small))
must(cuda.cuMemFree_v2(plain))
out["end"] = both()
""",
    )
    assert found == {"held": [60, 15], "end": [0, 0]}
    assert [bench.high_water(0), bench.high_water(1)] == [60 * MI, 15 * MI]
