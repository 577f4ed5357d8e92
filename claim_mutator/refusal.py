"""What stands in the way of a Pod, and what its author should know: the place, the value, what to write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Pointer = tuple[str | int, ...]
"""Steps from the Pod to a value: ("spec", "containers", 0, "resources", "limits", "nvidia.com/gpu")."""


@dataclass(frozen=True)
class Problem:
    """`text` is a whole sentence for people that names container, field and value by itself."""

    pointer: Pointer
    text: str


@dataclass(frozen=True)
class Notice:
    """The Pod is honoured, but perhaps not as its author thinks. `text` as in Problem."""

    pointer: Pointer
    text: str


class Refused(Exception):  # noqa: N818 - what happened, not a fault
    """The Pod can't be honoured. Holds everything that was found, so that one try shows it all."""

    def __init__(self, problems: Iterable[Problem], notices: Iterable[Notice] = ()) -> None:
        self.problems = tuple(problems)
        self.notices = tuple(notices)
        super().__init__("; ".join(problem.text for problem in self.problems))


def annotation(key: str) -> Pointer:
    return ("metadata", "annotations", key)
