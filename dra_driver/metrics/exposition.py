"""Prometheus' text format, written by hand where there are thousands of series.

The library takes several times as long for them, with the interpreter locked: Prepare would feel it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
Labels = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """A gauge: its name and meaning, its labels' names, and (labels' values, number)."""

    name: str
    help: str
    labels: Labels
    rows: Iterable[tuple[Labels, float]]


def text(tables: Iterable[Table]) -> bytes:
    lines: list[str] = []
    for table in tables:
        lines += (f"# HELP {table.name} {table.help}", f"# TYPE {table.name} gauge")
        pairs = ",".join(f'{name}="%s"' for name in table.labels)
        row = f"{table.name}{{{pairs}}} %s"
        lines += [row % (*map(_escaped, values), number) for values, number in table.rows]
    return "".join(f"{line}\n" for line in lines).encode()


def _escaped(value: str) -> str:
    return value if value.isalnum() else value.translate(_ESCAPES)
