"""Golden files: `REGENERATE_GOLDEN=1 pytest …` writes them anew, and the diff is what a reviewer reads."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "REGENERATE_GOLDEN"


def assert_golden(path: Path, actual: str) -> None:
    """Compares a text with the file; both end with a newline."""
    if os.environ.get(VARIABLE):
        path.parent.mkdir(exist_ok=True)
        path.write_text(actual)
    assert path.exists(), f"{path} is missing: run with {VARIABLE}=1 to make it"
    assert actual == path.read_text(), f"{path} differs: run with {VARIABLE}=1 and look at the diff"
