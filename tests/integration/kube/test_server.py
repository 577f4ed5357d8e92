"""The server against peers of every kind: right, slow, greedy, broken."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from kube.server import Limits, Request, Response, Server

LIMITS = Limits(body=8 << 20, connections=1024)
Answered = tuple[int, dict[str, str], bytes]


class Scene:
    """A server whose handler repeats what it is sent, once it may."""

    def __init__(self, limits: Limits) -> None:
        self.go = asyncio.Event()
        self.go.set()
        self.seen: list[Request] = []
        self.is_leaving = False
        self.was_cancelled = False
        self.writers: list[asyncio.StreamWriter] = []
        self.server = Server(self.handle, "127.0.0.1:0", limits=limits, is_leaving=lambda: self.is_leaving)

    async def handle(self, request: Request) -> Response:
        self.seen.append(request)
        try:
            await self.go.wait()
        except asyncio.CancelledError:
            self.was_cancelled = True
            raise
        if request.path == "/fault":
            raise RuntimeError("on purpose")
        return Response(200, request.body or b"nothing", "text/x")

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self.server.address.split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        self.writers.append(writer)
        return reader, writer

    async def until(self, what: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while True:
                if what():
                    return
                await asyncio.sleep(0.01)

    async def say(self, *pieces: bytes, answers: int = 1) -> list[Answered]:
        """Sends on one connection, and reads so many answers."""
        reader, writer = await self.open()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.01)
        found = [await answer(reader) for _ in range(answers)]
        writer.close()
        return found


async def answer(reader: asyncio.StreamReader, has_body: bool = True) -> Answered:
    async with asyncio.timeout(60):
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        length = int(headers.get("content-length", 0)) if has_body else 0
        return int(head[0].split()[1]), headers, await reader.readexactly(length)


def post(body: bytes, path: str = "/p", *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@asynccontextmanager
async def running(limits: Limits = LIMITS) -> AsyncIterator[Scene]:
    scene = Scene(limits)
    task = asyncio.create_task(scene.server.run_until_stopped())
    await asyncio.sleep(0.05)
    yield scene
    for writer in scene.writers:
        writer.close()
    scene.go.set()
    scene.server.stop()
    await asyncio.wait_for(task, 60)


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with running() as found:
        yield found


async def test_one_after_the_other_on_one_connection(scene: Scene) -> None:
    found = await scene.say(
        post(b"a", "/x?y=z", "Content-Type: Application/JSON; charset=utf-8"), post(b"b"), answers=2
    )
    assert [(status, body) for status, _, body in found] == [(200, b"a"), (200, b"b")]
    assert scene.seen[0] == Request("POST", "/x", "application/json", b"a")
    assert "connection" not in found[1][1]


async def test_sent_together_they_are_answered_in_order(scene: Scene) -> None:
    found = await scene.say(b"".join(post(b"%d" % number) for number in range(5)), answers=5)
    assert [body for _, _, body in found] == [b"0", b"1", b"2", b"3", b"4"]


async def test_too_many_together_are_turned_away(scene: Scene) -> None:
    scene.go.clear()
    ((status, _, _),) = await scene.say(b"".join(post(b"x") for _ in range(20)))
    assert status == 400


async def test_in_pieces(scene: Scene) -> None:
    ((status, _, body),) = await scene.say(*(bytes([byte]) for byte in post(b"abc")))
    assert (status, body) == (200, b"abc")


async def test_chunked(scene: Scene) -> None:
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    ((_, _, body),) = await scene.say(head, b"3\r\nabc\r\n", b"2\r\nde\r\n0\r\n\r\n")
    assert body == b"abcde"


async def test_expectation_is_met(scene: Scene) -> None:
    reader, writer = await scene.open()
    writer.write(post(b"", "/p", "Expect: 100-continue").replace(b"Content-Length: 0", b"Content-Length: 3"))
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await answer(reader))[2] == b"abc"
    writer.close()


async def test_head_has_no_body(scene: Scene) -> None:
    reader, writer = await scene.open()
    writer.write(b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n" + post(b"next"))
    status, headers, _ = await answer(reader, has_body=False)
    assert (status, headers["content-length"]) == (200, "7")
    assert (await answer(reader))[2] == b"next"
    writer.close()


@pytest.mark.parametrize(
    ("pieces", "status"),
    [
        pytest.param([b"hello\r\n\r\n"], 400, id="no HTTP"),
        pytest.param([post(b"").replace(b"Content-Length: 0", b"Content-Length: -1")], 400, id="length"),
        pytest.param([b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * (40 << 10)], 431, id="endless head"),
        pytest.param(
            [post(b"").replace(b"Content-Length: 0", b"Content-Length: %d" % (LIMITS.body + 1))],
            413,
            id="announced",
        ),
        pytest.param(
            [
                b"POST /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                *[b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"] * 9,
            ],
            413,
            id="grows",
        ),
        pytest.param([post(b"x", "/fault")], 500, id="fault of ours"),
    ],
)
async def test_what_is_turned_away(scene: Scene, pieces: list[bytes], status: int) -> None:
    ((found, headers, _),) = await scene.say(*pieces)
    assert found == status
    assert ("connection" in headers) is (status != 500)
    ((again, _, _),) = await scene.say(post(b"well"))
    assert again == 200


async def test_those_who_take_too_long_are_let_go() -> None:
    async with running(replace(LIMITS, arrival=0.2)) as scene:
        ((status, _, _),) = await scene.say(b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na")
        assert status == 408


async def test_a_head_in_drops_has_no_more_time() -> None:
    async with running(replace(LIMITS, arrival=0.5)) as scene:
        reader, writer = await scene.open()

        async def drip() -> None:
            writer.write(b"GET /")
            while True:
                writer.write(b"a")
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        assert (await answer(reader))[0] == 408
        dripping.cancel()


async def test_those_who_say_nothing_are_let_go() -> None:
    async with running(replace(LIMITS, idle=0.2)) as scene:
        reader, _ = await scene.open()
        async with asyncio.timeout(60):
            assert await reader.read() == b""


async def test_too_many_connections() -> None:
    async with running(replace(LIMITS, connections=2)) as scene:
        held = [await scene.open() for _ in range(2)]
        for reader, writer in held:
            writer.write(post(b"x"))
            assert (await answer(reader))[0] == 200
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await answer((await scene.open())[0])
        held[0][1].close()
        await scene.until(lambda: scene.server.connections == 1)
        assert (await scene.say(post(b"x")))[0][0] == 200


async def test_leaving_asks_to_connect_anew(scene: Scene) -> None:
    scene.is_leaving = True
    reader, writer = await scene.open()
    writer.write(post(b"x"))
    _, headers, _ = await answer(reader)
    assert headers["connection"] == "close"
    assert await reader.read() == b""
    writer.close()


async def test_at_the_end_those_in_flight_are_answered() -> None:
    async with running() as scene:
        scene.go.clear()
        idle, busy = await scene.open(), await scene.open()
        busy[1].write(post(b"late"))
        await scene.until(lambda: len(scene.seen) == 1)
        scene.server.stop()
        async with asyncio.timeout(60):
            assert await idle[0].read() == b""
        with pytest.raises(OSError):
            await scene.open()
        scene.go.set()
        assert (await answer(busy[0]))[2] == b"late"


async def test_cancelled_it_does_not_wait_for_answers() -> None:
    scene = Scene(LIMITS)
    scene.go.clear()
    task = asyncio.create_task(scene.server.run_until_stopped())
    reader, writer = await scene.open()
    writer.write(post(b"x"))
    await scene.until(lambda: len(scene.seen) == 1)
    task.cancel()
    await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), 60)
    with contextlib.suppress(ConnectionError):
        assert await reader.read() == b""
    writer.close()
    assert scene.was_cancelled


async def test_a_peer_that_goes_away_meanwhile(scene: Scene) -> None:
    scene.go.clear()
    _, writer = await scene.open()
    writer.write(post(b"x"))
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await asyncio.sleep(0.05)
    scene.go.set()
    assert (await scene.say(post(b"y")))[0][2] == b"y"


async def test_noise_does_no_harm(scene: Scene) -> None:
    chance = random.Random(1)  # noqa: S311 - no secret
    for _ in range(200):
        message = bytearray(post(b"body" * 20, "/p", "X: y"))
        for _ in range(chance.randrange(1, 6)):
            message[chance.randrange(len(message))] = chance.randrange(256)
        _, writer = await scene.open()
        writer.write(bytes(message[: chance.randrange(1, len(message))]))
        await asyncio.sleep(0)
        writer.transport.abort()
    assert (await scene.say(post(b"well")))[0][2] == b"well"
