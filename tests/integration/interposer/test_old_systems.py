# SPDX-License-Identifier: Apache-2.0
"""What is built here runs under an older system's loader and libraries, and on aarch64.

The builds ask for nothing newer than glibc 2.17 (test_reach reads that from the files). Of the systems that
can still be had, Debian 11 is an old one: libdl and libpthread are no part of libc there, as before 2.34.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.cluster import cache
from tests.integration.interposer import debian
from tests.integration.interposer.bench import FAKE, MI, ROOT, Bench
from tests.integration.interposer.test_reach import LIBRARIES, output

LIMIT = 300 * MI
EDGES = [("link", "plain"), ("dlsym", "async"), ("next", "virtual"), ("gpa2", "pool"), ("ptsz", "array")]
MOST_ADDRESSES = 48 << 30
"""An emulator keeps note of each page that the fake driver reserves: it gets less of them."""
NEWEST = (2, 17)


@pytest.fixture(scope="session", params=["x86_64", "aarch64"])
def machine(request: pytest.FixtureRequest) -> str:
    if platform.machine() != "x86_64":
        pytest.skip("the loaders of both machines are run from x86_64")
    return str(request.param)


@pytest.fixture(scope="session")
def system(machine: str) -> Path:
    try:
        return debian.unpacked("libc6", machine)
    except debian.UnavailableError as error:
        pytest.skip(f"no older system's libc: {error}")


@pytest.fixture(scope="session")
def fake(machine: str) -> Path:
    make = [
        "make",
        "-s",
        "-C",
        str(ROOT / "tests" / "fakegpu"),
        f"ARCH={machine}",
        f"PYTHON={sys.executable}",
    ]
    with cache.locked("fakegpu"):
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return FAKE.with_name(machine)


@pytest.fixture(scope="session")
def program(machine: str, fake: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("programs") / machine
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu.2.17"]
    libraries = [f"-L{fake}", "-lcuda", "-ldl", "-lpthread"]
    source = Path(__file__).with_name("roads.c")
    subprocess.run([*compiler, "-std=gnu11", "-O1", source, "-o", program, *libraries], check=True)
    return program


@pytest.fixture
def started(machine: str, system: Path, fake: Path) -> list[str]:
    """The words before a program's: what runs it in the older system, with the library."""
    libraries = system / "lib" / f"{machine}-linux-gnu"
    library = abi.library_path().parent.with_name(machine) / "libtessera.so"
    variables = {"LD_PRELOAD": str(library), "LD_LIBRARY_PATH": f"{libraries}:{fake}"}
    if machine == "x86_64":
        loader = libraries / "ld-linux-x86-64.so.2"
        return ["env", *(f"{name}={value}" for name, value in variables.items()), str(loader)]
    try:
        emulator = debian.emulator()
    except debian.UnavailableError as error:
        pytest.skip(f"no emulator: {error}")
    inside = [word for name, value in variables.items() for word in ("-E", f"{name}={value}")]
    return ["prlimit", f"--as={MOST_ADDRESSES}", str(emulator), "-L", str(system), *inside]


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench(preload=False)  # `started` does it, for the program alone
    bench.grant(memory=LIMIT, cores=50)
    return bench


@pytest.mark.parametrize(("road", "kind"), EDGES)
def test_the_limit_is_exact(bench: Bench, started: list[str], program: Path, road: str, kind: str) -> None:
    found = bench.answer(*started, program, road, "edge", kind)
    assert (found["held"], found["code"], found["free"], found["total"]) == (LIMIT, 2, 0, LIMIT)
    assert bench.high_water() == LIMIT


def test_threads_and_forks(bench: Bench, started: list[str], program: Path) -> None:
    assert set(bench.answer(*started, program, "link", "race", "4", "1000")) <= {"0", "2"}
    assert bench.answer(*started, program, "link", "fork") == {"both": 2 * MI, "alone": MI}
    assert (bench.usage().memory_bytes, bench.held()) == (0, 0)


def test_the_older_loader_is_the_one_that_runs(system: Path, machine: str) -> None:
    libc = os.path.realpath(system / "lib" / f"{machine}-linux-gnu" / "libc.so.6")
    assert Path(libc).name == "libc-2.31.so"


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_objdump_knows_of_nothing_newer(library: Path) -> None:
    """The versions of glibc that the dynamic section asks for, in the words of binutils."""
    headers = output("objdump", "-p", library)
    assert "file format elf64" in headers
    needed = headers.partition("Version References:")[2]
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", needed)}
    assert all(version <= NEWEST for version in versions)
    assert "GLIBC_PRIVATE" not in needed
    assert versions or library.stem == "libtessera-shim-nvml"
