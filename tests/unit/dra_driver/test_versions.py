from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.versions import cuda_version, semver

# The pattern that semver.org publishes.
SEMVER = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("570.124.06", "570.124.6", id="leading-zero"),
        pytest.param("440.33", "440.33.0", id="two-parts"),
        pytest.param("8", "8.0.0", id="one-part"),
        pytest.param("535.104.05.01", "535.104.5+1", id="four-parts"),
        pytest.param("12.8", "12.8.0", id="cuda"),
        pytest.param("0.0.0", "0.0.0", id="zeros"),
        pytest.param("000.00.0", "0.0.0", id="many-zeros"),
        pytest.param("565.57.01-beta", "565.57.1+beta", id="suffix"),
        pytest.param("570.86 (R570, x86_64)", "570.86.0+R570.x86.64", id="words"),
        pytest.param("535.104.05.01-rc.2", "535.104.5+1.rc.2", id="four-parts-and-a-suffix"),
        pytest.param("570.124.6+1", "570.124.6+1", id="metadata-of-its-own"),
        pytest.param("570.", "570.0.0", id="a-dot-at-the-end"),
        pytest.param("18446744073709551615.1", "18446744073709551615.1.0", id="the-largest-number"),
        pytest.param("18446744073709551616.1", "0.0.0", id="more-than-64-bits"),
        pytest.param("1" * 70, "0.0.0", id="too-long"),
        pytest.param("1.2.3-" + "x" * 70, "1.2.3", id="metadata-too-long"),
        pytest.param("٣.1", "0.0.0+1", id="digits-of-another-script"),
        pytest.param("", "0.0.0", id="empty"),
        pytest.param("unknown", "0.0.0+unknown", id="no-number"),
    ],
)
def test_semver(text: str, expected: str) -> None:
    assert semver(text) == expected


@given(st.text())
def test_always_semver(text: str) -> None:
    assert SEMVER.fullmatch(semver(text))
    assert len(semver(text)) <= 64


@given(
    st.lists(st.integers(0, 99999), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_numbers_survive_padding(numbers: list[int], zeros: list[int]) -> None:
    text = ".".join("0" * pad + str(number) for number, pad in zip(numbers, zeros, strict=True))
    assert semver(text) == ".".join(map(str, numbers))
    assert semver(semver(text)) == semver(text)


@pytest.mark.parametrize(("number", "expected"), [(12080, "12.8.0"), (10020, "10.2.0"), (13000, "13.0.0")])
def test_cuda_version(number: int, expected: str) -> None:
    assert cuda_version(number) == expected
