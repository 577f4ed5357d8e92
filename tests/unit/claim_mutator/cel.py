"""The part of CEL that our selectors use, evaluated strictly: what is not there raises, as for the scheduler.

&& and || do not even forgive an error on the other side, as CEL would.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from kube.quantity import parse_quantity

DRIVER = "gpu.tessera.dev"


class NoSuchKey(Exception):  # noqa: N818 - CEL's own name for it
    """An attribute or capacity that the device lacks."""


class _Text(str):
    __slots__ = ()

    def __radd__(self, other: str) -> _Text:
        return _Text(other + str(self))

    def contains(self, part: str) -> bool:
        return part in self

    def lowerAscii(self) -> _Text:  # noqa: N802 - CEL's name
        return _Text("".join(char.lower() if char.isascii() else char for char in self))


class _Quantity:
    def __init__(self, text: str) -> None:
        self._value = parse_quantity(text)

    def compareTo(self, other: _Quantity) -> int:  # noqa: N802 - CEL's name
        return (self._value > other._value) - (self._value < other._value)


class _Fields:
    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values

    def __getattr__(self, name: str) -> Any:
        if name not in self._values:
            raise NoSuchKey(name)
        return self._values[name]


class _Device:
    def __init__(self, attributes: Mapping[str, str], capacity: Mapping[str, str]) -> None:
        self.attributes = {DRIVER: _Fields({key: _Text(text) for key, text in attributes.items()})}
        self.capacity = {DRIVER: _Fields({key: _Quantity(text) for key, text in capacity.items()})}


def _has(field: Callable[[], Any]) -> bool:
    try:
        field()
    except NoSuchKey:
        return False
    return True


def holds(expression: str, attributes: Mapping[str, str], capacity: Mapping[str, str] | None = None) -> bool:
    """Raises NoSuchKey."""
    literals: list[str] = []

    def keep(match: re.Match[str]) -> str:
        literals.append(match[0])
        return f"\0{len(literals) - 1}\0"

    text = re.sub(r'"(?:[^"\\]|\\.)*"', keep, expression)
    text = text.replace("&&", " and ").replace("||", " or ")
    text = re.sub(r"!(?!=)", " not ", text)
    text = re.sub(r"has\(([^()]*)\)", r"has(lambda: \1)", text)
    text = re.sub(r"\0(\d+)\0", lambda match: literals[int(match[1])], text)
    device = _Device(attributes, capacity or {})
    names = {"__builtins__": {}, "has": _has, "device": device, "quantity": _Quantity}
    return bool(eval(text, names))  # noqa: S307 - our own expressions
