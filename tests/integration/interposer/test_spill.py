# SPDX-License-Identifier: Apache-2.0
"""Where a node promises more memory than its card has: what goes on in managed memory, what is refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.interposer.bench import CARD_BYTES, MI, SMALL, Bench
from tests.integration.interposer.families import CUDA

OUT_OF_MEMORY = 2
LIMIT = 300 * MI
ROOM = 100 * MI
"""What the others of the card have left of it."""
SPILL = ["plain", "pitch", "async", "pool", "keep"]
NEED_THE_CARD = ["virtual", "array", "array3d", "mipmap", "graph"]

NVML = """
import json, pynvml
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
v1 = pynvml.nvmlDeviceGetMemoryInfo(device)
v2 = pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2)
print(json.dumps([[v1.total, v1.used, v1.free], [v2.total, v2.used, v2.free]]))
"""


def crowd(bench: Bench, room: int = ROOM) -> None:
    bench.control("stranger", str(bench.state), "0", str(CARD_BYTES[SMALL] - room))


@pytest.mark.parametrize("kind", SPILL)
@pytest.mark.parametrize("road", ["link", "ptsz"])
def test_a_share_that_spills_is_there_to_the_byte(bench: Bench, roads: Path, road: str, kind: str) -> None:
    bench.grant(memory=LIMIT, spill=True)
    crowd(bench)
    assert bench.answer(roads, road, "edge", kind) == {
        "held": LIMIT,
        "code": OUT_OF_MEMORY,
        "free": 0,
        "total": LIMIT,
        "free_after": LIMIT - 64 * MI if kind == "keep" else LIMIT,  # the one block that came from the pool
    }
    assert bench.high_water() == ROOM
    assert bench.usage().peak_memory_bytes == LIMIT
    assert bench.usage().memory_bytes == 0


@pytest.mark.parametrize(
    "spill, kind", [*((False, kind) for kind in SPILL), *((True, kind) for kind in NEED_THE_CARD)]
)
def test_what_does_not_spill_is_refused_by_the_card(
    bench: Bench, roads: Path, spill: bool, kind: str
) -> None:
    bench.grant(memory=LIMIT, spill=spill)
    crowd(bench)
    found = bench.answer(roads, "gpa2", "edge", kind)
    assert (found["held"], found["code"]) == (ROOM, OUT_OF_MEMORY)
    assert bench.usage().peak_memory_bytes <= LIMIT
    assert bench.answer(roads, "link", "info")[0]["free"] == (LIMIT if spill else ROOM)


def test_views_show_what_can_be_had(make_bench: Callable[..., Bench], roads: Path) -> None:
    """More than the card has, where it spills; no more than the card has, where it doesn't."""
    card = CARD_BYTES[SMALL]
    for spill, total in ((True, 2 * card), (False, card)):
        bench = make_bench(f"spill-{spill}")
        bench.grant(memory=2 * card, spill=spill)
        found = bench.answer(roads, "link", "info")[0]
        assert found == {"device_total": total, "free": total, "total": total}
        assert bench.answer(sys.executable, "-c", NVML) == [[total, 0, total]] * 2


def test_no_view_shows_more_than_can_be_counted(bench: Bench, roads: Path) -> None:
    """32 TiB of a grant; the rest of its limit would be refused."""
    bench.grant(memory=40 << 40, spill=True)
    most = (32 << 40) - 512
    assert bench.answer(roads, "link", "info")[0] == {"device_total": most, "free": most, "total": most}


def test_a_spilled_block_is_freed_in_its_streams_order(bench: Bench) -> None:
    """The driver frees managed memory at once, so the stream's work is waited for."""
    bench.grant(memory=LIMIT, spill=True)
    crowd(bench)
    found: dict[str, Any] = json.loads(
        bench.python(
            CUDA
            + """
import time
use(0)
spinning, address = kernel(), u64()
must(cuda.cuMemAllocAsync(ref(address), S(200 * MI), P()))
managed = ctypes.c_uint()
must(cuda.cuPointerGetAttribute(ref(managed), 8, address))
out["managed"] = managed.value
launch(spinning, 2_000_000_000)
began = time.monotonic()
must(cuda.cuMemFreeAsync(address, P()))
out["waited"] = time.monotonic() - began > 0.5
out["after"] = used()
out["unknown"] = [cuda.cuMemFreeAsync(address, P()), cuda.cuMemFree_v2(address)]
print(json.dumps(out))
"""
        )
    )
    assert found == {"managed": 1, "waited": True, "after": 0, "unknown": [1, 1]}
