"""The lock between two agents. Two NodeLocks on one file are two processes, as far as the kernel knows."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections import Counter
from pathlib import Path

import pytest

from dra_driver.errors import RetryableError
from dra_driver.kubelet.node_lock import NodeLock


class Book:
    """Counts how often it was read again. `is_changed`: by somebody who does not take the lock."""

    def __init__(self) -> None:
        self.times = 0
        self.is_changed = False
        self.error: OSError | None = None

    def is_current(self) -> bool:
        return not self.is_changed

    async def catch_up(self) -> None:
        if self.error is not None:
            raise self.error
        self.times += 1
        self.is_changed = False

    def leave(self) -> None:
        pass


class Agent:
    """One process. `run`s in it overlap, and never with another's."""

    def __init__(self, name: str, path: Path, **options: float) -> None:
        self.name = name
        self.book = Book()
        self.lock = NodeLock(path, self.book, **options)  # type: ignore[arg-type]

    async def run(self, inside: Counter[str], seconds: float = 0.0, *, anew: bool = False) -> int:
        """How many of this process were inside at once."""
        async with self.lock.held(anew=anew):
            inside[self.name] += 1
            assert set(+inside) == {self.name}
            most = inside[self.name]
            await asyncio.sleep(seconds)
            inside[self.name] -= 1
            return most

    async def until_in(self, inside: Counter[str]) -> None:
        async with asyncio.timeout(60):
            while not inside[self.name]:  # noqa: ASYNC110 - a lock has no events to wait for
                await asyncio.sleep(0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "serialize.lock"


async def test_one_process_side_by_side_two_never(path: Path) -> None:
    inside: Counter[str] = Counter()
    agents = [Agent("old", path), Agent("new", path)]
    most = await asyncio.gather(*(agent.run(inside, 0.2) for _ in range(10) for agent in agents))
    assert max(most) == 10


async def test_what_others_did_is_read_and_nothing_else(path: Path) -> None:
    inside: Counter[str] = Counter()
    old, new = Agent("old", path), Agent("new", path)
    for _ in range(5):
        await old.run(inside)
    assert old.book.times == 1
    await new.run(inside)
    await old.run(inside)
    await old.run(inside)
    assert (old.book.times, new.book.times) == (2, 1)
    old.book.is_changed = True
    await old.run(inside)
    await old.run(inside, anew=True)
    assert old.book.times == 4


async def test_anew_waits_until_all_are_out(path: Path) -> None:
    inside: Counter[str] = Counter()
    agent = Agent("only", path)
    working = asyncio.create_task(agent.run(inside, 0.1))
    await agent.until_in(inside)
    assert await agent.run(inside, anew=True) == 1
    assert working.done()


async def test_a_process_that_is_always_busy_gives_the_other_its_turn(path: Path) -> None:
    inside: Counter[str] = Counter()
    busy, other = Agent("busy", path, turn=0.05), Agent("other", path, limit=60.0)
    is_over = False

    async def work() -> None:
        while not is_over:
            await busy.run(inside, 0.02)

    workers = [asyncio.create_task(work()) for _ in range(4)]
    await asyncio.sleep(0.03)
    for _ in range(3):
        await other.run(inside)
    is_over = True
    await asyncio.gather(*workers)


async def test_without_another_process_nobody_waits_for_a_slow_one(path: Path) -> None:
    inside: Counter[str] = Counter()
    agent = Agent("only", path, turn=0.01)
    slow = asyncio.create_task(agent.run(inside, 3.0))
    await agent.until_in(inside)
    for _ in range(10):
        await agent.run(inside)
    assert not slow.done()
    await slow


async def test_a_process_that_hangs_is_told_of(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    agent = Agent("waits", path, limit=0.1)
    with pytest.raises(RetryableError, match=r"another agent on this node has held .*lock for 0\.1 s"):
        await agent.run(Counter())
    os.close(descriptor)  # as when the process dies
    await agent.run(Counter())


async def test_own_work_that_hangs_is_told_of(path: Path) -> None:
    inside: Counter[str] = Counter()
    agent = Agent("hangs", path, limit=0.1)
    hanging = asyncio.create_task(agent.run(inside, 0.3))
    await agent.until_in(inside)
    with pytest.raises(RetryableError, match="work on other claims has held"):
        await agent.run(inside, anew=True)
    await hanging
    await agent.run(inside)


async def test_a_removed_file_locks_nobody_out_and_lets_nobody_in(path: Path) -> None:
    inside: Counter[str] = Counter()
    old, new = Agent("old", path), Agent("new", path)
    await old.run(inside)
    path.unlink()  # noqa: ASYNC240
    await asyncio.gather(*(agent.run(inside, 0.02) for _ in range(3) for agent in (old, new)))
    assert path.exists()  # noqa: ASYNC240


async def test_what_can_not_be_read_lets_nobody_in(path: Path) -> None:
    inside: Counter[str] = Counter()
    agent, other = Agent("one", path), Agent("other", path)
    agent.book.error = OSError("Input/output error")
    with pytest.raises(OSError, match="Input/output"):
        await agent.run(inside)
    await other.run(inside)
    agent.book.error = None
    await agent.run(inside)
    assert agent.book.times == 1


async def test_without_a_directory(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await Agent("one", path.parent / "missing" / path.name).run(Counter())
