# SPDX-License-Identifier: Apache-2.0
"""The library in the driver's place: nobody comes past it, however the driver is looked for."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, LARGE, MI, SHIM, SMALL, Bench
from tests.integration.interposer.test_memory import OUT_OF_MEMORY
from tests.integration.interposer.test_reach import LIBRARIES, hooks, output
from tests.integration.interposer.test_views import NVML

LIMIT = 300 * MI
ROADS = ["link", "dlsym", "next", "gpa1", "gpa2", "ptsz", "deepbind", "path", "libc", "walk"]


@pytest.fixture
def shim(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(shim=True)


@pytest.mark.parametrize("kind", ["plain", "async", "virtual", "array", "graph"])
@pytest.mark.parametrize("road", ROADS)
def test_limit_is_exact(shim: Bench, roads: Path, road: str, kind: str) -> None:
    shim.grant(memory=LIMIT)
    assert shim.answer(roads, road, "edge", kind) == {
        "held": LIMIT,
        "code": OUT_OF_MEMORY,
        "free": 0,
        "total": LIMIT,
        "free_after": LIMIT,
    }
    assert shim.high_water() == LIMIT


@pytest.mark.parametrize("road", ROADS)
def test_alone(make_bench: Callable[..., Bench], roads: Path, road: str) -> None:
    """Of a program that the loader preloads nothing for."""
    shim = make_bench(shim=True, preload=False)
    shim.grant(memory=LIMIT)
    assert shim.answer(roads, road, "edge", "plain")["held"] == LIMIT
    assert shim.high_water() == LIMIT


def usage_mappings(bench: Bench, roads: Path) -> int:
    """How many times a running program has its usage file mapped: once for each library that counts."""
    process = bench.start(roads, "link", "fill", str(MI))
    assert process.stdout is not None
    assert process.stdout.readline()
    return Path(f"/proc/{process.pid}/maps").read_text().count("/run/tessera/grants/grant/usage\n")


def test_beside_a_shim_the_preloaded_library_stands_aside(
    shim: Bench, make_bench: Callable[..., Bench], roads: Path
) -> None:
    """Two that count in one process would give back each other's slot."""
    preloaded = make_bench("preloaded")
    for each in (shim, preloaded):
        each.grant(memory=LIMIT)
    assert usage_mappings(shim, roads) == usage_mappings(preloaded, roads) == 1


@pytest.mark.parametrize("road", ["link", "dlsym", "gpa2", "ptsz"])
def test_another_driver_is_held_by_the_preloaded_library(shim: Bench, roads: Path, road: str) -> None:
    """As images bring it for CUDA's forward compatibility; the loader finds it before the shim."""
    shim.grant(memory=LIMIT)
    shim.environment["LD_LIBRARY_PATH"] = str(FAKE)
    assert shim.answer(roads, road, "edge", "plain")["held"] == LIMIT
    assert shim.high_water() == LIMIT


@pytest.mark.parametrize("road", ["deepbind", "libc", "walk"])
def test_these_roads_lead_past_a_preloaded_library(bench: Bench, roads: Path, road: str) -> None:
    """Or the test above shows nothing. Deep binding alone doesn't: dlsym itself is still the library's."""
    bench.grant(memory=LIMIT)
    found = bench.answer(roads, road, "info")[0]["total"]
    assert found == (LIMIT if road == "deepbind" else 24 << 30)


def test_views_and_compute(shim: Bench) -> None:
    """Both of the driver's names are one library: one slot of the usage file, whose lock nobody closes."""
    shim.grant("small", uuid=SMALL, memory=LIMIT, cores=50)
    shim.grant("large", uuid=LARGE, memory=LIMIT)
    script = NVML.replace(
        "pynvml.nvmlInit()",
        """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(100 << 20)) == 0
pynvml.nvmlInit()
""",
    )
    small, large = shim.answer(sys.executable, "-c", script)
    assert small["memory"] == small["memory_v2"] == [LIMIT, 100 * MI, 200 * MI]
    assert [bytes for _, bytes in small["processes"]] == [100 * MI]
    assert large["memory"] == [LIMIT, 0, LIMIT]
    burn = shim.answer(FAKE / "cuda-burn", "--kernel-ms", "1", "--seconds", "2", "--json")
    assert burn["kernels"] > 0
    assert shim.usage("small").memory_bytes == 0


def test_what_has_no_hook_is_the_drivers(shim: Bench, make_bench: Callable[..., Bench]) -> None:
    shim.grant(memory=LIMIT)
    script = """
import ctypes
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
version, count = ctypes.c_int(), ctypes.c_uint()
assert cuda.cuInit(0) == 0 and cuda.cuDriverGetVersion(ctypes.byref(version)) == 0
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0
assert not hasattr(cuda, "cuNever")
print(version.value, count.value)
"""
    assert shim.python(script) == make_bench("bare", preload=False).python(script) == "12080 2\n"


def test_without_grants_nothing_starts(shim: Bench, roads: Path) -> None:
    """It is only there where a grant is due."""
    result = shim.run(roads, "link", "info")
    assert (result.returncode, "cuInit: 802" in result.stderr) == (3, True)


def test_without_the_driver_nothing_starts(shim: Bench, roads: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shim.grant(memory=LIMIT)
    monkeypatch.setattr(Bench, "mounted_driver", lambda _: "")
    result = shim.run(roads, "link", "info")
    assert result.returncode == 127
    assert "/run/tessera/driver/libcuda.so.1: cannot open shared object file" in result.stderr


def test_exports_are_the_hooks() -> None:
    listing = output("nm", "-D", "--defined-only", abi.library_path().with_name("libtessera-shim.so"))
    assert {line.split()[-1] for line in listing.splitlines()} == hooks() | {"tessera_shim"}


def test_it_is_built_for_both_machines() -> None:
    for name in SHIM:
        assert {path.parent.name for path in LIBRARIES if path.name == name} == {"x86_64", "aarch64"}
