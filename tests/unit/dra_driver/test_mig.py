from __future__ import annotations

import pytest

from dra_driver.cards.mig import profile_name

GIB = 1 << 30


@pytest.mark.parametrize(
    ("gpu_slices", "compute_slices", "memory_mib", "card_bytes", "expected"),
    [
        pytest.param(1, 1, 4864, 40 * GIB - (500 << 20), "1g.5gb", id="a100-40"),
        pytest.param(3, 3, 20096, 40 * GIB - (500 << 20), "3g.20gb", id="a100-40-half"),
        pytest.param(7, 7, 40192, 40 * GIB - (500 << 20), "7g.40gb", id="a100-40-all"),
        pytest.param(1, 1, 9728, 80 * GIB, "1g.10gb", id="a100-80"),
        pytest.param(2, 1, 19968, 80 * GIB, "1c.2g.20gb", id="a-part-of-a-gpu-instance"),
        pytest.param(4, 4, 40192, 80 * GIB, "4g.40gb", id="four-slices"),
    ],
)
def test_profile_name(
    gpu_slices: int, compute_slices: int, memory_mib: int, card_bytes: int, expected: str
) -> None:
    assert profile_name(gpu_slices, compute_slices, memory_mib, card_bytes) == expected
