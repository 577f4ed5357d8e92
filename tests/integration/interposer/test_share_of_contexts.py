# SPDX-License-Identifier: Apache-2.0
"""The compute limit where a program has several contexts, on several cards, or releases one that stays.

In virtual time, as in test_share_of_time.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.integration.interposer.bench import LARGE
from tests.integration.interposer.test_share_of_time import assert_is_the_limit
from tests.integration.interposer.virtual import Node, closing

Make = Callable[..., Node]


@pytest.fixture
def make_node(tmp_path: Path, launches: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda **values: stack.enter_context(closing(Node(tmp_path, launches, **values)))


@pytest.mark.parametrize("kernel_ms", [0.05, 5])
def test_a_release_of_the_primary_context_that_is_not_the_last(make_node: Make, kernel_ms: float) -> None:
    """What was timed before it counts: else each kernel would cost what an unknown one does."""
    node = make_node()
    node.container("a", 30)
    node.launch("a", "retained", kernel_ms)
    node.pass_time(2)
    assert_is_the_limit(node.busy(4), 30)


def test_work_in_a_stream_of_another_card_is_charged_to_that_card(make_node: Make) -> None:
    """CUDA allows it for copies: the current context is of a card that isn't limited."""
    node = make_node(driver={"copy_gib_s": "1"})
    node.container("a", 10)
    node.launch("a", "abroad", 1)
    node.pass_time(1)
    assert_is_the_limit(node.busy(2), 10)


@pytest.mark.parametrize("times", ["5", "0.05,3", "1x300,20x100"])
def test_one_thread_works_on_two_cards(make_node: Make, times: str) -> None:
    """It settles what has ended on the one in the other's context. The launches come in turn, so both have
    as much as the smaller limit allows."""
    node = make_node()
    bench = node.container("a", 60)
    bench.grant("b", uuid=LARGE, cores=30)
    node.start("a", node.launches, "two_cards", times, 2)
    node.pass_time(2)
    assert_is_the_limit(node.busy(6), 30)
