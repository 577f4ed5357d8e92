"""Quantities: Kubernetes' forms, its refusals, its printing."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.quantity import QuantityError, format_bytes, format_number, parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("3000", Fraction(3000)),
        ("3k", Fraction(3000)),
        ("81k", Fraction(81_000)),
        ("1M", Fraction(1_000_000)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("5e-1", Fraction(1, 2)),
        ("1E", Fraction(10**18)),
        ("5Gi", Fraction(5 << 30)),
        ("0.5Gi", Fraction(1 << 29)),
        ("1500m", Fraction(3, 2)),
        ("7u", Fraction(7, 1_000_000)),
        ("7n", Fraction(7, 10**9)),
        ("+5", Fraction(5)),
        ("-5Gi", Fraction(-(5 << 30))),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        (12, Fraction(12)),
    ],
    ids=str,
)
def test_parses(text: str | int, value: Fraction) -> None:
    assert parse_quantity(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", ".", "200MB", "5 Gi", "3G B", "K", "5K", "1i", "0x10", "1e", "--1", "1_000", "٣", "nan", "inf",
     "1e3Ki", "9" * 100, "1e999999999999", "1e-99", "3Gi\n", True],
    ids=repr,
)  # fmt: skip
def test_refuses(text: str) -> None:
    with pytest.raises(QuantityError, match="quantity"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1000, "1k"),
        (1023, "1023"),
        (1024, "1Ki"),
        (1536, "1536"),
        (3_145_728_000, "3000Mi"),
        (80 << 30, "80Gi"),
        (1 << 60, "1Ei"),
        (-(5 << 30), "-5Gi"),
        ((24 << 30) + 1, "25769803777"),
    ],
    ids=str,
)
def test_prints_bytes_as_kubernetes_does(number: int, text: str) -> None:
    assert format_bytes(number) == text


@given(st.integers(-(1 << 62), 1 << 62))
def test_printing_never_rounds(number: int) -> None:
    assert parse_quantity(format_bytes(number)) == number
    assert parse_quantity(format_number(number)) == number


@given(st.text(alphabet="0123456789.+-eEkKMGTPimnu ", max_size=12))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        value = parse_quantity(text)
    except QuantityError:
        return
    assert isinstance(value, Fraction)


@given(st.text())
def test_no_unicode_breaks_the_parser(text: str) -> None:
    try:
        parse_quantity(text)
    except QuantityError as error:
        assert str(error)
