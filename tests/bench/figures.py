"""What a benchmark against a peer has found: figures, their ratios, and the targets that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import quantiles
from typing import Any

from rich.table import Table


@dataclass(frozen=True)
class Figure:
    """`ratio`: the most that ours may be of the peer's; `most`: that it may be at all. None: no target.

    more_is_better: both are the least, then.
    """

    name: str
    unit: str
    ours: float
    peer: float | None = None
    ratio: float | None = None
    most: float | None = None
    note: str = ""
    more_is_better: bool = False

    @property
    def of_peer(self) -> float | None:
        return self.ours / self.peer if self.peer else None

    @property
    def met(self) -> bool | None:
        """None where there is no target, or nothing to compare with."""
        if self.most is not None:
            return self._within(self.ours, self.most)
        if self.ratio is not None and self.of_peer is not None:
            return self._within(self.of_peer, self.ratio)
        return None

    def _within(self, value: float, bound: float) -> bool:
        return value >= bound if self.more_is_better else value <= bound

    def document(self) -> dict[str, Any]:
        return asdict(self) | {"of_peer": self.of_peer, "met": self.met}


def percentile(values: Sequence[float], percent: int) -> float:
    """Between the two values next to it, as usual."""
    return quantiles(values, n=100, method="inclusive")[percent - 1] if len(values) > 1 else values[0]


def table(title: str, figures: Sequence[Figure]) -> Table:
    shown = Table(title=title, title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0))
    for header in ("", "OURS", "PEER", "RATIO", "TARGET", ""):
        shown.add_column(header, justify="right" if header in ("OURS", "PEER", "RATIO") else "left")
    for figure in figures:
        shown.add_row(
            figure.name,
            f"{figure.ours:.4g} {figure.unit}",
            "" if figure.peer is None else f"{figure.peer:.4g} {figure.unit}",
            "" if figure.of_peer is None else f"{figure.of_peer:.2f}",
            _target(figure),
            {True: "met", False: "[bold]MISSED[/bold]", None: ""}[figure.met],
        )
        if figure.note:
            shown.add_row(f"  {figure.note}")
    return shown


def _target(figure: Figure) -> str:
    at = "at least" if figure.more_is_better else "at most"
    if figure.most is not None:
        return f"{at} {figure.most:g} {figure.unit}".rstrip()
    return "" if figure.ratio is None else f"ratio {at} {figure.ratio:g}"


def documents(figures: Sequence[Figure]) -> Mapping[str, Any]:
    return {figure.name: figure.document() for figure in figures}
