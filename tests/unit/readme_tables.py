"""Tables of a README that are what the code says. REGENERATE_GOLDEN=1 writes them anew."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from prometheus_client.metrics_core import Metric

from kube.settings import fields, sources


def settings_table(model: type[Any]) -> str:
    return _table(
        ("flag", "variable", "key", "default", "what"),
        (
            (
                *(f"`{spell(field.name)}`" for spell in sources.SPELLINGS),
                f"`{field.default}`" if field.default is not None else "",
                field.description,
            )
            for field in fields(model)
        ),
    )


def metrics_table(rows: Iterable[tuple[str, str, str]]) -> str:
    """Names, types and words."""
    return _table(
        ("metric", "type", "what"), ((f"`{name}`", kind, words) for name, kind, words in sorted(rows))
    )


def family_row(family: Metric) -> tuple[str, str, str]:
    suffix = {"counter": "_total", "info": "_info"}.get(family.type, "")
    return family.name + suffix, family.type, family.documentation


def check(readme: Path, name: str, wanted: str) -> None:
    """Of the part between `<!-- name -->` and `<!-- end -->`."""
    text = readme.read_text()
    found = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert found is not None, f"{readme} has no part <!-- {name} -->"
    if os.environ.get("REGENERATE_GOLDEN"):
        begin, end = found.span(1)
        readme.write_text(text[:begin] + wanted + text[end:])
    else:
        assert found[1] == wanted, "run with REGENERATE_GOLDEN=1 and look at the diff"


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, ("---",) * len(header), *rows)
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
