from __future__ import annotations

import asyncio
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dra_driver.kubelet.sockets import MAX_PATH, Sockets, serving, sweep

DRIVER = "gpu.tessera.dev"
UID = "0c8f1f2e-0000-4000-8000-000000000001"
OTHER_UID = "0c8f1f2e-0000-4000-8000-000000000002"


@pytest.fixture
def root() -> Iterator[Path]:
    """Not tmp_path: that is too long for a Unix socket's path."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        yield Path(name)


@pytest.mark.parametrize(
    ("root", "driver", "uid", "name"),
    [
        pytest.param("/var/lib/kubelet", DRIVER, None, f"{DRIVER}-reg.sock", id="one-agent-per-node"),
        pytest.param("/var/lib/kubelet", DRIVER, UID, f"{DRIVER}-{UID}-reg.sock", id="uid"),
        pytest.param("/" + "r" * 27, DRIVER, UID, f"{DRIVER}-{UID}-reg.sock", id="uid-fits-by-a-byte"),
        pytest.param("/" + "r" * 28, DRIVER, UID, f"{DRIVER}-E-U3HOvz5hE-reg.sock", id="hash-of-the-uid"),
        pytest.param("/" + "r" * 52, DRIVER, UID, f"{DRIVER}-E-U3HOvz5hE-reg.sock", id="hash-fits-by-a-byte"),
        pytest.param("/" + "r" * 53, DRIVER, UID, "dra-z2EiKE62J1UsPjCzjUfY7Q-reg.sock", id="hash-of-both"),
        pytest.param("/" + "r" * 99, DRIVER, UID, "dra-z2EiKE62J1UsPjCzjUfY7Q-reg.sock", id="none-fits"),
    ],
)
def test_registration(root: str, driver: str, uid: str | None, name: str) -> None:
    path = Sockets.below(Path(root), driver, uid).registration
    assert path == Path(root) / "plugins_registry" / name
    assert len(bytes(path)) <= MAX_PATH or len(root) > 90


def test_service() -> None:
    root = Path("/var/lib/kubelet")
    assert Sockets.below(root, DRIVER).dra == root / "plugins" / DRIVER / "dra.sock"
    assert Sockets.below(root, DRIVER, UID).dra == root / "plugins" / DRIVER / f"dra-{UID}.sock"


def _bind(stack: ExitStack, path: Path, *, is_listening: bool) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    made = stack.enter_context(socket.socket(socket.AF_UNIX))
    made.bind(str(path))
    if is_listening:
        made.listen()
    return path


def test_only_dead_sockets_of_ours_are_swept(root: Path) -> None:
    registry, plugins = root / "plugins_registry", root / "plugins" / DRIVER
    ours = Sockets.below(root, DRIVER, UID)
    with ExitStack() as stack:
        dead = [
            _bind(stack, path, is_listening=False)
            for path in (
                registry / f"{DRIVER}-{OTHER_UID}-reg.sock",
                registry / f"{DRIVER}-E-U3HOvz5hE-reg.sock",
                registry / f"{DRIVER}-reg.sock",
                plugins / f"dra-{OTHER_UID}.sock",
                plugins / "dra.sock",
            )
        ]
        for path in (
            registry / f"{DRIVER}-0c8f1f2e-0000-4000-8000-000000000003-reg.sock",
            plugins / "dra-0c8f1f2e-0000-4000-8000-000000000003.sock",
        ):
            _bind(stack, path, is_listening=True)
        for path in (
            registry / "gpu.example.com-reg.sock",
            registry / f"{DRIVER}.example-reg.sock",
            registry / f"{DRIVER}-beta-reg.sock",
            registry / "dra-z2EiKE62J1UsPjCzjUfY7Q-reg.sock",
            plugins / "other.sock",
        ):
            _bind(stack, path, is_listening=False)
        (plugins / "dra-file.sock").write_text("a file")
        (plugins / "dra-directory.sock").mkdir()
        before = set(root.rglob("*"))
        assert sorted(sweep(ours, DRIVER)) == sorted(dead)
        assert set(root.rglob("*")) == before - set(dead)


def test_a_busy_socket_is_alive(root: Path) -> None:
    sockets = Sockets.below(root, DRIVER)
    with ExitStack() as stack:
        sockets.dra.parent.mkdir(parents=True)
        server = stack.enter_context(socket.socket(socket.AF_UNIX))
        server.bind(str(sockets.dra))
        server.listen(0)
        for _ in range(3):  # more than it keeps waiting
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            client.connect_ex(str(sockets.dra))
        assert sweep(sockets, DRIVER) == []


def test_nothing_to_sweep(root: Path) -> None:
    assert sweep(Sockets.below(root, DRIVER), DRIVER) == []


async def test_what_is_served_is_not_swept(root: Path) -> None:
    sockets = Sockets.below(root, DRIVER, UID)
    async with serving(sockets.dra, lambda _server: None):
        assert await asyncio.to_thread(sweep, sockets, DRIVER) == []
        assert sockets.dra.is_socket()
    assert not sockets.dra.exists()
