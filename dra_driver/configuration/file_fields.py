"""The fields of a file's mappings, read one by one: every mistake is collected, with its path.

fields = Fields(document, "", ("splitCount", "cards"), mistakes)
count = fields.read("splitCount", whole)     # overrides[1].splitCount: can't be 0: …
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

_T = TypeVar("_T")


class Fields:
    """The fields of one mapping. What is wrong goes to `mistakes`, and what was wrong is None."""

    def __init__(self, given: Any, path: str, known: tuple[str, ...], mistakes: list[str]) -> None:
        self.path = path
        self.mistakes = mistakes
        self._before = len(mistakes)
        self._given = given if isinstance(given, Mapping) else {}
        if not isinstance(given, Mapping):
            mistakes.append(f"{path}: can't be {given!r}: write fields with values, such as splitCount: 10")
        for name in self._given:
            if name not in known:
                near = difflib.get_close_matches(str(name), known, n=1)
                advice = f"write {near[0]}" if near else "leave it out"
                mistakes.append(f"{self._of(str(name))}: there is no such field: {advice}")

    @property
    def is_good(self) -> bool:
        return len(self.mistakes) == self._before

    def read(self, name: str, reading: Callable[[Any], _T]) -> _T | None:
        """A plain value; `reading` raises ValueError. None where the field is left out, or null."""
        value = self._given.get(name)
        if value is None:
            return None
        try:
            return reading(value)
        except ValueError as error:
            self.mistakes.append(f"{self._of(name)}: {error}")
            return None

    def inner(self, name: str, reading: Callable[[Any, str, list[str]], _T | None]) -> _T | None:
        """A mapping; `reading` is given its path, too."""
        value = self._given.get(name)
        return None if value is None else reading(value, self._of(name), self.mistakes)

    def each(self, name: str, reading: Callable[[Any, str, list[str]], _T | None]) -> tuple[_T, ...] | None:
        """A list of mappings."""
        value = self._given.get(name)
        if value is None:
            return None
        path = self._of(name)
        if not isinstance(value, list):
            self.mistakes.append(f"{path}: can't be {value!r}: write a list, its items after dashes")
            return None
        found = (reading(item, f"{path}[{index}]", self.mistakes) for index, item in enumerate(value))
        return tuple(item for item in found if item is not None)

    def needs(self, name: str) -> None:
        if self._given.get(name) is None:
            self.mistakes.append(f"{self._of(name)}: is missing: write it, or leave out what it belongs to")

    def refuse(self, words: str) -> None:
        """The mapping as a whole, unless its fields are wrong already."""
        if self.is_good:
            self.mistakes.append(f"{self.path}: {words}")

    def _of(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name
