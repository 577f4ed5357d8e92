# SPDX-License-Identifier: Apache-2.0
"""What contexts and modules take is measured, and charged like all other memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.integration.interposer.bench import LARGE, MI, PATIENCE, SMALL, Bench, finished
from tests.integration.interposer.families import CUDA, LIMIT, OUT_OF_MEMORY, run


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


IMAGE = r"""
image = b".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry spin_ns(.param .u64 n)\n{ ret; }\n"
library, module = P(), P()
must(cuda.cuLibraryLoadData(ref(library), image, None, None, 0, None, None, 0))
"""


def test_a_library_is_charged_where_it_is_loaded(make_bench: Callable[..., Bench]) -> None:
    """In each context that uses it, and until that ends or the library is unloaded."""
    bench = make_bench(driver={"module": "6Mi"})
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=LIMIT)
    found = run(
        bench,
        f"""
{IMAGE}
use(0)
second = P()
must(cuda.cuCtxCreate_v2(ref(second), 0, 0))
must(cuda.cuLibraryGetModule(ref(module), library))
must(cuda.cuCtxSetCurrent(contexts[0]))
must(cuda.cuLibraryGetModule(ref(module), library))
use(1)
must(cuda.cuLibraryGetModule(ref(module), library))
def step(name):
    out[name] = []
    for context in contexts:
        must(cuda.cuCtxSetCurrent(context))
        out[name].append(used())
step("loaded")
must(cuda.cuCtxDestroy_v2(second))
step("one-ended")
must(cuda.cuLibraryUnload(library))
step("unloaded")
""",
    )
    assert found == {"loaded": [12, 6], "one-ended": [6, 6], "unloaded": [0, 0]}


def test_what_is_loaded_on_first_use_is_charged_where_it_does_not_fit(
    make_bench: Callable[..., Bench],
) -> None:
    """It can't be unloaded by itself, so it stays: the refusal is told once, and nothing else fits."""
    bench = make_bench(driver={"module": "60Mi"})
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        f"""
{IMAGE}
use(0)
code, block = alloc(250 * MI)
out["loads"] = [cuda.cuLibraryGetModule(ref(module), library) for _ in range(2)]
must(cuda.cuMemFree_v2(block))
out["held"] = used()
must(cuda.cuLibraryUnload(library))
out["unloaded"] = used()
""",
    )
    assert found == {"loads": [OUT_OF_MEMORY, 0], "held": 60, "unloaded": 0}


USED = "out['used'] = used()\nprint(json.dumps(out))\n"
FIRST = CUDA + "use(0)\n" + USED
"""A process's first context, as cudart makes it."""

OTHERS = {
    "created": (CUDA + "must(cuda.cuCtxCreate_v2(ref(P()), 0, 0))\n" + USED, {}),
    "flags": (CUDA + "must(cuda.cuDevicePrimaryCtxSetFlags_v2(0, 8))\nuse(0)\n" + USED, {}),
    "environment": (FIRST, {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}),
    "devices": (FIRST, {"FAKEGPU_DEV": "{one_card}"}),
}


def charged(
    bench: Bench,
    program: str = FIRST,
    environment: Mapping[str, str] | None = None,
    timeout: float = PATIENCE,
) -> int:
    """MiB that a process shows as used."""
    result = bench.run(sys.executable, "-c", program, environment=environment, timeout=timeout)
    assert result.returncode == 0, result.stderr
    return int(json.loads(result.stdout)["used"])


def contexts_take(bench: Bench, size: str, **more: str) -> None:
    """From now on; the card is as new, the grant as it was."""
    bench.driver = {"context": size, **more}
    bench.control("init", str(bench.state), str(bench.inventory()))


@pytest.fixture
def learnt(make_bench: Callable[..., Bench]) -> Bench:
    """Two processes have measured the same."""
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant(memory=LIMIT)
    assert [charged(bench), charged(bench)] == [40, 40]
    return bench


def test_what_two_processes_have_measured_others_take_over(learnt: Bench) -> None:
    """NVML, which answers nobody any more, isn't asked; but for a context of another kind."""
    learnt.control("nvml", str(learnt.state), "--hang")
    assert [charged(learnt), charged(learnt)] == [40, 40]
    with pytest.raises(subprocess.TimeoutExpired):
        charged(learnt, environment={"CUDA_LAUNCH_BLOCKING": "1"}, timeout=2)


@pytest.mark.parametrize(("program", "environment"), OTHERS.values(), ids=OTHERS)
def test_a_context_of_another_kind_is_measured(
    learnt: Bench, program: str, environment: dict[str, str]
) -> None:
    contexts_take(learnt, "56Mi")
    one_card = learnt.directory / "one-card"
    shutil.copytree(learnt.devices, one_card, ignore=shutil.ignore_patterns("nvidia1"))
    environment = {key: value.format(one_card=one_card) for key, value in environment.items()}
    assert charged(learnt) == 40  # nothing has told that driver from this one
    assert charged(learnt, program, environment) == 56
    assert charged(learnt) == 56  # what is believed of the one is not of the other


def test_later_contexts_of_a_process_are_measured(learnt: Bench) -> None:
    """And what was taken over is put right by what NVML then shows of the process."""
    contexts_take(learnt, "56Mi")
    assert charged(learnt, CUDA + "use(0)\nmust(cuda.cuCtxCreate_v2(ref(P()), 0, 0))\n" + USED) == 112


def test_a_context_of_a_card_without_a_grant_is_a_process_s_first_too(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant(memory=LIMIT)
    both = CUDA + "use(1)\nuse(0)\n" + USED
    assert [charged(bench, both) for _ in range(3)] == [40, 40, 40]
    bench.control("nvml", str(bench.state), "--hang")
    with pytest.raises(subprocess.TimeoutExpired):
        charged(bench, both, timeout=2)


def test_where_nvml_shows_no_process_the_card_s_free_memory_tells(make_bench: Callable[..., Bench]) -> None:
    """A neighbour that allocates meanwhile spoils a figure, which then is nobody else's."""
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant(memory=LIMIT)
    bench.environment["FAKEGPU_HIDES_PROCESSES"] = "1"
    assert charged(bench) == 40
    contexts_take(bench, "40Mi", context_us="5000000")
    spoilt = bench.start(sys.executable, "-c", FIRST)
    while bench.held() == 0:  # it has looked then, and has its context, which still takes its time
        assert spoilt.poll() is None, spoilt.communicate()
        time.sleep(0.01)
    bench.control("stranger", str(bench.state), "0", str(90 * MI))
    assert finished(spoilt)["used"] == 130
    contexts_take(bench, "40Mi")
    assert [charged(bench), charged(bench)] == [40, 40]
    bench.control("nvml", str(bench.state), "--hang")
    assert charged(bench) == 40


def test_a_process_that_nvml_does_not_show_makes_the_next_ones_look_otherwise(
    make_bench: Callable[..., Bench],
) -> None:
    bench = make_bench(driver={"context": "40Mi"})
    bench.grant(memory=LIMIT)
    hidden = {"FAKEGPU_HIDES_PROCESSES": "1"}
    assert charged(bench) == 40
    assert charged(bench, environment=hidden) == 40
    contexts_take(bench, "56Mi")
    assert charged(bench, environment=hidden) == 56
