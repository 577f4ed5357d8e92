"""The reflector against an API server with faults: what it knows in the end, and how often it asks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from kube.backoff import Backoff
from kube.client import Client
from kube.reflector import Change, Reflector
from tests.integration.api_server import ApiServer

NODES = "/api/v1/nodes"


def node(name: str, size: int = 1) -> dict[str, object]:
    return {"metadata": {"name": name}, "size": size}


class Following:
    """A running reflector of the nodes, more impatient than in production.

    Where a test counts requests, a pause that the machine makes must not be taken for a silent stream, or for
    one that has lasted well.
    """

    def __init__(
        self, api: ApiServer, client: Client, page: int, inactivity: float, healthy_after: float
    ) -> None:
        self.api = api
        self.changes: list[tuple[str, str]] = []
        self.reflector = Reflector(
            client, NODES, on_change=self._note, backoff=Backoff(0.08, 1.0), inactivity=inactivity,
            page=page, healthy_after=healthy_after,
        )  # fmt: skip

    def _note(self, change: Change) -> None:
        self.changes.append((change.kind, change.key))

    async def until(self, condition: Callable[[], bool], seconds: float = 60.0) -> None:
        """Waits; fails with what the reflector knows."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, (
                sorted(self.reflector.objects),
                self.changes,
                self.api.requests[-5:],
            )
            await asyncio.sleep(0.01)

    def requests_since(self, moment: float) -> int:
        return sum(seen.at >= moment for seen in self.api.requests)


@asynccontextmanager
async def following(
    page: int = 500, *, inactivity: float = 10.0, healthy_after: float = 5.0
) -> AsyncIterator[Following]:
    async with ApiServer() as api, Client(api.connection, user_agent="test", timeout=10.0) as client:
        api.put(NODES, node("a"))
        api.put(NODES, node("b"))
        follow = Following(api, client, page, inactivity, healthy_after)
        task = asyncio.create_task(follow.reflector.run())
        try:
            await follow.reflector.synced(60)
            await follow.until(lambda: api.open_watches == 1)
            yield follow
            assert not task.done(), task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def test_lists_in_pages_and_follows() -> None:
    async with following(page=1) as follow:
        assert sorted(follow.reflector.objects) == ["a", "b"]
        follow.api.put(NODES, node("c"))
        follow.api.put(NODES, node("a", 2))
        follow.api.drop(NODES, "b")
        await follow.until(lambda: len(follow.changes) == 5)
        assert follow.changes[2:] == [("ADDED", "c"), ("MODIFIED", "a"), ("DELETED", "b")]
        assert follow.reflector.objects["a"]["size"] == 2
        lists = [seen for seen in follow.api.requests if not seen.is_watch]
        assert [seen.params["limit"] for seen in lists] == ["1", "1"]


async def test_asks_for_bookmarks_and_a_spread_end() -> None:
    async with following() as follow:
        watch = next(seen for seen in follow.api.requests if seen.is_watch)
        assert watch.params["allowWatchBookmarks"] == "true"
        assert 300 <= int(watch.params["timeoutSeconds"]) <= 600
        assert watch.headers["User-Agent"] == "test"


async def test_silent_stream_is_given_up() -> None:
    async with following(inactivity=0.5) as follow:
        silent = iter([True])
        follow.api.watch_fault = lambda _: "silent" if next(silent, False) else None
        await follow.api.end_streams()
        await asyncio.sleep(0.2)
        follow.api.put(NODES, node("c"))  # not seen on the silent stream
        await follow.until(lambda: "c" in follow.reflector.objects)
        assert sum(not seen.is_watch for seen in follow.api.requests) == 1, "no second list is needed"


async def test_a_bookmark_keeps_a_quiet_stream() -> None:
    async with following(inactivity=2.0) as follow:
        for _ in range(12):
            await asyncio.sleep(0.2)
            await follow.api.bookmark()
        assert sum(seen.is_watch for seen in follow.api.requests) == 1


@pytest.mark.parametrize("how", ["server closes", "TCP reset"])
async def test_resumes_where_it_stopped(how: str) -> None:
    async with following() as follow:
        follow.api.put(NODES, node("c"))
        await follow.until(lambda: "c" in follow.reflector.objects)
        await follow.api.bookmark()
        await asyncio.sleep(0.05)
        before = follow.reflector.objects["c"]["metadata"]["resourceVersion"]
        if how == "TCP reset":
            follow.api.reset_streams()
        else:
            await follow.api.end_streams()
        follow.api.drop(NODES, "a")
        await follow.until(lambda: ("DELETED", "a") in follow.changes)
        watches = [seen for seen in follow.api.requests if seen.is_watch]
        assert watches[1].params["resourceVersion"] == before
        assert sum(not seen.is_watch for seen in follow.api.requests) == 1


@pytest.mark.parametrize("how", ["in the stream", "as an HTTP status"])
async def test_gone_lists_again_and_reports_what_was_missed(how: str) -> None:
    async with following() as follow:
        gone = iter([True])
        if how == "in the stream":
            follow.api.watch_fault = lambda _: "gone" if next(gone, False) else None
        await follow.api.end_streams()
        follow.api.drop(NODES, "a")
        follow.api.put(NODES, node("b", 2))
        follow.api.put(NODES, node("c"))
        follow.api.compact()
        await follow.until(lambda: "c" in follow.reflector.objects)
        assert sorted(follow.changes[2:]) == [("ADDED", "c"), ("DELETED", "a"), ("MODIFIED", "b")]
        follow.api.put(NODES, node("d"))
        await follow.until(lambda: "d" in follow.reflector.objects)


async def test_recreated_while_away_is_a_deletion_and_an_addition() -> None:
    async with following() as follow:
        await follow.api.end_streams()
        follow.api.drop(NODES, "a")
        follow.api.put(NODES, node("a", 2))
        follow.api.compact()
        await follow.until(lambda: len(follow.changes) == 4)
        assert follow.changes[2:] == [("DELETED", "a"), ("ADDED", "a")]


@pytest.mark.parametrize("fault", ["gone", "close", "reset"])
async def test_a_stream_that_always_fails_is_asked_for_ever_more_rarely(fault: str) -> None:
    async with following() as follow:
        follow.api.watch_fault = lambda _: fault
        await follow.api.end_streams()
        begin = time.monotonic()
        await asyncio.sleep(3)
        # 0.08 s doubled: at most 8 rounds in 3 s, one list and one watch in each; then one or two a second.
        assert follow.requests_since(begin) <= 18 + 4 * (time.monotonic() - begin - 3)
        follow.api.watch_fault = lambda _: None
        follow.api.put(NODES, node("c"))
        await follow.until(lambda: "c" in follow.reflector.objects)


async def test_unavailable_for_a_while() -> None:
    async with following() as follow:
        follow.api.refuse(503, times=10_000)
        await follow.api.end_streams()
        begin = time.monotonic()
        follow.api.put(NODES, node("c"))
        await asyncio.sleep(2)
        assert follow.requests_since(begin) <= 9 + 2 * (time.monotonic() - begin - 2)
        assert sorted(follow.reflector.objects) == ["a", "b"], "the last copy stays readable"
        follow.api._refusals.clear()
        await follow.until(lambda: "c" in follow.reflector.objects)


async def test_retry_after_is_honoured() -> None:
    async with following() as follow:
        begin = time.monotonic()
        follow.api.refuse(429, times=1, retry_after=1)
        await follow.api.end_streams()
        follow.api.put(NODES, node("c"))
        await follow.until(lambda: "c" in follow.reflector.objects)
        assert time.monotonic() - begin >= 1


async def test_api_server_down() -> None:
    async with following() as follow:
        await follow.api.stop()
        await asyncio.sleep(1.5)
        assert sorted(follow.reflector.objects) == ["a", "b"]
        assert follow.reflector.last_error is not None
        await follow.api.start()
        follow.api.put(NODES, node("c"))
        await follow.until(lambda: "c" in follow.reflector.objects)


async def test_expired_page_begins_the_list_again() -> None:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        for name in "abc":
            api.put(NODES, node(name))
        api.refuse(410, times=1, when=lambda seen: "continue" in seen.params, reason="Expired")
        reflector = Reflector(client, NODES, page=1, backoff=Backoff(0.05, 1.0))
        task = asyncio.create_task(reflector.run())
        await reflector.synced(60)
        assert sorted(reflector.objects) == ["a", "b", "c"]
        task.cancel()


async def test_synced_names_the_last_failure() -> None:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        api.refuse(403, times=10_000, reason="Forbidden")
        reflector = Reflector(client, NODES, backoff=Backoff(0.05, 1.0))
        task = asyncio.create_task(reflector.run())
        with pytest.raises(TimeoutError, match=r"nodes.*403 Forbidden"):
            await reflector.synced(2.0)
        task.cancel()


async def test_a_failing_observer_ends_the_task() -> None:
    def observer(_: Change) -> None:
        raise RuntimeError("cannot go on")

    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        api.put(NODES, node("a"))
        with pytest.raises(RuntimeError, match="cannot go on"):
            await Reflector(client, NODES, on_change=observer).run()
