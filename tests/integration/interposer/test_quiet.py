# SPDX-License-Identifier: Apache-2.0
"""What a program does all the time costs no system call: the kernel ends it at the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.conftest import compiled


@pytest.fixture(scope="session")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("quiet.c"), tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("cores", [0, 50], ids=["no compute limit", "compute limit"])
@pytest.mark.parametrize("way", ["bare", "preload", "shim"])
def test_calls_without_a_system_call(
    make_bench: Callable[..., Bench], quiet: Path, way: str, cores: int
) -> None:
    bench = make_bench(preload=way != "bare", shim=way == "shim")
    bench.grant(memory=300 * MI, cores=cores)
    result = bench.run(quiet)
    assert (result.returncode, result.stderr) == (0, "")
