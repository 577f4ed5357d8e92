from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from kube import paths
from kube.client import Client
from kube.errors import Unavailable
from kube.events import ObjectRef, Recorder
from tests.integration.api_server import ApiServer, Seen

NODE = ObjectRef.of_node("node-a")
CLAIM = ObjectRef.of_claim("default", "claim", "uid-1")
EVENTS = paths.events("default").replace("/namespaces/default", "")


class Told:
    """A recorder, its API server, and a clock that is turned by hand."""

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.now = 1_790_000_000.0
        self.recorder = Recorder(
            client,
            component="gpu.tessera.dev",
            instance="node-a",
            clock=lambda: self.now,
            monotonic=lambda: self.now,
        )

    def events(self) -> list[dict[str, Any]]:
        return self.api.all(EVENTS)

    def writes(self) -> list[Seen]:
        return [seen for seen in self.api.requests if seen.method != "GET"]

    async def after(self, seconds: float) -> None:
        self.now += seconds
        await self.recorder.flush()


@pytest.fixture
async def told() -> AsyncIterator[Told]:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        yield Told(api, client)


async def test_an_event_as_kubectl_describe_wants_it(told: Told) -> None:
    told.recorder.warn(CLAIM, "PrepareRefused", "too much")
    await told.recorder.flush()
    (event,) = told.events()
    assert event["metadata"]["namespace"] == "default"
    assert event["metadata"]["name"].startswith("claim.")
    assert event["involvedObject"] == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "name": "claim",
        "namespace": "default",
        "uid": CLAIM.uid,
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "PrepareRefused", "too much")
    assert event["count"] == 1
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-09-21T14:13:20Z"
    assert event["source"] == {"component": "gpu.tessera.dev", "host": "node-a"}


async def test_about_a_node(told: Told) -> None:
    told.recorder.warn(NODE, "LedgerCorrupt", "a file")
    told.recorder.note(NODE, "CardRecovered", "found again")
    await told.recorder.flush()
    assert [event["type"] for event in sorted(told.events(), key=lambda e: e["reason"])] == [
        "Normal",
        "Warning",
    ]
    for event in told.events():
        assert event["metadata"]["namespace"] == "default"
        # kubectl describe node looks for this UID, or for the object's own
        assert event["involvedObject"] == {
            "apiVersion": "v1",
            "kind": "Node",
            "name": "node-a",
            "uid": "node-a",
        }


async def test_repetitions_are_one_event_written_less_and_less_often(told: Told) -> None:
    written_at = []
    for second in range(1200):
        told.recorder.warn(CLAIM, "PrepareRefused", f"try {second}")
        before = len(told.writes())
        await told.after(1)
        if len(told.writes()) > before:
            written_at.append(second)
    assert written_at == [0, 10, 30, 70, 150, 310, 610, 910]
    (event,) = told.events()
    assert (event["count"], event["message"]) == (911, "try 910")
    assert event["firstTimestamp"] < event["lastTimestamp"]
    assert [seen.method for seen in told.writes()] == ["POST"] + ["PATCH"] * 7


async def test_another_reason_and_another_object_are_other_events(told: Told) -> None:
    for about in (NODE, CLAIM):
        for reason in ("One", "Two"):
            told.recorder.warn(about, reason, "message")
    await told.recorder.flush()
    assert len(told.events()) == 4
    assert {event["count"] for event in told.events()} == {1}


async def test_parts_of_an_object_have_events_of_their_own(told: Told) -> None:
    for card in ("gpu-a", "gpu-b", "gpu-a"):
        told.recorder.warn(NODE, "CardLost", f"device {card}", part=card)
    await told.recorder.flush()
    assert {event["message"]: event["count"] for event in told.events()} == {
        "device gpu-a": 2,
        "device gpu-b": 1,
    }


async def test_nothing_is_written_while_nothing_is_said(told: Told) -> None:
    told.recorder.warn(NODE, "One", "message")
    await told.recorder.flush()
    before = len(told.api.requests)
    for _ in range(100):
        await told.after(60)
    assert len(told.api.requests) == before


async def test_an_event_that_has_expired_is_made_anew(told: Told) -> None:
    told.recorder.warn(NODE, "One", "message")
    await told.recorder.flush()
    told.api.drop(EVENTS, told.events()[0]["metadata"]["name"], "default")
    told.recorder.warn(NODE, "One", "again")
    await told.after(11)
    assert [event["count"] for event in told.events()] == [2]


async def test_after_an_hour_it_is_a_new_one(told: Told) -> None:
    told.recorder.warn(NODE, "One", "message")
    await told.recorder.flush()
    told.now += 3601
    told.recorder.warn(CLAIM, "Another", "makes room")
    told.recorder.warn(NODE, "One", "again")
    await told.recorder.flush()
    assert sorted(event["count"] for event in told.events()) == [1, 1, 1]


async def test_all_together_are_limited(told: Told) -> None:
    """20 at once, then one a second; nothing waits for it."""
    for number in range(30):
        told.recorder.warn(ObjectRef("v1", "Pod", f"pod-{number}", "n", str(number)), "One", "message")
    flush = asyncio.create_task(told.recorder.flush())
    await _until(lambda: len(told.writes()) == 20)
    await asyncio.sleep(0.2)
    assert len(told.writes()) == 20
    flush.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await flush
    told.now += 100
    await told.recorder.flush()
    assert len(told.writes()) == 30


async def test_memory_is_bounded(told: Told) -> None:
    for number in range(2000):
        told.recorder.warn(ObjectRef("v1", "Pod", f"pod-{number}", "n", str(number)), "One", "message")
    assert len(told.recorder._subjects) == 512


@pytest.mark.parametrize(
    ("status", "times", "expected"),
    [
        pytest.param(503, 2, 1, id="comes-back"),
        pytest.param(429, 2, 1, id="told-to-wait"),
        pytest.param(503, 99, 0, id="stays-away"),
        pytest.param(403, 99, 0, id="forbidden"),
        pytest.param(404, 99, 0, id="no-namespace"),
        pytest.param(422, 99, 0, id="invalid"),
    ],
)
async def test_a_server_that_refuses(told: Told, status: int, times: int, expected: int) -> None:
    told.api.refuse(status, times=times)
    told.recorder.warn(NODE, "One", "message")
    for _ in range(10):
        await told.after(60)
    assert len(told.events()) == expected
    assert len(told.writes()) <= 4


async def test_forbidden_is_logged_once(told: Told, caplog: pytest.LogCaptureFixture) -> None:
    told.api.refuse(403, times=99)
    for number in range(3):
        told.recorder.warn(NODE, f"Reason{number}", "message")
        await told.recorder.flush()
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [
        "event Reason0 about Node node-a is not written" in warning.getMessage() for warning in warnings
    ] == [True]


async def test_a_lost_answer_makes_no_second_event(told: Told) -> None:
    create = told.recorder._client.create
    calls = 0

    async def lossy(path: str, body: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        answer = await create(path, body, **more)
        if calls == 1:
            raise Unavailable(0, "Timeout", "no answer in time")
        return answer

    told.recorder._client.create = lossy  # type: ignore[method-assign]
    told.recorder.warn(NODE, "One", "message")
    await told.recorder.flush()
    await told.after(60)
    assert len(told.events()) == 1


@pytest.mark.parametrize(
    "about",
    [
        pytest.param(ObjectRef.of_node("n" * 253), id="long-name"),
        pytest.param(ObjectRef("v1", "Pod", "a" * 229 + "." + "b" * 10, "n", "u"), id="cut-at-a-dot"),
    ],
)
async def test_long_names_and_messages(told: Told, about: ObjectRef) -> None:
    told.recorder.warn(about, "One", "m" * 5000)
    await told.recorder.flush()
    (event,) = told.events()
    assert len(event["metadata"]["name"]) <= 253
    assert ".." not in event["metadata"]["name"]
    assert len(event["message"]) == 1024


async def test_run_is_woken_from_another_thread(told: Told) -> None:
    """And says what was said before it ran."""
    told.recorder.warn(NODE, "Before", "message")
    running = asyncio.create_task(told.recorder.run())
    await _until(lambda: len(told.events()) == 1)
    thread = threading.Thread(target=told.recorder.warn, args=(NODE, "Thread", "message"))
    thread.start()
    await _until(lambda: len(told.events()) == 2)
    thread.join()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


async def _until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - a server's state has no event to wait for
            await asyncio.sleep(0.01)
