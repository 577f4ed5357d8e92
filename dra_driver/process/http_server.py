"""A small HTTP/1.1 server for Prometheus and the kubelet's probes: GET and HEAD, answers that fit in memory.

h11 parses, words the answers and knows when a connection may go on; here are sockets and limits. Beside it
uvicorn would cost ten times its memory (2.3 MiB), httptools parses but leaves the rest to us, and the threads
of http.server let a client send its head for as long as it likes. Whoever connects is not trusted: heads are
short and must come in time, bodies are not read, connections are limited, and none of it can end the task.
"""

from __future__ import annotations

import asyncio
import http
import logging
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import h11

_log = logging.getLogger(__name__)
_HEAD = 8192  # bytes, after which a head must be complete with the next piece
_PIECE = 1024
_PATIENCE = 5.0  # seconds for a head to arrive, and for an answer to be taken
_IDLE = 130.0  # seconds between two requests; Prometheus scrapes once a minute or more often
_MOST = 64  # connections


@dataclass(frozen=True)
class Answer:
    """`kind`: the media type."""

    status: int
    kind: str
    body: bytes


Answering = Callable[[str], Awaitable[Answer]]
"""A path, without its query, → what GET of it gives. May raise: that is a 500."""


def listen(host: str, port: int) -> socket.socket:
    """Raises OSError, so that a port in use ends the start with a sentence."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


async def serve(listener: socket.socket, answering: Answering) -> None:
    """Until cancelled; then connections end at once, answered or not."""
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - we are one
        connections.add(task)
        try:
            if len(connections) <= _MOST:
                await _converse(reader, writer, answering)
        except (OSError, TimeoutError, asyncio.CancelledError) as error:
            _log.debug("an HTTP connection has ended: %r", error)
        finally:
            connections.discard(task)
            writer.transport.abort()

    server = await asyncio.start_server(connected, sock=listener, limit=_HEAD)
    try:
        await server.serve_forever()
    finally:
        server.close()
        for task in connections:
            task.cancel()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answering: Answering) -> None:
    """Request after request. Raises OSError, TimeoutError."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD)
    while connection.our_state is h11.IDLE:
        try:
            request = await _request(connection, reader)
        except h11.RemoteProtocolError as error:
            await _say(connection, writer, _refusal(error.error_status_hint))
            break
        if request is None:
            break
        await _say(connection, writer, await _answer(request, answering), has_body=request.method != b"HEAD")
        if connection.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            connection.start_next_cycle()
    async with asyncio.timeout(_PATIENCE):
        writer.close()
        await writer.wait_closed()


async def _request(connection: h11.Connection, reader: asyncio.StreamReader) -> h11.Request | None:
    """The next one, None after the last. Raises RemoteProtocolError, OSError, TimeoutError."""
    has_begun = False
    async with asyncio.timeout(_IDLE) as limit:
        while (event := connection.next_event()) is h11.NEED_DATA:
            connection.receive_data(await reader.read(_PIECE))
            if not has_begun:
                limit.reschedule(asyncio.get_running_loop().time() + _PATIENCE)
                has_begun = True
    if not isinstance(event, h11.Request):
        return None
    connection.next_event()  # its end, unless it has a body: h11 counts that as read or not
    return event


async def _answer(request: h11.Request, answering: Answering) -> Answer:
    if request.method not in (b"GET", b"HEAD"):
        return _refusal(405)
    try:
        return await answering(request.target.decode("ascii").partition("?")[0])
    except Exception:
        _log.exception("GET %r failed in an unforeseen way", request.target)
        return _refusal(500)


async def _say(
    connection: h11.Connection, writer: asyncio.StreamWriter, answer: Answer, *, has_body: bool = True
) -> None:
    """The last answer says so: where the client wants that, or what it sent is not read to its end."""
    headers = [("Content-Type", answer.kind), ("Content-Length", str(len(answer.body)))]
    if connection.their_state in (h11.SEND_BODY, h11.ERROR):
        headers.append(("Connection", "close"))
    reason = http.HTTPStatus(answer.status).phrase
    events = [
        h11.Response(status_code=answer.status, reason=reason, headers=headers),
        h11.Data(data=answer.body if has_body else b""),
        h11.EndOfMessage(),
    ]
    writer.writelines(connection.send(event) or b"" for event in events)
    async with asyncio.timeout(_PATIENCE):
        await writer.drain()


def _refusal(status: int) -> Answer:
    return Answer(status, "text/plain; charset=utf-8", f"{http.HTTPStatus(status).phrase}\n".encode())
