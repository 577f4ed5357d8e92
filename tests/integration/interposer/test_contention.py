# SPDX-License-Identifier: Apache-2.0
"""Several containers on one card, looked after by the agent's own loop: what each gets of the device time.

In virtual time (virtual.py). Shares are kernels launched times their time; the agent's loop reads and writes
the grants' real files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.virtual import Node, closing

Make = Callable[..., Node]

IN_STEP: tuple[float, float] = (3, 1.5)
"""ms of two kernels that fall into step with the card's turns in one start of twenty: 25/75 then."""


@pytest.fixture
def make_node(tmp_path: Path, launches: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(closing(Node(tmp_path, launches, **values)))


@pytest.fixture
def node(make_node: Make) -> Node:
    return make_node(agent=True)


@pytest.mark.parametrize(
    ("first_ms", "second_ms"),
    [
        (0.3, 0.3),
        (1, 1),
        (3, 3),
        (5, 5),
        (7, 11),
        (10, 10),
        (2, 20),
        (20, 2),
        (0.05, 10),
        (10, 0.05),
        (0.15, 10),
        (10, 0.02),
        (100, 5),
        IN_STEP,
    ],
    ids=str,
)
def test_each_gets_what_was_promised(node: Node, first_ms: float, second_ms: float) -> None:
    node.container("first", 30)
    node.container("second", 70)
    node.burn("first", first_ms)
    node.burn("second", second_ms)
    node.pass_time(2)
    seconds = 8 if first_ms < 100 else 30  # of the long ones there are few
    off = 6 if (first_ms, second_ms) == IN_STEP else 1
    assert node.shares(seconds) == pytest.approx({"first": 30, "second": 70}, abs=off)


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param({"a": (50, 10), "b": (50, 0.05)}, id="equals"),
        pytest.param({"a": (50, 10), "b": (50, 0.15)}, id="each-kernel-timed"),
        pytest.param({"a": (50, 2.5), "b": (50, 0.05)}, id="about-a-turn"),
        pytest.param({"a": (20, 10), "b": (40, 0.05), "c": (40, 0.1)}, id="two-beside-long-ones"),
    ],
)
def test_short_kernels_beside_long_ones(node: Node, loads: dict[str, tuple[int, float]]) -> None:
    """Others' turns lengthen few of many short kernels, and those by far."""
    for name, (cores, kernel_ms) in loads.items():
        node.container(name, cores)
        node.burn(name, kernel_ms)
    node.pass_time(2)
    assert node.shares(16) == pytest.approx({name: cores for name, (cores, _) in loads.items()}, abs=1)


@pytest.mark.parametrize(
    ("first", "second"),
    [((55, 0.04, 2), (45, 0.66, 1)), ((85, 5.27, 1), (15, 0.02, 2)), ((20, 0.13, 2), (80, 5.22, 2))],
    ids=str,
)
def test_several_processes_with_short_kernels(
    node: Node, first: tuple[int, float, int], second: tuple[int, float, int]
) -> None:
    for name, load in (("first", first), ("second", second)):
        node.container(name, load[0])
        node.burn(name, load[1], processes=load[2])
    node.pass_time(2)
    assert node.shares(16) == pytest.approx({"first": first[0], "second": second[0]}, abs=1.5)


@pytest.mark.parametrize(
    "loads",
    [
        pytest.param({"a": (20, 1.25, 2), "b": (45, 0.15, 2), "c": (35, 12.07, 1)}, id="short-beside-long"),
        pytest.param({"a": (20, 3.86, 1), "b": (65, 0.02, 2), "c": (15, 1.15, 2)}, id="shortest-has-most"),
        pytest.param({"a": (35, 0.09, 1), "b": (35, 0.08, 2), "c": (30, 2.21, 2)}, id="short-beside-short"),
        pytest.param({"a": (75, 2.34, 2), "b": (25, 0.14, 1)}, id="about-a-turn"),
    ],
)
def test_mixes(node: Node, loads: dict[str, tuple[int, float, int]]) -> None:
    for name, (cores, kernel_ms, processes) in loads.items():
        node.container(name, cores)
        node.burn(name, kernel_ms, processes=processes)
    node.pass_time(2)
    assert node.shares(8) == pytest.approx({name: load[0] for name, load in loads.items()}, abs=1)


def test_several_processes_of_each(node: Node) -> None:
    node.container("first", 30)
    node.container("second", 70)
    node.burn("first", 10, processes=2)
    node.burn("second", 5, processes=3)
    node.pass_time(2)
    assert node.shares(8) == pytest.approx({"first": 30, "second": 70}, abs=2)


def test_graphs_and_copies_beside_kernels(make_node: Make) -> None:
    node = make_node(agent=True, driver={"copy_gib_s": "1"})
    node.container("graphs", 50)
    node.container("copies", 20)
    node.container("kernels", 30)
    node.launch("graphs", "graph", 0.5)
    node.launch("copies", "copy", 2)
    node.burn("kernels", 4)
    node.pass_time(2)
    expected = {"graphs": 50, "copies": 20, "kernels": 30}
    assert node.shares(6) == pytest.approx(expected, abs=3)


def test_equals_share_what_is_left_by_their_cores(node: Node) -> None:
    for name, cores in (("a", 10), ("b", 20), ("c", 20)):
        node.container(name, cores)
        node.burn(name, 5)
    node.pass_time(2)
    assert node.shares(8) == pytest.approx({"a": 20, "b": 40, "c": 40}, abs=2)


def test_what_is_idle_is_lent_and_given_back(node: Node) -> None:
    """Lent, and had back by the owner within two periods of the agent's."""
    node.container("first", 30)
    owner = node.container("second", 70)
    node.burn("first", 5)
    node.pass_time(1)
    assert node.shares(1)["first"] > 98
    node.burn("second", 5)
    node.pass_time(0.2)
    assert node.shares(1)["second"] > 68
    assert node.shares(4) == pytest.approx({"first": 30, "second": 70}, abs=1)
    owner.close()
    node.pass_time(0.5)
    assert node.shares(1)["first"] > 98


def test_nothing_is_written_about_who_is_idle(node: Node) -> None:
    bench = node.container("first", 30)
    node.burn("first", 5)
    node.pass_time(2)
    assert node.writes > 0
    bench.close()
    node.pass_time(1)
    count = node.writes
    node.pass_time(2)
    assert node.writes == count


def test_what_was_lent_ends_with_the_agent(node: Node) -> None:
    node.container("first", 30)
    node.burn("first", 5)
    node.pass_time(1)
    assert node.shares(1)["first"] > 98
    node.agent = False
    node.pass_time(1.2)
    assert node.shares(4)["first"] == pytest.approx(30, abs=1)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param(20, 20, {"forced": 10, "before": 70, "after": 20}, id="what-is-left-goes-to-0"),
        pytest.param(0, 20, {"forced": 10, "before": 70, "after": 20}, id="who-has-nothing-sure"),
        pytest.param(60, 20, {"forced": 10, "before": 70, "after": 20}, id="little-left"),
    ],
)
def test_force_and_priority(node: Node, before: int, after: int, expected: dict[str, float]) -> None:
    """`forced` never borrows; of the others, the one of priority 0 has what is left."""
    node.container("forced", 10, policy=abi.Policy.FORCE)
    node.container("before", before, priority=0)
    node.container("after", after)
    for name in expected:
        node.burn(name, 5)
    node.pass_time(2)
    assert node.shares(6) == pytest.approx(expected, abs=3)


SHARED = {"forced": 10, "before": 70, "after": 20}


@pytest.fixture
def shared(node: Node) -> Node:
    """Of two with 20 each, the one of priority 0 has all that a forced one leaves: `SHARED`."""
    node.container("forced", 10, policy=abi.Policy.FORCE)
    node.container("before", 20, priority=0)
    node.container("after", 20)
    for name in SHARED:
        node.burn(name, 5)
    node.pass_time(2)
    return node


def test_what_is_lent_outlasts_a_short_restart_of_the_agent(shared: Node) -> None:
    shared.agent = False
    assert shared.shares(0.3) == pytest.approx(SHARED, abs=7)  # one kernel of 5 ms is nearly 2
    shared.restart_agent()
    shared.agent = True
    assert shared.shares(6) == pytest.approx(SHARED, abs=4)  # the moments of both agents count


def test_each_has_what_is_sure_until_there_is_an_agent_again(shared: Node) -> None:
    """Loans end. How long kernels take then the agent has foretold, so it is not that exact meanwhile."""
    shared.agent = False
    shared.pass_time(1.2)
    alone = shared.shares(4)
    for name, sure in {"forced": 10, "before": 20, "after": 20}.items():
        assert 0.75 * sure <= alone[name] <= 1.4 * sure
    shared.restart_agent()
    shared.agent = True
    shared.pass_time(1)
    assert shared.shares(6) == pytest.approx(SHARED, abs=2)


@pytest.mark.parametrize(("kernel_ms", "least"), [(0.05, 29), (1, 29), (5, 15), (20, 15)], ids=str)
def test_without_an_agent_nobody_gets_more(make_node: Make, kernel_ms: float, least: float) -> None:
    """Kernels within a turn cost what they take; of longer ones each pays for the other's turns too."""
    node = make_node()
    for name in ("first", "second"):
        node.container(name, 30)
        node.burn(name, kernel_ms)
    node.pass_time(2)
    assert all(least <= share <= 31 for share in node.shares(6).values())
