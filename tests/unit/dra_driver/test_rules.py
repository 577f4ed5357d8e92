from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from dra_driver.cards.capacity import Amounts, Scales, capacity_of
from dra_driver.cards.inventory import Card, Inventory, inventory
from dra_driver.cards.rules import CardMatch, Rules, apply
from dra_driver.node import Node
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090, instance

CARDS = (replace(RTX_4090, index=0), replace(A100, index=1))


def found(*cards: Card) -> Inventory:
    return inventory("570.124.06", "12.8.0", cards or CARDS)


@pytest.mark.parametrize(
    ("match", "left"),
    [
        pytest.param(CardMatch(uuid=RTX_4090.uuid), [A100.uuid], id="uuid"),
        pytest.param(CardMatch(uuid=RTX_4090.uuid.upper()), [A100.uuid], id="uuid-in-capitals"),
        pytest.param(CardMatch(index=1), [RTX_4090.uuid], id="index"),
        pytest.param(CardMatch(model="NVIDIA A100*"), [RTX_4090.uuid], id="model"),
        pytest.param(CardMatch(model="A100"), [RTX_4090.uuid, A100.uuid], id="model-is-a-glob-of-the-whole"),
        pytest.param(CardMatch(model="*"), [], id="all"),
    ],
)
def test_excluded(match: CardMatch, left: list[str]) -> None:
    applied = apply(Rules(excluded=(match,)), found())
    assert [card.uuid for card in applied.published] == left
    assert len(applied.by_device()) == 2  # claims that run there are served
    assert all(
        card.withheld == f"is excluded by the node configuration ({match})"
        for card in applied.cards
        if card.uuid not in left
    )


@pytest.mark.parametrize(
    ("match", "left"),
    [
        pytest.param(CardMatch(uuid=A100.uuid), 0, id="by-the-gpu"),
        pytest.param(CardMatch(uuid=instance(2, 10).uuid), 1, id="by-its-own-uuid"),
        pytest.param(CardMatch(model="*A100*"), 0, id="by-the-gpu's-model"),
    ],
)
def test_excluded_instances(match: CardMatch, left: int) -> None:
    applied = apply(Rules(excluded=(match,)), found(instance(1, 10), instance(2, 10)))
    assert len(applied.published) == left


def test_a_card_without_memory_of_its_own_needs_the_configuration() -> None:
    unified = replace(A100, memory_bytes=0)
    without = apply(Rules(), found(unified, RTX_4090))
    assert without.cards == (RTX_4090,)
    (fault,) = without.faults
    assert fault.card == A100.uuid
    assert "write how much of it containers may have as unifiedMemory" in fault.reason
    given = apply(Rules(unified_memory=96 * GIB), found(unified, RTX_4090))
    assert [card.memory_bytes for card in given.cards] == [24 * GIB, 96 * GIB]
    assert given.faults == ()


@pytest.mark.parametrize(
    ("card", "scales", "memory"),
    [
        pytest.param(A100, Scales(reserved_memory=GIB), 79 * GIB, id="a-card"),
        pytest.param(A100, Scales(10, Fraction(2), reserved_memory=GIB), 158 * GIB, id="before-scaling"),
        pytest.param(instance(1, 10), Scales(reserved_memory=GIB), 10 * GIB, id="not-of-an-instance"),
        pytest.param(instance(1, 10, sharers=3), Scales(), 3413 << 20, id="a-part-of-an-instance"),
    ],
)
def test_memory_to_give(card: Card, scales: Scales, memory: int) -> None:
    assert capacity_of(card, scales) == Amounts(memory, 100, 1000)


def test_a_card_that_is_reserved_whole_is_withheld() -> None:
    applied = apply(Rules(Scales(reserved_memory=24 * GIB)), found())
    assert [card.uuid for card in applied.published] == [A100.uuid]
    assert applied.cards[0].withheld is not None
    assert "has 24Gi of memory, of which 24Gi are reserved" in applied.cards[0].withheld


def test_new_rules_are_told_once_and_take_back_what_they_gave() -> None:
    node, told = Node("node-a", Rules()), []
    node.listen(lambda: told.append(node.cards))
    node.found(found())
    for rules in (Rules(excluded=(CardMatch(index=1),)), Rules(excluded=(CardMatch(index=1),)), Rules()):
        node.configure(rules)
    assert [len(cards.published) for cards in told if cards is not None] == [2, 1, 2]
