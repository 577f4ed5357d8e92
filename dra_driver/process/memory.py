"""Keeps the process as small as its work: what a burst of claims needed goes back to the kernel after it.

glibc's defaults are for programs that will need the same again at once: a heap for each of many threads, and
large blocks kept after they are freed. An agent that is idle most of the day is better off without. Elsewhere
than on glibc nothing of this is done.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
from collections.abc import Callable
from typing import NoReturn

# mallopt's names for them, in malloc.h
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_LARGE = 128 * 1024  # bytes; a fixed value, where glibc would raise it with each large block that is freed
_ARENAS = 2
_PERIOD = 5.0  # seconds


def bound() -> None:
    """To be called before the first thread is started."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        for parameter, value in (
            (_MMAP_THRESHOLD, _LARGE),
            (_TRIM_THRESHOLD, _LARGE),
            (_ARENA_MAX, _ARENAS),
        ):
            mallopt(parameter, value)


async def give_back(work_done: Callable[[], int], is_idle: Callable[[], bool]) -> NoReturn:
    """Until cancelled: after work, once nothing is going on. `work_done`: a number that grows with it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    given_back = work_done()
    while True:
        await asyncio.sleep(_PERIOD)
        if work_done() == given_back or not is_idle():
            continue
        given_back = work_done()
        gc.collect()
        if trim is not None:
            trim(0)
