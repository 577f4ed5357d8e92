"""The tables of dra_driver/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from dra_driver import main
from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Rules
from dra_driver.claims.ledger import Ledger
from dra_driver.conditions import Condition, Conditions
from dra_driver.configuration.settings import Settings
from dra_driver.metrics import grant_figures, legacy_metrics
from dra_driver.metrics.counters import Metrics
from dra_driver.metrics.figures import Figures
from dra_driver.node import Node
from tests.unit.readme_tables import check, family_row, metrics_table, settings_table

README = Path(main.__file__).with_name("README.md")


def families(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    registry = CollectorRegistry()
    Metrics(registry)
    node = Node("node-a", Rules())
    registry.register(
        Figures(release="0", node=node, ledger=Ledger(tmp_path / "ledger", "boot"), conditions=Conditions())
    )
    for family in registry.collect():
        yield family_row(family)
    tables = [
        *grant_figures.tables(()),
        *legacy_metrics.card_tables("node-a", (), Scales(), ()),
        *legacy_metrics.grant_tables("node-a", (), lambda _uid: ""),
    ]
    for each in tables:
        yield each.name, "gauge", each.help


@pytest.mark.parametrize("name", ["settings", "metrics"])
def test_tables_are_what_the_code_says(tmp_path: Path, name: str) -> None:
    check(README, name, settings_table(Settings) if name == "settings" else metrics_table(families(tmp_path)))


def test_every_condition_is_described() -> None:
    text = README.read_text()
    assert [condition.value for condition in Condition if f"| `{condition.value}` |" not in text] == []
