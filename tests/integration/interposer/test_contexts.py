# SPDX-License-Identifier: Apache-2.0
"""What contexts and modules take is measured, and charged like all other memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import LIMIT, OUT_OF_MEMORY, run


def test_contexts_and_modules_are_measured(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(driver={"context": "40Mi", "module": "6Mi"})
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        r"""
use(0)
out["first"] = used()
second, module, library, loaded = P(), P(), P(), P()
must(cuda.cuCtxCreate_v2(ref(second), 0, 0))
out["second"] = used()
image = b".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry spin_ns(.param .u64 n)\n{ ret; }\n"
must(cuda.cuModuleLoadData(ref(module), image))
out["module"] = used()
must(cuda.cuLibraryLoadData(ref(library), image, None, None, 0, None, None, 0))
out["library"] = used()
must(cuda.cuLibraryGetModule(ref(loaded), library))
must(cuda.cuLibraryGetModule(ref(loaded), library))
out["loaded"] = used()
code, block = alloc(208 * MI)
out["full"] = [code, used(), alloc(512)[0]]
must(cuda.cuLibraryUnload(library))
out["unloaded"] = used()
must(cuda.cuCtxDestroy_v2(second)) # and its module with it, and the block
must(cuda.cuCtxSetCurrent(contexts[0]))
out["destroyed"] = used()
out["too_much"] = [alloc(230 * MI)[0], cuda.cuCtxCreate_v2(ref(second), 0, 0), used()]
must(cuda.cuCtxSetCurrent(contexts[0]))
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
use(0)
out["end"] = used()
""",
    )
    assert found == {
        "first": 40,
        "second": 80,
        "module": 86,
        "library": 86,
        "loaded": 92,
        "full": [0, 300, OUT_OF_MEMORY],
        "unloaded": 294,
        "destroyed": 40,
        "too_much": [0, OUT_OF_MEMORY, 270],
        "end": 40,
    }
    assert bench.high_water() <= LIMIT


def test_contexts_of_many_processes_fit_or_are_refused(make_bench: Callable[..., Bench], roads: Path) -> None:
    """Once the first has been measured, the limit holds to the byte whoever starts when."""
    bench = make_bench(driver={"context": "40Mi"})
    limit = 210 * MI
    bench.grant(memory=limit)
    assert bench.answer(roads, "link", "edge", "plain")["held"] == 170 * MI
    processes = [bench.start(roads, "gpa2", "fill", str(50 * MI)) for _ in range(8)]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    assert bench.usage().memory_bytes == bench.held() <= limit
    assert bench.high_water() <= limit
    assert all(
        process.context_bytes == 40 * MI for process in bench.usage().processes if process.memory_bytes
    )


def test_a_context_of_another_card_is_charged_there(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    found = run(bench, "use(0)\nout['small'] = used()\nuse(1)\nout['large'] = used()\n")
    assert found == {"small": 40, "large": 40}
