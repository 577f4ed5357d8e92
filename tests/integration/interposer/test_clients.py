# SPDX-License-Identifier: Apache-2.0
"""Real programs of the driver API, from PyPI: they stay within the share, and go on after a refusal.

They run in an environment of their own, which `make clients` makes. Kernels are compiled by NVIDIA's compiler
and launched; the fake driver only takes their time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.interposer.bench import MI, ROOT, Bench, answer_of

PYTHON = ROOT / ".venv" / "clients" / "bin" / "python"
LIMIT = 300 * MI
CONTEXT = 8 * MI


@pytest.fixture(params=["preload", "shim"])
def bench(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench(
        shim=request.param == "shim", driver={"cuda": "13.0", "context": "8Mi", "kernel_us": "1000"}
    )
    bench.grant(memory=LIMIT, cores=50)
    return bench


def answered(bench: Bench, client: str) -> Any:
    if not PYTHON.exists():
        pytest.fail(f"{PYTHON} is missing: `make clients` makes it")
    program = Path(__file__).with_name(client)
    home = bench.directory / "home"  # numba keeps what it has compiled
    found = answer_of(bench.run(PYTHON, program, environment={"HOME": str(home)}, timeout=300))
    assert bench.high_water() <= LIMIT
    assert bench.held() == 0
    assert bench.usage().peak_memory_bytes == bench.high_water()
    return found


def test_cuda_bindings(bench: Bench) -> None:
    blocks = (LIMIT - CONTEXT) // (8 * MI)
    refused = [blocks, "CUDA_ERROR_OUT_OF_MEMORY"]
    assert answered(bench, "client_bindings.py") == {
        "total": LIMIT,
        "memory": [LIMIT - CONTEXT, LIMIT],
        "plain": refused,
        "managed": refused,
        "async": refused,
        "virtual": refused,
        "again": [LIMIT - CONTEXT, LIMIT],
    }


def test_numba_compiles_and_launches(bench: Bench) -> None:
    found = answered(bench, "client_numba.py")
    small = 8192  # the array of the first launch
    assert found == {
        "first": [0.0, 1.0, 2.0],
        "memory": [LIMIT - CONTEXT - small, LIMIT],
        "blocks": (LIMIT - CONTEXT - small) // (32 * MI),
        "code": 2,
        "again": [LIMIT - CONTEXT, LIMIT],
        "after": [0.0, 1.0, 2.0],
    }
    assert bench.busy_seconds() > 0
