from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Amounts, Scales
from dra_driver.cards.inventory import inventory
from dra_driver.cards.placement import Spread, least_used_first
from dra_driver.cards.rules import Placement, Rules
from dra_driver.names import DeviceName
from dra_driver.node import Node
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090, many, two_cards

SPREAD = Rules(placement=Placement.SPREAD)
SMALL, LARGE = RTX_4090.name, A100.name
CARDS = two_cards().cards


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param({}, [SMALL, LARGE], id="nothing-held-is-pci-order"),
        pytest.param({SMALL: Amounts(GIB, 0, 100)}, [LARGE, SMALL], id="memory"),
        pytest.param(
            {SMALL: Amounts(3 * GIB, 0, 100), LARGE: Amounts(9 * GIB, 0, 100)},
            [LARGE, SMALL],
            id="its-part-of-the-card-counts",
        ),
        pytest.param(
            {SMALL: Amounts(3 * GIB, 50, 100), LARGE: Amounts(10 * GIB, 0, 100)},
            [LARGE, SMALL],
            id="compute-where-memory-is-equal",
        ),
        pytest.param(
            {SMALL: Amounts(3 * GIB, 0, 100), LARGE: Amounts(10 * GIB, 0, 900)},
            [SMALL, LARGE],
            id="equals-stay-in-pci-order",
        ),
    ],
)
def test_least_used_first(held: dict[DeviceName, Amounts], expected: list[DeviceName]) -> None:
    assert list(least_used_first(CARDS, held, Scales())) == expected


@given(st.dictionaries(st.integers(0, 7), st.integers(1, 16 * GIB)))
def test_every_device_stands_in_it_once(held: dict[int, int]) -> None:
    cards = many(8)
    amounts = {cards[number].name: Amounts(memory, 0, 100) for number, memory in held.items()}
    order = least_used_first(cards, amounts, Scales())
    assert sorted(order) == sorted(card.name for card in cards)
    uses = [held.get(number, 0) for name in order for number in range(8) if cards[number].name == name]
    assert uses == sorted(uses)


class Setting:
    """A node with two cards, what it holds, and how often its slices would be compared anew."""

    def __init__(self, rules: Rules) -> None:
        self.node = Node("node-a", Rules())
        self.node.configure(rules)
        self.node.found(two_cards())
        self.held: dict[DeviceName, Amounts] = {}
        self.changes = 0
        self.spread = Spread(node=self.node, held=lambda: self.held, changed=self._changed)

    def _changed(self) -> None:
        self.changes += 1


def test_packing_has_no_order_and_never_changes() -> None:
    setting = Setting(Rules())
    for gib in range(20):
        setting.held[SMALL] = Amounts(gib * GIB, 0, 100)
        setting.spread.look()
    assert (setting.spread.order(), setting.changes) == ((), 0)


def test_a_burst_is_one_change() -> None:
    setting = Setting(SPREAD)
    assert setting.spread.order() == (SMALL, LARGE)
    for gib in range(1, 20):
        setting.held[SMALL] = Amounts(gib * GIB, 0, 100)
        assert setting.spread.order() == (SMALL, LARGE)  # what else is published meanwhile has the old order
    setting.spread.look()
    assert (setting.spread.order(), setting.changes) == ((LARGE, SMALL), 1)


def test_only_another_order_is_a_change() -> None:
    setting = Setting(SPREAD)
    assert setting.spread.order() == (SMALL, LARGE)
    for gib in (1, 2, 3, 2, 1):
        setting.held[SMALL] = Amounts(gib * GIB, 0, 100)
        setting.spread.look()
    assert setting.changes == 1
    setting.held.clear()
    setting.spread.look()
    assert (setting.spread.order(), setting.changes) == ((SMALL, LARGE), 2)


def test_a_restarted_agent_begins_with_the_order_of_what_is_held() -> None:
    setting = Setting(SPREAD)
    setting.held[SMALL] = Amounts(GIB, 0, 100)
    assert setting.spread.order() == (LARGE, SMALL)
    setting.spread.look()
    assert setting.changes == 0


def test_a_new_card_is_taken_in_at_once() -> None:
    setting = Setting(SPREAD)
    setting.held = {SMALL: Amounts(GIB, 0, 100), LARGE: Amounts(GIB, 0, 100)}
    setting.spread.look()
    new = many(1)[0]
    setting.node.found(inventory("1", "1", [*CARDS, new]))
    assert setting.spread.order()[0] == new.name


def test_the_configuration_switches_it() -> None:
    setting = Setting(Rules())
    setting.held[SMALL] = Amounts(GIB, 0, 100)
    setting.node.configure(SPREAD)
    assert setting.spread.order() == (LARGE, SMALL)
    setting.node.configure(Rules())
    assert setting.spread.order() == ()
