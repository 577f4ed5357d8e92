"""Work on files in threads: in order, in one of them, unless that one hangs."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from dra_driver.process.file_threads import FileThreads

ABOUT: ContextVar[str] = ContextVar("ABOUT", default="nothing")


async def test_answers_errors_and_context() -> None:
    threads = FileThreads()
    ABOUT.set("a claim")
    assert await threads.run(ABOUT.get) == "a claim"
    assert await threads.run(int, "ff", base=16) == 255
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    assert await threads.run(threading.get_ident) != threading.get_ident()


async def test_in_order_and_one_thread() -> None:
    threads, seen = FileThreads(patience=60), []

    def work(number: int) -> int:
        seen.append(number)
        return threading.get_ident()

    idents = await asyncio.gather(*(threads.run(work, number) for number in range(100)))
    assert seen == list(range(100))
    assert len(set(idents)) == 1


async def test_one_that_hangs_keeps_nobody_else() -> None:
    threads, may_end = FileThreads(patience=0.01), threading.Event()
    try:
        hanging = [asyncio.create_task(threads.run(may_end.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        answers = await asyncio.wait_for(asyncio.gather(*(threads.run(abs, -n) for n in range(20))), 60)
        assert answers == list(range(20))
        assert not any(task.done() for task in hanging)
    finally:
        may_end.set()
    assert await asyncio.gather(*hanging) == [True, True, True]
    assert await threads.run(abs, -1) == 1


async def test_so_many_may_hang() -> None:
    threads, may_end = FileThreads(patience=0.01, most=2), threading.Event()
    try:
        hanging = [asyncio.create_task(threads.run(may_end.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        late = asyncio.create_task(threads.run(abs, -1))
        await asyncio.sleep(0.2)
        assert not late.done()
        assert sum(thread.name == "files" for thread in threading.enumerate()) >= 2
    finally:
        may_end.set()
    assert await asyncio.wait_for(late, 60) == 1
    await asyncio.gather(*hanging)


async def test_helpers_go_when_nothing_waits() -> None:
    threads, may_end = FileThreads(patience=0.01), threading.Event()
    before = threading.active_count()
    hanging = asyncio.create_task(threads.run(may_end.wait))
    await asyncio.sleep(0)
    helper = await asyncio.wait_for(threads.run(threading.current_thread), 60)
    may_end.set()
    assert await hanging
    await asyncio.to_thread(helper.join, 60)
    assert not helper.is_alive()
    assert threading.active_count() <= before + 2  # ours, and to_thread's


async def test_who_gives_up_waiting_does_not_stop_it() -> None:
    threads, may_end, done = FileThreads(), threading.Event(), threading.Event()

    def work() -> None:
        may_end.wait()
        done.set()

    task = asyncio.create_task(threads.run(work))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    may_end.set()
    assert await asyncio.to_thread(done.wait, 60)
    assert await threads.run(abs, -1) == 1
