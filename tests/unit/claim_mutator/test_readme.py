"""The tables of claim_mutator/README.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from claim_mutator import main
from claim_mutator.metrics import Metrics
from claim_mutator.settings import Settings
from tests.unit.readme_tables import check, family_row, metrics_table, settings_table

README = Path(main.__file__).with_name("README.md")


def families() -> Iterator[tuple[str, str, str]]:
    for family in Metrics(legacy=True).registry.collect():
        if not family.name.startswith(("python_", "process_")):
            yield family_row(family)


@pytest.mark.parametrize("name", ["settings", "metrics"])
def test_tables_are_what_the_code_says(name: str) -> None:
    check(README, name, settings_table(Settings) if name == "settings" else metrics_table(families()))
