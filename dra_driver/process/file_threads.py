"""Where work that blocks on files is done, so that the event loop never is.

One thread does nearly all of it, in the order in which it came: threads side by side would only take turns,
at the price of waking each other. A disk can hang, though, and what comes after need not be on that disk: so
where nothing has been taken up for a moment, another thread helps until nothing waits any more. Compared with
`asyncio.to_thread` a call costs half.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_PATIENCE = 0.02  # seconds; a claim's files take less than a millisecond
_MOST = 8  # threads


@dataclass(slots=True)
class _Work:
    future: asyncio.Future[Any]
    do: Callable[[], Any]
    answer: Any = None
    error: BaseException | None = None


class FileThreads:
    """Use from one event loop. `most`: threads that hang before the rest has to wait."""

    def __init__(self, *, patience: float = _PATIENCE, most: int = _MOST) -> None:
        self._patience = patience
        self._most = most
        self._waiting: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._done: deque[_Work] = deque()
        self._is_told = False  # the loop, that something is done
        self._taken = 0
        self._helpers = 0
        self._counting = threading.Lock()
        self._is_watched = False
        self._loop: asyncio.AbstractEventLoop | None = None

    async def run(self, do: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """What it returns or raises; it inherits the context. Cancelled, it goes on, as any thread does."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
            self._start(self._work_on)
        context = contextvars.copy_context()
        work = _Work(loop.create_future(), lambda: context.run(do, *args, **kwargs))
        self._waiting.put(work)
        if not self._is_watched:
            self._is_watched = True
            loop.call_later(self._patience, self._watch, self._taken)
        answer: _T = await work.future
        return answer

    def _watch(self, taken: int) -> None:
        """On the loop, as long as something waits."""
        self._is_watched = not self._waiting.empty()
        if not self._is_watched:
            return
        if self._taken == taken and self._helpers < self._most - 1:
            with self._counting:
                self._helpers += 1
            self._start(self._help)
        assert self._loop is not None  # noqa: S101 - for the type checker
        self._loop.call_later(self._patience, self._watch, self._taken)

    def _start(self, what: Callable[[], None]) -> None:
        # A daemon: one that hangs must not be waited for at the end.
        threading.Thread(target=what, name="files", daemon=True).start()

    # --- in threads -----------------------------------------------------------------------------------------

    def _work_on(self) -> None:
        while True:
            self._finish(self._waiting.get())

    def _help(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._finish(self._waiting.get_nowait())
        with self._counting:
            self._helpers -= 1

    def _finish(self, work: _Work) -> None:
        self._taken += 1
        try:
            work.answer = work.do()
        except BaseException as error:
            work.error = error
        self._done.append(work)
        if not self._is_told:
            self._is_told = True
            with suppress(RuntimeError):  # the loop has ended
                assert self._loop is not None  # noqa: S101 - for the type checker
                self._loop.call_soon_threadsafe(self._tell)

    # --- on the loop ----------------------------------------------------------------------------------------

    def _tell(self) -> None:
        self._is_told = False
        while self._done:
            work = self._done.popleft()
            if work.future.done():  # whoever waited has gone
                continue
            if work.error is not None:
                work.future.set_exception(work.error)
            else:
                work.future.set_result(work.answer)
