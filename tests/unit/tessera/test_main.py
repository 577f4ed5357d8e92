"""`tessera` and its other name."""

from __future__ import annotations

import tomllib
from pathlib import Path

from typer.testing import CliRunner

from tessera.main import app

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def test_kubectl_finds_it_as_a_plugin() -> None:
    scripts = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]
    assert scripts["kubectl-tessera"] == scripts["tessera"] == "tessera.main:main"


def test_without_arguments_it_says_what_there_is() -> None:
    said = CliRunner().invoke(app, []).output
    assert "convert" in said
    assert "grant" in said
