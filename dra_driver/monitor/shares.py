"""Who may have how much of a card, in percent of it.

Everybody has what is guaranteed to him. What of that is not wanted goes to those who want more: to priority 0
before 1, and between equals by weight, which is the guaranteed share.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

WHOLE = 100.0


@dataclass(frozen=True)
class Wish:
    """`wants`: percent of the card; all of it where nobody knows. `borrows`: more than guaranteed is well."""

    grant: str
    guaranteed: float
    wants: float
    priority: int
    borrows: bool


def shares(wishes: Iterable[Wish]) -> Mapping[str, float]:
    """Never less than what is guaranteed; more only of what the others leave."""
    wishes = tuple(wishes)
    got = {wish.grant: min(wish.guaranteed, wish.wants) for wish in wishes}
    spare = max(0.0, WHOLE - sum(got.values()))
    for priority in sorted({wish.priority for wish in wishes}):
        room = {
            wish.grant: (max(wish.guaranteed, 1.0), min(wish.wants, WHOLE) - got[wish.grant])
            for wish in wishes
            if wish.priority == priority and wish.borrows and wish.wants > got[wish.grant]
        }
        for grant, part in filled(spare, room).items():
            got[grant] += part
            spare -= part
    return {wish.grant: max(wish.guaranteed, got[wish.grant]) for wish in wishes}


def filled(spare: float, room: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """`spare` spread by weight; nobody gets more than there is room for. room: weight and room by name."""
    got: dict[str, float] = {}
    left = dict(room)
    while left:
        weight = sum(each for each, _ in left.values())
        full = {name: most for name, (each, most) in left.items() if most * weight <= spare * each}
        if not full:
            return got | {name: spare * each / weight for name, (each, _) in left.items()}
        for name, most in full.items():
            got[name] = most
            spare -= most
            del left[name]
    return got
