"""Who works on a claim: one task at a time, to its end, whatever becomes of whoever asked.

Different claims go on side by side, but for their files.

A kubelet that gives up waiting does not stop the work: its next request finds it done. When the agent stops,
work that only waits (for the API server, for a lock) is ended, since nothing of it is on disk yet; what has
begun to change the node is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ParamSpec, TypeVar

from dra_driver.claims.allocation import ClaimRef
from dra_driver.errors import PermanentError, RetryableError
from dra_driver.names import ClaimUID

_log = logging.getLogger(__name__)
_P = ParamSpec("_P")
_T = TypeVar("_T")
_PATIENCE = 2.0  # seconds; most of what waits is done by then


class ClaimTasks:
    """The work that is going on in this process."""

    def __init__(self) -> None:
        self._locks: dict[ClaimUID, _Lock] = {}
        self._running: set[asyncio.Task[Any]] = set()
        self._changing: set[asyncio.Task[Any]] = set()
        self._files = asyncio.Lock()
        self.begun = 0
        """How many there ever were."""

    @property
    def is_idle(self) -> bool:
        return not self._locks and not self._running

    @property
    def in_hand(self) -> dict[str, Any]:
        """For the dump: claims that are worked on, and by how many who wait their turn or work."""
        return {
            "locked": {uid: lock.waiting for uid, lock in self._locks.items()},
            "running": len(self._running),
            "changing": len(self._changing),
        }

    async def to_the_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs it also when the caller goes away. Raises RetryableError where the agent's end comes first."""
        task = asyncio.create_task(work)
        self.begun += 1
        self._running.add(task)
        task.add_done_callback(self._done)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():
                raise RetryableError(
                    "the agent is stopping and has not begun with this claim; the kubelet asks the next one"
                ) from None
            raise

    @asynccontextmanager
    async def only_one(self, ref: ClaimRef) -> AsyncIterator[None]:
        """Nobody else works on the claim inside. Raises PermanentError for what can't be a UID."""
        if not ref.uid or "/" in ref.uid or ref.uid.startswith("."):
            raise PermanentError(f"ResourceClaim {ref}: {ref.uid!r} can't be a UID")
        lock = self._locks.setdefault(ref.uid, _Lock())
        lock.waiting += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.waiting -= 1
            if not lock.waiting:
                del self._locks[ref.uid]

    async def with_files(self, do: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """In a thread, one claim after the other.

        Side by side threads would take turns at Python's own lock, anew after each of a hundred system calls:
        eight claims take a third longer that way. All use the same disk, so one that hangs keeps all anyway.
        """
        async with self._files:
            return await asyncio.to_thread(do, *args, **kwargs)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The present task changes the node inside: it is not to be ended."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self._changing.add(task)
        try:
            yield
        finally:
            self._changing.discard(task)

    def stop(self, patience: float = _PATIENCE) -> None:
        """The agent ends: after so many seconds nothing waits any longer."""
        asyncio.get_running_loop().call_later(patience, self._end_waiting)

    async def finish(self, limit: float) -> None:
        """Waits for the work that is going on; at most so many seconds, since a disk can hang."""
        if not self._running:
            return
        self._end_waiting()
        _, late = await asyncio.wait(self._running, timeout=limit)
        if late:
            _log.error("%d claims are still being worked on; the next agent takes them up", len(late))

    def _end_waiting(self) -> None:
        for task in self._running - self._changing:
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("failed: %s", task.exception())


class _Lock:
    """A claim's lock, there as long as somebody wants it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
