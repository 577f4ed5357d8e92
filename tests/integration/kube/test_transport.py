"""The transport against servers that speak byte by byte what a real network brings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kube.transport import ProtocolError, Transport

Answering = Callable[[int, asyncio.StreamReader, asyncio.StreamWriter], Any]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """`answer` is given each request's number, counted over all connections, after its head was read."""

    def __init__(self, answer: Answering) -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.connections = 0
        self.open = 0
        self.most = 0
        self.handlers: set[asyncio.Task[None] | None] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.handlers.add(asyncio.current_task())
        self.connections += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                await self.answer(len(self.heads), reader, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()


@asynccontextmanager
async def served(answer: Answering) -> AsyncIterator[tuple[Server, Transport]]:
    server = Server(answer)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    transport = Transport(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/base/", tls=None)
    try:
        yield server, transport
    finally:
        transport.close()
        listening.close()
        if server.handlers:
            await asyncio.wait(filter(None, server.handlers), timeout=30)
        await asyncio.sleep(0.01)


async def says(writer: asyncio.StreamWriter, *parts: bytes) -> None:
    for part in parts:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.005)


async def ask(transport: Transport, method: str = "GET", body: bytes | None = None) -> bytes:
    async with asyncio.timeout(60):
        with await transport.request(
            method, "/a b", params={"c": "d&e"}, headers={"X": "1"}, body=body
        ) as response:
            return await response.read()


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([OK], id="at once"),
        pytest.param([bytes([byte]) for byte in OK], id="byte by byte"),
        pytest.param(
            [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n", b"1\r\nk\r\n0\r\n\r\n"],
            id="chunked",
        ),
        pytest.param([b"HTTP/1.1 100 Continue\r\n\r\n", OK], id="continue"),
        pytest.param([b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n" + OK], id="hints, in one piece"),
    ],
)
async def test_answers(parts: list[bytes]) -> None:
    async with served(lambda _n, _r, writer: says(writer, *parts)) as (server, transport):
        assert await ask(transport) == b"ok"
        assert await ask(transport, "POST", b"body") == b"ok"
        assert server.connections == 1
    assert server.heads[0].startswith(b"GET /base/a%20b?c=d%26e HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"\r\nContent-Length: 4\r\n" in server.heads[1]


async def test_an_answer_that_ends_with_its_connection() -> None:
    async def answer(_number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        await says(writer, b"HTTP/1.1 200 OK\r\n\r\nok")
        writer.close()

    async with served(answer) as (server, transport):
        assert [await ask(transport), await ask(transport)] == [b"ok", b"ok"]
        assert server.connections == 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_kept_connection_that_dies_under_a_request(method: str) -> None:
    """The server closes it in the moment in which the next request arrives."""

    async def answer(number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        if number == 2:
            writer.transport.abort()
        else:
            await says(writer, OK)

    async with served(answer) as (server, transport):
        assert await ask(transport) == b"ok"
        if method == "GET":
            assert await ask(transport) == b"ok"
            assert len(server.heads) == 3
        else:
            # Nobody knows whether it was done: only the caller can tell whether a second try is safe.
            with pytest.raises(OSError):
                await ask(transport, "POST", b"{}")
            assert len(server.heads) == 2


async def test_a_new_connection_that_dies_is_not_tried_again() -> None:
    async def answer(_number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()

    async with served(answer) as (server, transport):
        with pytest.raises(OSError):
            await ask(transport)
        assert len(server.heads) == 1


async def test_what_nobody_asked_for_is_no_answer_to_the_next_question() -> None:
    is_said = asyncio.Event()

    async def answer(number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        await says(writer, OK)
        if number == 1:
            await says(writer, b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
            is_said.set()

    async with served(answer) as (server, transport):
        assert await ask(transport) == b"ok"
        await is_said.wait()
        assert await ask(transport) == b"ok"
        assert server.connections == 2


async def test_an_answer_that_is_not_read_costs_its_connection() -> None:
    async with served(lambda _n, _r, writer: says(writer, OK[:-1])) as (server, transport):
        for _ in range(2):
            with await transport.request("GET", "/", params={}, headers={}) as response:
                assert response.status == 200
        assert server.connections == 2


async def test_many_requests_share_a_few_connections_and_streams_are_not_counted() -> None:
    async def answer(_number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.01)
        await says(writer, OK)

    async with served(answer) as (server, transport):
        streams = [
            await transport.request("GET", "/", params={}, headers={}, is_stream=True) for _ in range(20)
        ]
        assert await asyncio.gather(*(ask(transport) for _ in range(100))) == [b"ok"] * 100
        assert server.most <= 20 + 16
        assert server.connections <= 20 + 16
        for stream in streams:
            with stream:
                pass
        async with asyncio.timeout(60):
            while server.open > 16:  # noqa: ASYNC110 - the server has no events to wait for
                await asyncio.sleep(0.01)


async def test_one_that_is_cancelled_gives_its_place_back() -> None:
    never = asyncio.Event()

    async def answer(number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        if number <= 16:
            await never.wait()
        await says(writer, OK)

    async with served(answer) as (server, transport):
        stuck = [asyncio.create_task(ask(transport)) for _ in range(16)]
        async with asyncio.timeout(60):
            while len(server.heads) < 16:  # noqa: ASYNC110 - the server has no events to wait for
                await asyncio.sleep(0.01)
        waiting = asyncio.create_task(ask(transport))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        for task in stuck:
            task.cancel()
        assert await waiting == b"ok"
        await asyncio.gather(*stuck, return_exceptions=True)
        never.set()


async def test_a_long_body_waits_for_its_reader() -> None:
    async def answer(_number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n")
        for _ in range(200):
            writer.write(b"x" * 100_000)
            await writer.drain()

    async with served(answer) as (_, transport):
        with await transport.request("GET", "/", params={}, headers={}) as response:
            await asyncio.sleep(0.1)
            assert response._connection._size < 4 << 20
            assert sum([len(chunk) async for chunk in response.chunks()]) == 20_000_000


async def test_silence_in_the_middle() -> None:
    async def answer(_number: int, _reader: Any, writer: asyncio.StreamWriter) -> None:
        await says(writer, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no")

    async with served(answer) as (_, transport):
        response = await transport.request("GET", "/", params={}, headers={})
        with response, pytest.raises(TimeoutError):
            assert [chunk async for chunk in response.chunks(silence=0.1)] == [b"o"]


async def test_a_header_can_not_become_two() -> None:
    async with served(lambda _n, _r, writer: says(writer, OK)) as (server, transport):
        with pytest.raises(ProtocolError, match="Authorization"):
            await transport.request("GET", "/", params={}, headers={"Authorization": "a\r\nB: c"})
        assert server.heads == []
