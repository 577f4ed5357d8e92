"""The numbers of HAMi's resource names: what a quantity means there, and what is refused.

Decimal suffixes multiply (the API server itself writes 3000 as `3k`); binary suffixes count bytes where the
field counts MiB, so they are refused together with the number that was probably meant. Nothing is rounded,
and nothing that can't be read ever means 'unlimited'.
"""

from __future__ import annotations

import math
from fractions import Fraction

from claim_mutator.names import MAX_DEVICES, MEBIBYTE
from kube.quantity import QuantityError, parse_quantity

LARGEST_MEMORY = 16 << 20
"""MiB. No card comes near 16 TiB; what is above counts bytes, or is a slip."""


class AmountError(ValueError):
    """A value that can't be honoured; the message says why and what to write."""


def mebibytes(value: str | float, factor: int = 1) -> int:
    """Memory of a card's share, in MiB; 0 means not set. factor: MiB of one unit. Raises AmountError."""
    unit = "MiB" if factor == 1 else f"units of {factor} MiB"
    if isinstance(value, str) and value.endswith("i"):
        meant = max(1, math.ceil(_quantity(value) / (MEBIBYTE * factor)))
        raise AmountError(f"has a binary suffix, but this field counts {unit}: write {meant}")
    number = _whole(value, unit)
    if number * factor > LARGEST_MEMORY:
        raise AmountError(
            f"is {number * factor} MiB, more than any card has; this field counts {unit}:"
            f" {_guess(value, number, factor)}"
        )
    return number * factor


def percent_of_memory(value: str | float) -> int:
    """0 to 100; 0 means not set. Raises AmountError."""
    return _up_to_hundred(value, "percent of a card's memory")


def percent_of_cores(value: str | float) -> int:
    """0 to 100; 0 means no limit. Raises AmountError."""
    return _up_to_hundred(value, "percent of a card's compute")


def cards(value: str | float) -> int:
    """How many different cards. Raises AmountError."""
    number = _whole(value, "cards")
    if number > MAX_DEVICES:
        raise AmountError(
            f"is more than the {MAX_DEVICES} cards that one Pod can have: write at most {MAX_DEVICES}"
        )
    return number


def priority(value: str | float) -> int:
    """0 (high) or 1 (low). Raises AmountError."""
    number = _whole(value, "a priority")
    if number > 1:
        raise AmountError("is out of range: write 0 (high) or 1 (low)")
    return number


def _up_to_hundred(value: str | float, unit: str) -> int:
    number = _whole(value, unit)
    if number > 100:
        raise AmountError(f"is out of range, this field is {unit}: write a number from 0 to 100")
    return number


def _whole(value: str | float, unit: str) -> int:
    number = _quantity(value)
    if number < 0:
        raise AmountError(f"is negative: write a number of {unit}, at least 0")
    if number.denominator != 1:
        raise AmountError(f"is not a whole number of {unit}: write {math.ceil(number)}")
    return int(number)


def _quantity(value: str | float) -> Fraction:
    try:
        return parse_quantity(repr(value) if isinstance(value, float) else value)
    except QuantityError as error:
        raise AmountError("is not a quantity: write a plain number such as 3000") from error


def _guess(value: str | float, number: int, factor: int) -> str:
    """What somebody meant who wrote bytes, or a suffix that multiplies twice."""
    suffix = value[-1:] if isinstance(value, str) else ""
    gibibytes = number // 10**9
    candidates = (
        (number // MEBIBYTE if number % MEBIBYTE == 0 else 0, ""),
        (gibibytes * 1024 if suffix in "GT" and suffix else 0, f"for {gibibytes} GiB "),
        (number // 10**6 if suffix == "M" else 0, ""),
    )
    for meant, words in candidates:
        if 0 < meant <= LARGEST_MEMORY:
            return f"{words}write {math.ceil(meant / factor)}"
    return f"write at most {LARGEST_MEMORY // factor}"
