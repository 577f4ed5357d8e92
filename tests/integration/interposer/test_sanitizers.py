# SPDX-License-Identifier: Apache-2.0
"""The whole library, built with the compiler's checks, under the programs of the other tests.

The first thing that it does wrong (an address, an overflow, a race between threads) ends the program. The
driver beneath is built without checks; what threads share through the library is all that is watched.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import cache
from tests.integration.interposer.bench import MI, ROOT, Bench
from tests.integration.interposer.conftest import compiled

HERE = Path(__file__).parent
LIMIT = 300 * MI
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
PROGRAMS = [
    *(f"roads link edge {kind}" for kind in ("plain", "managed", "async", "keep", "pitch", "virtual")),
    *(f"roads link edge {kind}" for kind in ("array", "array3d", "mipmap", "graph")),
    "roads link race 8 2000 plain",
    *(f"roads link race 4 1000 {kind}" for kind in ("async", "keep", "virtual", "array")),
    "roads link mixed",
    "roads link contexts",
    "roads link fork",
    "roads link info",
    "storms kill 40",
    "storms stop 20",
    "storms fork 40",
    "storms crowd 20",
]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    directory = tmp_path_factory.mktemp("programs")
    return {name: compiled(HERE / f"{name}.c", directory) for name in ("roads", "storms", "launches")}


@pytest.fixture(scope="session")
def sanitized() -> Path:
    """The folder with a library per kind of check."""
    make = ["make", "-s", "-C", str(ROOT / "interposer"), f"PYTHON={sys.executable}", "sanitized"]
    with cache.locked("sanitized"):  # of several processes of pytest one builds
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return ROOT / "interposer" / "build" / "tests"


def runtime(check: str) -> str:
    """The sanitizer's own library, which must come first."""
    words = ["gcc", f"-print-file-name={RUNTIMES[check]}"]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(params=sorted(RUNTIMES))
def checked(request: pytest.FixtureRequest, make_bench: Callable[..., Bench], sanitized: Path) -> Bench:
    bench = make_bench(driver={"context": "1Mi", "module": "64Ki"}, preload=False)
    libraries = f"{runtime(request.param)} {sanitized / request.param / 'libtessera.so'}"
    # What the library keeps for the process's life is no leak; gcc's own checks find no end of them.
    options = {"ASAN_OPTIONS": "detect_leaks=0", "TSAN_OPTIONS": "halt_on_error=1"}
    bench.environment = {"LD_PRELOAD": libraries, **options}
    bench.grant(memory=LIMIT, cores=50)
    return bench


@pytest.mark.parametrize("words", PROGRAMS, ids=lambda words: words.replace(" ", "-"))
def test_a_program(checked: Bench, programs: dict[str, Path], words: str) -> None:
    name, *arguments = words.split()
    result = checked.run(programs[name], *arguments, timeout=240)
    assert (result.returncode, result.stderr) == (0, "")
    assert checked.high_water() <= LIMIT
    assert checked.usage().memory_bytes == 0
    assert checked.usage().peak_memory_bytes > 0 or words.endswith("info")  # it was there


@pytest.mark.parametrize("kind", ["plain", "keep", "virtual"])
def test_several_grants(checked: Bench, programs: dict[str, Path], kind: str) -> None:
    """Threads that spread blocks over two of them, and free."""
    for name in ("grant", "second"):
        checked.grant(name, memory=24 * MI)
    result = checked.run(programs["roads"], "link", "race", "4", "1000", kind)
    assert (result.returncode, result.stderr) == (0, "")
    assert 24 * MI < checked.high_water() <= 48 * MI
    assert [checked.usage(name).memory_bytes for name in ("grant", "second")] == [0, 0]


@pytest.mark.parametrize("how", ["kernel", "ex_ptsz", "cooperative", "graph"])
def test_launches(checked: Bench, programs: dict[str, Path], how: str) -> None:
    """Held back by the compute limit, in two streams, until it is killed."""
    process = checked.start(programs["launches"], how, "0.05,1", "2")
    deadline = time.monotonic() + 120
    while sum(each.launches for each in checked.usage().processes) < 100:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    assert process.communicate()[1] == ""
