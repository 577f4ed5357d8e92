"""Who has had the card, and how what is left of it is divided: without a clock, without files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.monitor.shares import Wish, filled, shares
from dra_driver.monitor.turns import TURN, Stay, Table, had

MS = 1_000_000


# --- turns -------------------------------------------------------------------------------------------------


def parts(
    *stays: tuple[str, float, float], begin: float = 0, end: float = 100
) -> dict[str, tuple[float, float]]:
    """There and own, in ms, of stays in ms."""
    found, _ = had(
        [Stay(grant, 0, int(start * MS), int(stop * MS)) for grant, start, stop in stays],
        int(begin * MS),
        int(end * MS),
        Table(),
    )
    return {grant: (each.there / MS, each.own / MS) for grant, each in found.items()}


def test_alone_all_is_ones_own() -> None:
    assert parts(("a", 10, 20), ("b", 20, 25)) == {"a": (10, 10), "b": (5, 5)}


def test_two_take_turns() -> None:
    assert parts(("a", 0, 20), ("b", 0, 20)) == {"a": (20, 10), "b": (20, 10)}


def test_who_comes_to_one_who_has_had_his_turn_is_next() -> None:
    """a has had the card for 30 ms; b's 10 ms take five turns, with four of a in between."""
    assert parts(("a", 0, 60), ("b", 30, 48)) == {"a": (60, 50), "b": (18, 10)}


def test_who_comes_early_waits_for_the_turns_end() -> None:
    assert parts(("a", 0, 10), ("b", 1, 3)) == {"a": (10, 9), "b": (2, 1)}


def test_a_turn_ends_with_the_kernel_after_it() -> None:
    kernels = [("a", float(n), float(n + 1)) for n in range(10)]
    assert parts(*kernels, ("b", 5, 7)) == {"a": (10, 9), "b": (2, 1)}  # a's turn is 4 to 6


def test_stays_of_one_process_count_once() -> None:
    assert parts(("a", 0, 10), ("a", 5, 15), ("a", 15, 20)) == {"a": (20, 20)}


def test_what_is_outside_the_window_counts_not() -> None:
    assert parts(("a", 0, 10), ("b", 90, 200), begin=5, end=100) == {"a": (5, 5), "b": (10, 10)}


def test_a_window_goes_on_where_the_last_one_ended() -> None:
    stays = [Stay("a", 0, 0, 200 * MS), Stay("b", 0, 33 * MS, 77 * MS), Stay("b", 0, 120 * MS, 131 * MS)]
    whole, _ = had(stays, 0, 200 * MS, Table())
    table, sums = Table(), {"a": 0.0, "b": 0.0}
    for begin in range(0, 200 * MS, 50 * MS):
        found, table = had(stays, begin, begin + 50 * MS, table)
        for grant, each in found.items():
            sums[grant] += each.own
    assert sums == pytest.approx({grant: each.own for grant, each in whole.items()}, abs=TURN)


_STAYS = st.lists(
    st.builds(
        lambda grant, slot, start, length: Stay(grant, slot, start, start + length),
        st.sampled_from("abc"),
        st.integers(0, 2),
        st.integers(0, 100 * MS),
        st.integers(0, 50 * MS),
    ),
    max_size=20,
)


@given(_STAYS)
def test_whatever_came_the_card_was_given_once(stays: list[Stay]) -> None:
    found, _ = had(stays, 0, 100 * MS, Table())
    assert all(0 <= each.own <= each.there + 1e-6 <= 100 * MS + 2e-6 for each in found.values())
    busy = covered = 0
    for start, stop in sorted((stay.start, min(stay.end, 100 * MS)) for stay in stays):
        busy += max(0, stop - max(start, covered))
        covered = max(covered, stop)
    # Short gaps count as the process's.
    assert busy - 1 <= sum(each.own for each in found.values()) <= busy + 1_000 * len(stays) + 1


# --- shares ------------------------------------------------------------------------------------------------


def wish(name: str, guaranteed: int, wants: float, priority: int = 1, borrows: bool = True) -> Wish:
    return Wish(name, guaranteed, wants, priority, borrows)


@pytest.mark.parametrize(
    ("wishes", "expected"),
    [
        pytest.param([wish("a", 30, 100)], {"a": 100}, id="alone"),
        pytest.param([wish("a", 30, 100), wish("b", 70, 100)], {"a": 30, "b": 70}, id="all-wanted"),
        pytest.param([wish("a", 30, 100), wish("b", 70, 0)], {"a": 100, "b": 70}, id="idle-is-lent"),
        pytest.param([wish("a", 20, 100), wish("b", 40, 100)], {"a": 100 / 3, "b": 200 / 3}, id="by-weight"),
        pytest.param([wish("a", 20, 25), wish("b", 40, 100)], {"a": 25, "b": 75}, id="room"),
        pytest.param(
            [wish("a", 30, 100, borrows=False), wish("b", 30, 100)],
            {"a": 30, "b": 70},
            id="force-borrows-not",
        ),
        pytest.param(
            [wish("a", 30, 100, 0), wish("b", 30, 100, 1)], {"a": 70, "b": 30}, id="priority-0-before-1"
        ),
        pytest.param(
            [wish("a", 30, 40, 0), wish("b", 30, 100, 1)], {"a": 40, "b": 60}, id="what-0-leaves-goes-to-1"
        ),
        pytest.param(
            [wish("a", 30, 100), wish("b", 0, 100)], {"a": 30 + 70 * 30 / 31, "b": 70 / 31}, id="left-over"
        ),
        pytest.param(
            [wish("a", 80, 100), wish("b", 80, 100)], {"a": 80, "b": 80}, id="more-promised-than-is-there"
        ),
        pytest.param([], {}, id="nobody"),
    ],
)
def test_shares(wishes: list[Wish], expected: dict[str, float]) -> None:
    assert shares(wishes) == pytest.approx(expected)


@given(
    st.floats(0, 100),
    st.dictionaries(st.text(max_size=2), st.tuples(st.floats(1, 100), st.floats(0, 100)), max_size=8),
)
def test_what_is_filled(spare: float, room: dict[str, tuple[float, float]]) -> None:
    got = filled(spare, room)
    assert all(-1e-6 <= got[name] <= most + 1e-6 for name, (_, most) in room.items())
    assert sum(got.values()) == pytest.approx(min(spare, sum(most for _, most in room.values())), abs=1e-6)
