"""The two sockets on which the kubelet finds us, and serving gRPC on one.

A socket file that a crash has left is removed before binding, and our own when we stop: the kubelet takes the
file's disappearance for the driver's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

MAX_PATH = 107  # bytes of sockaddr_un's path, less the final NUL
_GRACE = 3.0  # seconds for calls that are being answered when we stop


@dataclass(frozen=True)
class Sockets:
    """Paths that the kubelet sees under the same name."""

    dra: Path
    registration: Path

    @classmethod
    def below(cls, kubelet_root: Path, driver: str) -> Sockets:
        return cls(
            dra=kubelet_root / "plugins" / driver / "dra.sock",
            registration=kubelet_root / "plugins_registry" / f"{driver}-reg.sock",
        )


@asynccontextmanager
async def serving(path: Path, register: Callable[[grpc.aio.Server], None]) -> AsyncIterator[None]:
    """Serves on a Unix socket until the block ends; calls going on then are finished. Raises OSError."""
    await asyncio.to_thread(_clear, path)
    server = grpc.aio.server()
    register(server)
    if server.add_insecure_port(f"unix:{path}") == 0:
        raise OSError(f"{path} can't be bound")
    await server.start()
    try:
        yield
    finally:
        await server.stop(_GRACE)
        await asyncio.to_thread(path.unlink, missing_ok=True)


def _clear(path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
