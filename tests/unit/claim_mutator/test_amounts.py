"""Properties of the readers of numbers: nothing breaks them, nothing is rounded or becomes unlimited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from claim_mutator import amounts
from claim_mutator.amounts import AmountError

READERS = (
    amounts.mebibytes,
    amounts.percent_of_memory,
    amounts.percent_of_cores,
    amounts.cards,
    amounts.priority,
)


@given(st.integers(0, amounts.LARGEST_MEMORY), st.sampled_from(["{}", "{}000m", "+{}", "{}e0", "{}.0"]))
def test_memory_is_exact_in_every_decimal_form(number: int, form: str) -> None:
    assert amounts.mebibytes(form.format(number)) == number


@given(st.integers(0, amounts.LARGEST_MEMORY // 1000))
def test_thousands(number: int) -> None:
    assert amounts.mebibytes(f"{number}k") == number * 1000


@given(st.integers(1, 10_000), st.sampled_from(["Ki", "Mi", "Gi", "Ti"]))
def test_binary_suffixes_are_never_accepted(number: int, suffix: str) -> None:
    with pytest.raises(AmountError, match=r"write [0-9]+"):
        amounts.mebibytes(f"{number}{suffix}")


@given(
    st.one_of(st.text(), st.integers(), st.floats(), st.from_regex(r"[-+]?[0-9.]{1,5}[eEkKMGTPmnu0-9i]{0,3}"))
)
def test_refused_or_within_range(value: str | float) -> None:
    for reader in READERS:
        try:
            number = reader(value)
        except AmountError as error:
            assert str(error)
        else:
            assert 0 <= number <= amounts.LARGEST_MEMORY
