"""The two sockets on which the kubelet finds us: their names, what to do with dead ones, serving gRPC on one.

With a Pod's UID in the names, the agents of two Pods have sockets of their own, as in a rolling update; they
are named as the kubelet's own Go library names them. A socket file that a crash has left is removed before
binding, and our own when we stop: the kubelet takes the file's disappearance for the driver's. Those that
other Pods have left go at start, since nobody else removes them and the kubelet goes on dialling.
"""

from __future__ import annotations

import asyncio
import base64
import errno
import hashlib
import logging
import re
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import grpc

_log = logging.getLogger(__name__)
MAX_PATH = 107  # bytes of sockaddr_un's path, less the final NUL
_UID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}"  # the latter: of a static Pod
_SHORT_HASH = r"[0-9A-Za-z_-]{11}"
_GRACE = 3.0  # seconds for calls that are being answered when we stop


@dataclass(frozen=True)
class Sockets:
    """Paths that the kubelet sees under the same name."""

    dra: Path
    registration: Path

    @classmethod
    def below(cls, kubelet_root: Path, driver: str, pod_uid: str | None = None) -> Sockets:
        """With names of one agent per node, or of this Pod's; longer than MAX_PATH where none fits."""
        return cls(
            dra=kubelet_root / "plugins" / driver / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock"),
            registration=_registration(kubelet_root / "plugins_registry", driver, pod_uid),
        )


def sweep(sockets: Sockets, driver: str) -> list[Path]:
    """Removes the sockets of this driver's agents on which nobody listens any more, and says which.

    A name that is a hash alone (`dra-<hash>-reg.sock`) may be any driver's, and stays.
    """
    registrations = re.compile(rf"{re.escape(driver)}(-({_UID}|{_SHORT_HASH}))?-reg\.sock")
    services = re.compile(r"dra(-[0-9A-Za-z-]+)?\.sock")
    removed = []
    for directory, ours in ((sockets.registration.parent, registrations), (sockets.dra.parent, services)):
        with suppress(FileNotFoundError):
            for path in sorted(directory.iterdir()):
                if ours.fullmatch(path.name) and path.is_socket() and _is_dead(path):
                    path.unlink(missing_ok=True)
                    _log.info("%s, on which nobody listens, is removed", path)
                    removed.append(path)
    return removed


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


def _registration(directory: Path, driver: str, pod_uid: str | None) -> Path:
    """The first of the library's names whose path fits, else the last."""
    if pod_uid is None:
        return directory / f"{driver}-reg.sock"
    names = (
        f"{driver}-{pod_uid}-reg.sock",
        f"{driver}-{_hash(pod_uid, 8)}-reg.sock",
        f"dra-{_hash(chr(0).join((driver, pod_uid)), 16)}-reg.sock",
    )
    paths = [directory / name for name in names]
    return next((path for path in paths if len(bytes(path)) <= MAX_PATH), paths[-1])


def _hash(text: str, size: int) -> str:
    """The first bytes of the SHA-256, in base64 for URLs without padding."""
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()[:size]).decode().rstrip("=")


def _is_dead(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.setblocking(False)  # one that is busy says so instead of keeping us
        try:
            return peer.connect_ex(str(path)) == errno.ECONNREFUSED
        except OSError:  # a path that is too long
            return False
