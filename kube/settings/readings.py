"""What a setting may be: text of a flag or variable, or a plain value of a YAML file → the setting's value.

Each function makes a reading; a reading raises ValueError with the rest of the sentence "X can't be Y: …".
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path
from typing import Any

Reading = Callable[[Any], Any]
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


def text(pattern: str, wanted: str) -> Reading:
    """`wanted`: what to write instead."""

    def reading(value: Any) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value) is None:
            raise ValueError(f"write {wanted}")
        return value

    return reading


def words(pattern: str, wanted: str, least: int = 1) -> Reading:
    """At least so many, each as `pattern`: with commas in between, or a YAML list → a tuple."""

    def reading(value: Any) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        found = tuple(str(part).strip() for part in parts if str(part).strip())
        if len(found) < least or any(re.fullmatch(pattern, part) is None for part in found):
            raise ValueError(f"write {wanted}")
        return found

    return reading


def one_of(*words: str) -> Reading:
    """One of these words."""

    def reading(value: Any) -> str:
        if value not in words:
            raise ValueError(f"write {', '.join(words[:-1])} or {words[-1]}")
        return str(value)

    return reading


def absolute_path(value: Any) -> Path:
    if not isinstance(value, str) or not value.startswith("/") or "\0" in value:
        raise ValueError("the path must be absolute, since others use it too")
    return Path(value)


def whole(least: int, most: int) -> Reading:
    """A whole number."""

    def reading(value: Any) -> int:
        try:
            number = value if type(value) is int else int(value) if isinstance(value, str) else least - 1
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ValueError(f"write a whole number from {least} to {most}")
        return number

    return reading


def decimal(least: str, most: str) -> Reading:
    """An exact Fraction: 1.1 is eleven tenths."""
    lowest, highest = Decimal(least), Decimal(most)

    def reading(value: Any) -> Fraction:
        try:
            number = Decimal("NaN" if isinstance(value, bool) else str(value))
        except InvalidOperation:
            number = Decimal("NaN")
        # Before it becomes a Fraction: 1e999999999 would take all memory there is.
        if not number.is_finite() or not lowest <= number <= highest:
            raise ValueError(f"write a number from {least} to {most}")
        return Fraction(number)

    return reading


def seconds(least: str, most: str) -> Reading:
    """A number of seconds."""
    exact = decimal(least, most)
    return lambda value: float(exact(value))


def switch(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower()
    if word not in _TRUE + _FALSE:
        raise ValueError("write true or false")
    return word in _TRUE


def numbers(least: int, most: int) -> Reading:
    """A set: with commas in between, or a YAML list."""
    each = whole(least, most)

    def reading(value: Any) -> frozenset[int]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        try:
            return frozenset(each(part) for part in (value if isinstance(value, list) else [value]))
        except ValueError as error:
            raise ValueError(f"{error}, or several with commas in between") from error

    return reading


def address(value: Any) -> str:
    """ADDRESS:PORT."""
    host, _, port = str(value).rpartition(":")
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
        is_usable = port.isascii() and port.isdigit() and int(port) <= 65535
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ValueError("write ADDRESS:PORT, such as [::]:9470, which is IPv4, too, or 10.0.0.1:9470")
    return str(value)
