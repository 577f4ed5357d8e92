"""The tables of dra_driver/README.md are what the code says. REGENERATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
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
from kube.settings import fields, sources

README = Path(main.__file__).with_name("README.md")


def table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, ("---",) * len(header), *rows)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)


def settings_table() -> str:
    return table(
        ("flag", "variable", "key", "default", "what"),
        (
            (
                *(f"`{spell(field.name)}`" for spell in sources.SPELLINGS),
                f"`{field.default}`" if field.default is not None else "",
                field.description,
            )
            for field in fields(Settings)
        ),
    )


def families(tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    registry = CollectorRegistry()
    Metrics(registry)
    node = Node("node-a", Rules())
    registry.register(
        Figures(release="0", node=node, ledger=Ledger(tmp_path / "ledger", "boot"), conditions=Conditions())
    )
    for family in registry.collect():
        suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
        yield family.name + suffix, family.type, family.documentation
    tables = [
        *grant_figures.tables(()),
        *legacy_metrics.card_tables("node-a", (), Scales(), ()),
        *legacy_metrics.grant_tables("node-a", (), lambda _uid: ""),
    ]
    for each in tables:
        yield each.name, "gauge", each.help


def metrics_table(tmp_path: Path) -> str:
    return table(
        ("metric", "type", "what"),
        ((f"`{name}`", kind, words) for name, kind, words in sorted(families(tmp_path))),
    )


def between(text: str, name: str) -> tuple[int, int]:
    """Where the generated part of that name begins and ends."""
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, f"{README.name} has no part <!-- {name} -->"
    return found.span(1)


@pytest.mark.parametrize("name", ["settings", "metrics"])
def test_tables_are_what_the_code_says(tmp_path: Path, name: str) -> None:
    wanted = settings_table() if name == "settings" else metrics_table(tmp_path)
    text = README.read_text()
    begin, end = between(text, name)
    if os.environ.get("REGENERATE_GOLDEN"):
        README.write_text(text[:begin] + wanted + text[end:])
    else:
        assert text[begin:end] == wanted, "run with REGENERATE_GOLDEN=1 and look at the diff"


def test_every_condition_is_described() -> None:
    text = README.read_text()
    assert [condition.value for condition in Condition if f"| `{condition.value}` |" not in text] == []
