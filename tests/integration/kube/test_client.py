"""The client against the fake API server: verbs, errors by consequence, token, broken answers."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from claim_mutator import certificates
from kube import paths
from kube.client import Client
from kube.configuration import Connection
from kube.errors import AlreadyExists, Conflict, Gone, NotFound, Unavailable
from tests.integration.api_server import ApiServer


async def test_a_life_of_an_object() -> None:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        secrets, secret = paths.secrets("n"), paths.secret("n", "s")
        made = await client.create(secrets, {"metadata": {"name": "s"}, "future": {"kept": [1, None]}})
        assert made["metadata"]["namespace"] == "n"
        with pytest.raises(AlreadyExists):
            await client.create(secrets, {"metadata": {"name": "s"}})
        assert (await client.get(secret))["future"] == {"kept": [1, None]}
        changed = await client.patch(secret, {"data": {"a": "1"}})
        with pytest.raises(Conflict):
            await client.replace(secret, made)
        changed = await client.replace(secret, changed | {"data": {"a": "2"}})
        operations = [{"op": "add", "path": "/data/b", "value": "3"}]
        await client.patch(secret, operations, content_type="application/json-patch+json")
        assert (await client.get(secret))["data"] == {"a": "2", "b": "3"}
        with pytest.raises(Conflict):
            await client.delete(secret, uid="another")
        await client.delete(secret, uid=made["metadata"]["uid"])
        with pytest.raises(NotFound):
            await client.delete(secret)


async def test_token_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with ApiServer() as api:
        connection = replace(api.connection, token_file=file)
        async with Client(connection, user_agent="test") as client:
            api.put("/api/v1/nodes", {"metadata": {"name": "a"}})
            await client.get(paths.node("a"))
            file.write_text("new\n")
            api.refuse(401, when=lambda seen: seen.headers["Authorization"] == "Bearer old", times=5)
            await client.get(paths.node("a"))
        sent = [seen.headers["Authorization"] for seen in api.requests]
        assert sent[0] == "Bearer old"
        assert sent[-1] == "Bearer new"
        assert len(sent) <= 3


async def test_a_new_ca_is_taken_up(tmp_path: Path) -> None:
    """The API server has one of a CA that the Pod's file did not have when the client was opened."""
    old, new = (certificates.renewed(None, ["localhost"], dt.datetime.now(dt.UTC)) for _ in range(2))
    for name, content in (("ca.crt", old.ca_bundle), ("tls.crt", new.certificate), ("tls.key", new.key)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(tmp_path / "tls.crt", tmp_path / "tls.key")
    async with ApiServer(tls=tls) as api:
        api.put(paths.nodes(), {"metadata": {"name": "a"}})
        connection = Connection(f"https://localhost:{api.port}", ca_file=tmp_path / "ca.crt")
        async with Client(connection, user_agent="test") as client:
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(paths.node("a"))
            replace_file(tmp_path / "ca.crt", b"half of")
            with pytest.raises(Unavailable, match="CERTIFICATE_VERIFY_FAILED"):
                await client.get(paths.node("a"))
            replace_file(tmp_path / "ca.crt", old.ca_bundle + new.ca_bundle)
            assert (await client.get(paths.node("a")))["metadata"]["name"] == "a"
            (tmp_path / "ca.crt").unlink()
            await api.stop()
            await api.start()
            assert (await client.get(paths.node("a")))["metadata"]["name"] == "a"


def replace_file(path: Path, content: bytes) -> None:
    """As the kubelet brings a ConfigMap's change: another file, with a time of its own."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 1, before + 1))


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "No such file"), (b"half of", "X509")],
    ids=["missing", "no-certificate"],
)
async def test_a_ca_that_can_not_be_used_is_told_at_once(
    tmp_path: Path, content: bytes | None, expected: str
) -> None:
    if content is not None:
        (tmp_path / "ca.crt").write_bytes(content)
    client = Client(Connection("https://localhost:1", ca_file=tmp_path / "ca.crt"), user_agent="test")
    with pytest.raises(OSError, match=expected):
        await client.__aenter__()


async def test_401_with_the_same_token_is_not_repeated(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("old")
    async with ApiServer() as api:
        async with Client(replace(api.connection, token_file=file), user_agent="test") as client:
            api.refuse(401, times=5, reason="Unauthorized")
            with pytest.raises(Exception, match="401 Unauthorized"):
                await client.get(paths.node("a"))
        assert len(api.requests) == 1


async def test_nobody_listens() -> None:
    async with Client(Connection(server="http://127.0.0.1:9"), user_agent="test") as client:
        with pytest.raises(Unavailable, match="/api/v1/nodes/a"):
            await client.get(paths.node("a"))


@asynccontextmanager
async def answering(answer: bytes | None) -> AsyncIterator[Connection]:
    """A server that sends these bytes whatever is asked; nothing for a while for None."""
    handlers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        if answer is None:
            await asyncio.sleep(0.5)
        else:
            writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield Connection(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        await asyncio.gather(*filter(None, handlers), return_exceptions=True)


OK = b"HTTP/1.1 200 OK\r\nContent-Length: "


@pytest.mark.parametrize(
    "answer",
    [None, b"", OK + b"100\r\n\r\n{}", OK + b"2\r\n\r\nhi", OK + b"2\r\n\r\n[]", b"rubbish\r\n\r\n"],
    ids=["silence", "closed", "cut short", "not JSON", "not an object", "not HTTP"],
)
async def test_a_broken_answer_is_unavailable(answer: bytes | None) -> None:
    async with (
        answering(answer) as connection,
        Client(connection, user_agent="test", timeout=0.3) as client,
    ):
        with pytest.raises(Unavailable):
            await client.get(paths.node("a"))


async def test_watch_yields_long_lines_and_bookmarks() -> None:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        first = api.put("/api/v1/nodes", {"metadata": {"name": "a"}})
        api.put("/api/v1/nodes", {"metadata": {"name": "b"}, "long": "x" * 3_000_000})
        params = {"resourceVersion": first["metadata"]["resourceVersion"]}
        kinds = []
        async for event in client.watch(paths.nodes(), params=params, inactivity=5):
            kinds.append(event["type"])
            if len(kinds) == 1:
                assert len(event["object"]["long"]) == 3_000_000
                await api.bookmark()
            else:
                break
        assert kinds == ["ADDED", "BOOKMARK"]


async def test_watch_of_the_past_is_gone() -> None:
    async with ApiServer() as api, Client(api.connection, user_agent="test") as client:
        api.put("/api/v1/nodes", {"metadata": {"name": "a"}})
        api.compact()
        with pytest.raises(Gone):
            async for _ in client.watch(paths.nodes(), params={"resourceVersion": "1"}):
                pass


@pytest.mark.parametrize(
    ("answer", "opened"),
    [
        (OK + b"2\r\n\r\n{}", 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 1),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 5),
    ],
    ids=["length", "chunked", "close"],
)
async def test_connections_are_used_again(answer: bytes, opened: int) -> None:
    handlers = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(answer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connection = Connection(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with Client(connection, user_agent="test") as client:
            for _ in range(5):
                assert await client.get(paths.node("a")) == {}
        await asyncio.gather(*filter(None, handlers))
    assert len(handlers) == opened
