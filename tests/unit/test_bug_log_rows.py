"""The table of public reports (tests/corpus/bug-log.yaml) names tests that there are."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
TABLE: dict[str, list[str] | str] = yaml.safe_load((ROOT / "tests/corpus/bug-log.yaml").read_text())


@cache
def functions_of(file: str) -> frozenset[str]:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.mark.parametrize("report", TABLE)
def test_a_report_has_a_test_or_a_reason(report: str) -> None:
    found = TABLE[report]
    if isinstance(found, str):
        assert found.endswith(".")
        return
    assert found
    for each in found:
        file, _, name = each.partition("::")
        assert name.startswith("test_")
        assert name in functions_of(file), f"{report}: there is no {each}"
