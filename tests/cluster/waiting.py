"""Waiting for something to become true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.cluster.errors import WaitError
from tests.cluster.progress import duration

T = TypeVar("T")


def wait_for(
    look: Callable[[], T],
    what: str,
    timeout: float,
    interval: float,
    check: Callable[[], None] = lambda: None,
) -> T:
    """Calls `look` until its answer is true in Python's sense, returns that.

    `check` is called in between and may raise. WaitError names `what` after `timeout` seconds.
    """
    end = time.monotonic() + timeout
    while not (answer := look()):
        check()
        if time.monotonic() > end:
            raise WaitError(f"waited {duration(timeout)} for {what}")
        time.sleep(interval)
    return answer
