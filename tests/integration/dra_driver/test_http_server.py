"""The small HTTP server against clients that behave, and those that don't."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from dra_driver.process import http_server
from dra_driver.process.http_server import Answer


async def answering(path: str) -> Answer:
    if path == "/slow":
        await asyncio.sleep(60)
    if path == "/broken":
        raise KeyError(path)
    return Answer(200, "text/plain", f"path {path}\n".encode())


@asynccontextmanager
async def served() -> AsyncIterator[int]:
    listener = http_server.listen("127.0.0.1", 0)
    task = asyncio.create_task(http_server.serve(listener, answering))
    try:
        yield listener.getsockname()[1]
    finally:
        task.cancel()
        async with asyncio.timeout(1):
            await asyncio.gather(task, return_exceptions=True)


async def raw(port: int, sent: bytes) -> bytes:
    """All that is answered until the server closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


async def test_a_client_keeps_its_connection() -> None:
    async with served() as port, aiohttp.ClientSession() as session:
        for path, status, body in (
            ("/metrics?a=b", 200, "path /metrics\n"),
            ("/broken", 500, "Internal Server Error\n"),
            ("/metrics", 200, "path /metrics\n"),
        ):
            async with session.get(f"http://127.0.0.1:{port}{path}") as answer:
                assert (answer.status, await answer.text()) == (status, body)
        async with session.head(f"http://127.0.0.1:{port}/x") as answer:
            assert (answer.status, answer.content_length, await answer.read()) == (200, 8, b"")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        pytest.param(b"GET /a HTTP/1.0\r\n\r\n", b"200", id="HTTP/1.0"),
        pytest.param(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", b"200", id="close"),
        pytest.param(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", b"405", id="POST"),
        pytest.param(
            b"GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi", b"200", id="GET with a body"
        ),
        pytest.param(b"\x16\x03\x01\x02\x00rubbish\r\n\r\n", b"400", id="TLS"),
        pytest.param(b"GET\r\n\r\n", b"400", id="no HTTP"),
        pytest.param(b"GET /a HTTP/1.1\r\n\r\n", b"400", id="no Host"),
        pytest.param(
            b"POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", b"400", id="bad chunk"
        ),
        pytest.param(b"GET /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n", b"501", id="encoding"),
        pytest.param(b"GET /a HTTP/1.1\r\nA: " + b"x" * 10000 + b"\r\n\r\n", b"431", id="long head"),
    ],
)
async def test_answers_and_closes(sent: bytes, status: bytes) -> None:
    async with served() as port:
        assert (await raw(port, sent)).startswith(b"HTTP/1.1 " + status)


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_PATIENCE", 0.2)
    async with served() as port:
        assert await raw(port, b"GET /a HTTP/1.1\r\n") == b""


async def test_a_head_in_drops_has_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_PATIENCE", 0.3)
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(OSError):
            async with asyncio.timeout(5):
                while not reader.at_eof():
                    writer.write(b"G")
                    await writer.drain()
                    await asyncio.sleep(0.05)
        writer.close()
        assert reader.at_eof() or reader.exception() is not None


async def test_requests_that_come_at_once_are_answered_in_order() -> None:
    async with served() as port:
        host = b" HTTP/1.1\r\nHost: a\r\n"
        answers = await raw(
            port,
            b"GET /a" + host + b"\r\nHEAD /b" + host + b"\r\nGET /c" + host + b"Connection: close\r\n\r\n",
        )
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert [answers.count(body) for body in (b"path /a\n", b"path /b\n", b"path /c\n")] == [1, 0, 1]
    assert answers.count(b"Connection: close") == 1


async def test_too_many_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_MOST", 2)
    async with served() as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        with contextlib.suppress(ConnectionResetError):
            assert await raw(port, b"GET /a HTTP/1.0\r\n\r\n") == b""
        held[0][1].close()
        await asyncio.sleep(0.05)
        assert (await raw(port, b"GET /a HTTP/1.0\r\n\r\n")).startswith(b"HTTP/1.1 200")
        held[1][1].close()
        await asyncio.sleep(0.05)


async def test_the_end_does_not_wait_for_a_slow_answer() -> None:
    async with served() as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        await asyncio.sleep(0.05)

    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    await asyncio.sleep(0.01)
