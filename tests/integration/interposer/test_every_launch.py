# SPDX-License-Identifier: Apache-2.0
"""Each spelling of a launch, a copy within the card, a fill: it does what the driver does, and is counted."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.interposer.bench import LARGE, SMALL, Bench
from tests.integration.interposer.families import CUDA
from tests.integration.interposer.test_reach import TABLES

PROGRAM = Path(__file__).with_name("every_launch.py")


def launching() -> list[tuple[str, str]]:
    """Symbol and parameters of each row of the table that may take time of the card."""
    text = "".join(path.read_text() for path in TABLES).replace("\\\n", " ")
    (several,) = re.findall(r"^#define LAUNCH_PARAMETERS (.*)$", text, re.MULTILINE)
    row = r"^CUDA_HOOK\((\w+), *\"\w+\", \d+, [01], LAUNCH,\s*\(([^()]*)\)\)"
    found = re.findall(row, text.replace("LAUNCH_PARAMETERS,", f"{several},"), re.MULTILINE)
    assert len(found) == len(re.findall(r", [01], LAUNCH,", text)) > 80
    return found


def called(bench: Bench, rows: list[tuple[str, str]]) -> Iterator[tuple[str, int, str, int]]:
    """Of each row: symbol, code, what it has changed, and how many launches were counted for it."""
    program = bench.start(sys.executable, PROGRAM, json.dumps(rows))
    assert program.stdin is not None
    assert program.stdout is not None
    counted = None
    while line := program.stdout.readline():
        now = sum(process.launches for process in bench.usage().processes)
        if counted is not None:
            yield (*json.loads(line), now - counted)
        counted = now
        program.stdin.write("on\n")
        program.stdin.flush()
    assert program.wait(60) == 0


@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_it_is_counted_and_does_the_same(make_bench: Callable[..., Bench], shim: bool) -> None:
    rows = launching()
    bare = make_bench("bare", preload=False, driver={"cuda": "13.5"})
    limited = make_bench("limited", shim=shim, driver={"cuda": "13.5"})
    for bench in (bare, limited):
        bench.grant(cores=50)
    expected = [row[:3] for row in called(bare, rows)]
    assert [row for row in expected if row[1] != 0] == []
    assert [row for row in expected if re.search("Memcpy|Memset", row[0]) and row[2] == ""] == []
    assert list(called(limited, rows)) == [(*row, 1) for row in expected]


MULTI = """
class Launch(ctypes.Structure):
    _fields_ = [("function", P), ("shape", ctypes.c_uint * 7), ("stream", P), ("parameters", P)]
duration = u64(2_000_000)
parameters = (P * 1)(ctypes.cast(ref(duration), P))
def launch_on(device):
    use(device)
    stream = P()
    must(cuda.cuStreamCreate(ref(stream), 1))
    return Launch(kernel(), (1, 1, 1, 32, 1, 1, 0), stream, ctypes.cast(parameters, P))
both = (Launch * 2)(launch_on(0), launch_on(1))
for _ in range(60):
    must(cuda.cuLaunchCooperativeKernelMultiDevice(both, 2, 0))
    for context in contexts:
        must(cuda.cuCtxSetCurrent(context))
        must(cuda.cuCtxSynchronize())
print("launched", flush=True)
import sys
sys.stdin.readline()
"""


def test_each_card_pays_for_its_part(bench: Bench) -> None:
    """Of one function that is launched on two cards at once, again and again; it waits for the slower one."""
    bench.grant("small", uuid=SMALL, cores=50)
    bench.grant("large", uuid=LARGE, cores=10)
    program = bench.start(sys.executable, "-c", CUDA + MULTI)
    assert program.stdout is not None
    assert program.stdout.readline() == "launched\n"
    (small,), (large,) = (bench.usage(name).processes for name in ("small", "large"))
    assert small.launches == large.launches == 60
    assert min(small.busy_ns, large.busy_ns) >= 100e6  # 2 ms each; what isn't settled yet counts as more
    assert large.waited_ns > small.waited_ns
