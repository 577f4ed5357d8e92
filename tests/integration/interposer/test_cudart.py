# SPDX-License-Identifier: Apache-2.0
"""The driver as CUDA runtimes come to it: their look-ups in their order, then their calls.

`cudart/*.txt` are the look-ups of libcudart 11.8.89, 12.1.105, 12.9.79 and 13.5.37, recorded at their first
call. The runtimes themselves need a genuine driver, so `cudart.c` does it in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.conftest import compiled

HERE = Path(__file__).parent
RUNTIMES = sorted((HERE / "cudart").glob("*.txt"))
LIMIT = 300 * MI
DRIVER = {"cuda": "13.5", "context": "4Mi"}


@pytest.fixture(scope="session")
def cudart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(HERE / "cudart.c", tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("streams", ["legacy", "per-thread"])
@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda path: path.stem)
def test_a_runtime(
    make_bench: Callable[..., Bench], cudart: Path, runtime: Path, shim: bool, streams: str
) -> None:
    """Within the share, by every look-up that it makes; and what the driver has not, it still has not."""
    bare = make_bench("bare", preload=False, driver=DRIVER)
    bench = make_bench("bench", shim=shim, driver=DRIVER)
    bench.grant(memory=LIMIT, cores=50)
    found = bench.answer(cudart, runtime, streams)
    blocks = (LIMIT - 4 * MI) // (8 * MI)
    assert found == {
        "lookups": len(runtime.read_text().splitlines()),
        "device_total": LIMIT,
        "total": LIMIT,
        "free": LIMIT - 4 * MI,
        "plain": [blocks, 2],
        "async": [blocks, 2],
        "missing": bare.answer(cudart, runtime, streams)["missing"],
    }
    assert bench.high_water() <= LIMIT
    assert bench.busy_seconds() >= 0.006  # three kernels of 2 ms, one in a graph


def test_the_runtimes_are_there() -> None:
    assert [path.stem for path in RUNTIMES] == ["11.8", "12.1", "12.9", "13.5"]
