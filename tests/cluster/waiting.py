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


def look_again(look: Callable[[], T], is_right: Callable[[T], bool], times: int = 4) -> T:
    """The first answer of `look` that is right, or the last: what is measured in real time may be less than
    it should, where nobody woke a program in time.
    """
    for _ in range(times - 1):
        if is_right(answer := look()):
            return answer
    return look()
