"""What counts as no answer from NVML, for all who ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

# Some cards have names that are not UTF-8, which pynvml does not foresee.
NO_ANSWER = (pynvml.NVMLError, UnicodeError)


def optional(ask: Callable[[], Any]) -> Any:
    """The answer, or None from a card or a driver that has none."""
    try:
        return ask()
    except NO_ANSWER:
        return None
