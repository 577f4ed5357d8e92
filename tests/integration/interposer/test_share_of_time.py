# SPDX-License-Identifier: Apache-2.0
"""What a compute limit comes to, in virtual time: the same figures on every machine, to the point.

Shares are by the driver's own count of the card's busy time, from two seconds after the start on. Within a
point of the limit, within two below 10, and at least 0.97 of it: every program here always has work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interposer import abi
from tests.integration.interposer.virtual import Node, closing

Make = Callable[..., Node]
LENT = {"effective_cores": 70, "lease_until_ns": 1 << 62}


@pytest.fixture
def make_node(tmp_path: Path, launches: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(closing(Node(tmp_path, launches, **values)))


def long_enough(cores: int, kernel_ms: float) -> float:
    """Seconds in which there is room for forty of the kernels."""
    return max(2.0, 40 * kernel_ms / cores / 10)


def assert_is_the_limit(share: float, cores: int) -> None:
    tolerance = 2 if cores < 10 else 1
    assert max(cores - tolerance, 0.97 * cores) <= share <= cores + tolerance


@pytest.mark.parametrize("processes", [1, 2, 4, 8])
@pytest.mark.parametrize("kernel_ms", [0.05, 1, 10, 100])
@pytest.mark.parametrize("cores", [5, 10, 30, 50, 75, 95])
def test_kernels(make_node: Make, cores: int, kernel_ms: float, processes: int) -> None:
    node = make_node()
    node.container("a", cores)
    node.burn("a", kernel_ms, processes)
    node.pass_time(2)
    before = node.launched()["a"]
    assert_is_the_limit(node.busy(long_enough(cores, kernel_ms)), cores)
    each = [now - then for now, then in zip(node.launched()["a"], before, strict=True)]
    assert min(each) >= max(each) / 2 - 1  # the processes have equal parts


@pytest.mark.parametrize("cores", [5, 50, 95])
@pytest.mark.parametrize(
    "how",
    [
        "kernel_ptsz",
        "ex",
        "ex_ptsz",
        "cooperative",
        "cooperative_ptsz",
        "multi",
        "legacy",
        "graph",
        "graph_ptsz",
    ],
)
def test_roads(make_node: Make, how: str, cores: int) -> None:
    node = make_node()
    node.container("a", cores)
    kernel_ms = 0.5 if how.startswith("graph") else 5
    node.launch("a", how, kernel_ms, processes=2)
    node.pass_time(2)
    assert_is_the_limit(node.busy(long_enough(cores, 5)), cores)


@pytest.mark.parametrize(
    ("multiprocessors", "how", "blocks"),
    [
        (20, "kernel", 1),
        (20, "kernel", 65536),
        (20, "cooperative", 320),
        (188, "kernel", 1),
        (188, "kernel", 65536),
        (188, "cooperative", 3008),
        (188, "graph", 65536),
    ],
)
def test_grids_and_cards(make_node: Make, multiprocessors: int, how: str, blocks: int) -> None:
    node = make_node(multiprocessors=multiprocessors)
    node.container("a", 30)
    node.launch("a", how, 0.2, 1, blocks)
    node.pass_time(2)
    assert_is_the_limit(node.busy(4), 30)


@pytest.mark.parametrize(
    ("how", "times", "streams"),
    [
        ("kernel", "1,1,1,20", 1),
        ("kernel", "0.05,3", 2),
        ("kernel", "0.02,0.1", 1),
        ("kernel", "0.01,0.02,20", 1),
        ("kernel", "2,2.1,0.3", 4),
        ("kernel", "0.7", 8),
        ("graph", "0.005", 1),
        ("graph", "0.05,2", 1),
        ("after_graph", "0.05", 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("processes", [1, 3])
def test_one_function_takes_now_little_now_much(
    make_node: Make, how: str, times: str, streams: int, processes: int
) -> None:
    node = make_node()
    node.container("a", 40)
    for _ in range(processes):
        node.start("a", node.launches, how, times, streams)
    node.pass_time(2)
    assert_is_the_limit(node.busy(6), 40)


def test_a_slow_and_a_quick_process_have_one_budget(make_node: Make) -> None:
    node = make_node()
    node.container("a", 50)
    node.burn("a", 0.05)
    node.burn("a", 30)
    node.pass_time(2)
    before = node.launched()["a"]
    assert_is_the_limit(node.busy(6), 50)
    assert all(now - then > 20 for now, then in zip(node.launched()["a"], before, strict=True))


@pytest.mark.parametrize(
    "how",
    ["fill", "fill_ptsz", "fill_box", "copy", "copy_ptsz", "copy_box", "copy_batch", "unified"],
)
def test_copies_within_the_card_and_fills(make_node: Make, how: str) -> None:
    """The driver does them by kernels."""
    node = make_node(driver={"copy_gib_s": "1"})
    node.container("a", 10)
    node.launch("a", how, 1)
    node.pass_time(1)
    assert_is_the_limit(node.busy(1.5), 10)


@pytest.mark.parametrize("how", ["host", "unified_host"])
def test_copies_from_the_host_are_no_launches(make_node: Make, how: str) -> None:
    """Other engines do them; each comes with a kernel here."""
    node = make_node(driver={"copy_gib_s": "1"})
    node.container("a", 10)
    node.launch("a", how, 1)
    node.pass_time(1)
    before = sum(node.launched()["a"])
    share = node.busy(1.5)
    assert_is_the_limit(share, 10)
    assert sum(node.launched()["a"]) - before == pytest.approx(share * 15, abs=3)


def test_kernels_are_not_taken_for_nothing_at_the_start(make_node: Make) -> None:
    """Eight processes whose first kernels nobody knows: one after another, not all at once."""
    node = make_node()
    node.container("a", 10)
    node.burn("a", 100, processes=8)
    assert node.busy(2) <= 20


@pytest.mark.parametrize(
    ("values", "share"),
    [
        pytest.param({"cores": 20, "policy": abi.Policy.DEFAULT}, 20, id="default-nothing-lent"),
        pytest.param(LENT | {"cores": 20, "policy": abi.Policy.DEFAULT}, 70, id="default-lent"),
        pytest.param(LENT | {"cores": 20, "policy": abi.Policy.FORCE}, 20, id="force"),
        pytest.param({"cores": 20, "policy": abi.Policy.DISABLE}, 100, id="disable"),
        pytest.param({"cores": 0}, 100, id="no-cores"),
        pytest.param({"cores": 100}, 100, id="all-cores"),
    ],
)
@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_policies(make_node: Make, shim: bool, values: dict[str, Any], share: int) -> None:
    node = make_node(shim=shim)
    node.container("a", **values)
    node.burn("a", 5, processes=2)
    node.pass_time(2)
    assert_is_the_limit(node.busy(4), share)


@pytest.mark.parametrize(("first", "second", "share"), [(20, 30, 50), (10, 5, 15), (0, 30, 100)])
def test_grants_of_one_card_add_up(make_node: Make, first: int, second: int, share: int) -> None:
    """Of one container; one without a limit of compute is enough to have none."""
    node = make_node()
    node.container("a", first).grant("second", cores=second)
    node.burn("a", 5, processes=2)
    node.pass_time(2)
    assert_is_the_limit(node.busy(4), share)
