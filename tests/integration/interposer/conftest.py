"""One compiled client program per run, one bench per test."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, Bench

SOURCE = Path(__file__).with_name("roads.c")


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """The library and the fake driver are there: `make build` makes both."""
    for path in (abi.library_path(), FAKE / "libcuda.so.1", FAKE / "libnvidia-ml.so.1", FAKE / "cuda-burn"):
        if not path.exists():
            pytest.fail(f"{path} is missing: `make build` makes it")


def compiled(source: Path, directory: Path) -> Path:
    """Linked against the driver, for the same old glibc as everything that ships."""
    program = directory / source.stem
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]
    libraries = [f"-L{FAKE}", "-lcuda", "-ldl", "-lpthread"]
    subprocess.run([*compiler, *flags, source, "-o", program, *libraries], check=True)
    return program


@pytest.fixture(scope="session")
def roads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE, tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def launches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(SOURCE.with_name("launches.c"), tmp_path_factory.mktemp("programs"))


@pytest.fixture
def make_bench(tmp_path: Path) -> Iterator[Callable[..., Bench]]:
    """Benches by name; what is still running in them at the end is killed."""
    benches: list[Bench] = []

    def make(name: str = "bench", **values: Any) -> Bench:
        directory = tmp_path / name
        directory.mkdir()
        benches.append(Bench(directory, **values))
        return benches[-1]

    yield make
    for bench in benches:
        bench.close()


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    return make_bench()
