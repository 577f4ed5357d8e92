"""Kubernetes quantities: exact parsing, and printing in the form that the API server itself prints.

`parse_quantity` never rounds: the result is a Fraction, and the caller decides what a fraction of a unit
means. Text that Kubernetes refuses is refused here too, with a message for people.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

_FORM = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)"
    r"(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]+))?",
    re.ASCII,
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_MAX_DIGITS = 64  # far beyond what any quantity holds; bounds the cost of hostile text
_MAX_EXPONENT = 64


class QuantityError(ValueError):
    """Text that is no Kubernetes quantity. The message says what a quantity looks like."""


def parse_quantity(text: str | int) -> Fraction:
    """`3000`, `3k`, `5Gi`, `1500m`, `1e3` → its exact value. Raises QuantityError."""
    if isinstance(text, bool):
        raise QuantityError(f"{text!r} is not a quantity: write a number such as 3000")
    if isinstance(text, int):
        return Fraction(text)
    return _parsed(text)


@functools.lru_cache(maxsize=1024)  # a cluster's claims and slices say the same few again and again
def _parsed(text: str) -> Fraction:
    match = _FORM.fullmatch(text)
    if match is None:
        raise QuantityError(f"{text!r} is not a quantity: write a number such as 3000, 3k, 5Gi or 500m")
    if len(match["number"]) > _MAX_DIGITS:
        raise QuantityError(f"{text[:20]!r}… is not a quantity that can be used: it has too many digits")
    # "5." is a quantity for Kubernetes, but not a number for Fraction.
    value = Fraction(match["number"].rstrip(".") if match["number"] != "." else "0")
    if match["sign"] == "-":
        value = -value
    if match["exponent"] is not None:
        exponent = int(match["exponent"][:8])
        if abs(exponent) > _MAX_EXPONENT:
            raise QuantityError(f"{text!r} is not a quantity that can be used: its exponent is out of range")
        return value * _power_of_ten(exponent)
    suffix = match["suffix"]
    if suffix is None:
        return value
    if suffix in _BINARY:
        return value * (1 << 10 * _BINARY[suffix])
    return value * _power_of_ten(_DECIMAL[suffix])


def _power_of_ten(exponent: int) -> Fraction:
    return Fraction(10**exponent) if exponent >= 0 else Fraction(1, 10**-exponent)


def format_bytes(number: int) -> str:
    """Bytes in Kubernetes' BinarySI form: 3145728000 → `3000Mi`. Exact: what no suffix divides has none."""
    if -1024 < number < 1024:  # Kubernetes prints these as decimals
        return f"{number // 1000}k" if number and number % 1000 == 0 else str(number)
    for suffix, power in reversed(_BINARY.items()):
        if number % 1024**power == 0:
            return f"{number // 1024**power}{suffix}"
    return str(number)


def format_number(number: int) -> str:
    """A plain integer quantity: `30`, `1000` (the server prints the latter as `1k`; the two are equal)."""
    return str(number)
