# SPDX-License-Identifier: Apache-2.0
"""What a forked child is answered, whichever lock of the library a thread of its parent had just then."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.interposer.bench import MI, Bench, answer_of
from tests.integration.interposer.conftest import compiled


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(Path(__file__).with_name("forks.c"), tmp_path_factory.mktemp("programs"))


@pytest.mark.parametrize("way", ["preload", "shim"])
def test_a_child_waits_for_no_thread_of_its_parent(
    make_bench: Callable[..., Bench], forks: Path, way: str
) -> None:
    bench = make_bench(shim=way == "shim")
    bench.grant(memory=300 * MI, cores=50)
    assert answer_of(bench.run(forks, "300", timeout=300)) == {"forks": 300}
