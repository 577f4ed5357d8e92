"""The lock between the agents of one node, of which there are two while one replaces the other.

Whoever changes what a node holds for claims does so under it: tasks of one process side by side, two
processes never. The kernel's lock on an open file goes with the process that had it, so a crash leaves
nothing to be cleaned up. It is asked for without waiting, and again after a moment: nothing blocks, no thread
is needed.

Before anybody is let in, what is guarded is brought up to date if another process had the lock since. The
last one to have it has left its mark in the file; besides, the guarded may see for itself that somebody
changed it (a person, by hand). Where neither is so, which is nearly always, this costs a handful of system
calls, however much there is to guard.

A process that has used the lock for `turn` seconds without a break looks whether another one waits, which it
shows by a lock on a second file; then it lets nobody in until all are out and the other has had its turn.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Protocol

from dra_driver.errors import RetryableError

NAME = "serialize.lock"
_POLL = 0.01  # seconds
_LIMIT = 15.0  # seconds; the kubelet gives up after 45
_TURN = 0.25
_MARK = 32  # bytes


class Guarded(Protocol):
    """What is only changed under the lock. Each method is called while nobody of this process is at work."""

    def is_current(self) -> bool:
        """Whether it is as it was at `leave`, as far as one look tells."""

    async def catch_up(self) -> None:
        """Takes up what others have done. Raises OSError."""

    def leave(self) -> None:
        """Others may change it from now on."""


class NodeLock:
    """`path`: the lock's file, made where it is not there; its directory must be."""

    def __init__(
        self,
        path: Path,
        guarded: Guarded,
        *,
        limit: float = _LIMIT,
        turn: float = _TURN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guarded = guarded
        self._limit = limit
        self._turn = turn
        self._clock = clock
        self._mark = uuid.uuid4().hex.encode()
        self._file = _LockFile(path)
        self._queue = _LockFile(path.with_suffix(".next"))
        self._door = asyncio.Lock()
        self._empty = asyncio.Event()
        self._users = 0
        self._since = 0.0

    @asynccontextmanager
    async def held(self, *, anew: bool = False) -> AsyncIterator[None]:
        """`anew`: what is guarded is brought up to date in any case.

        Raises RetryableError after `limit` seconds, and OSError where the file can't be used.
        """
        try:
            async with asyncio.timeout(self._limit):
                await self._enter(anew)
        except TimeoutError as error:
            raise RetryableError(self._why_not()) from error
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._guarded.leave()
                self._file.unlock()
                self._empty.set()

    async def _enter(self, anew: bool) -> None:
        async with self._door:
            if self._users and (anew or self._is_wanted()):
                self._empty.clear()
                await self._empty.wait()
                await asyncio.sleep(0 if anew else 2 * _POLL)  # the other process looks within this time
            if not self._users:
                await self._take(anew)
            self._users += 1

    def _is_wanted(self) -> bool:
        """Whether another process waits for the lock, and we have had it for long enough."""
        if self._clock() - self._since <= self._turn:
            return False
        if not self._queue.try_lock():
            return True
        self._queue.unlock()
        self._since = self._clock()
        return False

    async def _take(self, anew: bool) -> None:
        await self._lock()
        try:
            is_ours = self._file.read(_MARK) == self._mark
            if anew or not is_ours or not self._guarded.is_current():
                await self._guarded.catch_up()
            if not is_ours:
                with suppress(OSError):  # a full disk: then it is brought up to date again next time
                    self._file.write(self._mark)
        except BaseException:
            self._file.unlock()
            raise
        self._since = self._clock()

    async def _lock(self) -> None:
        if self._file.try_lock():
            return
        is_first = False
        try:
            while not self._file.try_lock():
                is_first = is_first or self._queue.try_lock()
                await asyncio.sleep(_POLL)
        finally:
            if is_first:
                self._queue.unlock()

    def _why_not(self) -> str:
        who = "work on other claims" if self._users else "another agent on this node"
        return (
            f"{who} has held {self._file.path} for {self._limit:g} s; the next call asks for it again. If"
            " this goes on, see whether a disk of the node hangs, and whether an older Pod of the agent does"
        )


class _LockFile:
    """A file and the kernel's lock on it, opened when first needed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def try_lock(self) -> bool:
        """Raises OSError where the file can't be opened."""
        if self._descriptor is None:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if self._is_still_there(self._descriptor):
            return True
        # Somebody has removed it, and another process may have made and locked a new one.
        os.close(self._descriptor)
        self._descriptor = None
        return False

    def unlock(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read(self, size: int) -> bytes:
        return os.pread(self._descriptor, size, 0) if self._descriptor is not None else b""

    def write(self, content: bytes) -> None:
        if self._descriptor is not None:
            os.pwrite(self._descriptor, content, 0)

    def _is_still_there(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        return False

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
