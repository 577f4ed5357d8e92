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
