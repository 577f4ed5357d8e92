"""Plays the kubelet against a driver's sockets, with its order and time-outs. Knows no driver by name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from protos.dra_health_v1 import dra_health_v1_pb2, dra_health_v1_pb2_grpc
from protos.dra_health_v1alpha1 import dra_health_v1alpha1_pb2, dra_health_v1alpha1_pb2_grpc
from protos.dra_v1 import dra_v1_pb2, dra_v1_pb2_grpc
from protos.dra_v1beta1 import dra_v1beta1_pb2, dra_v1beta1_pb2_grpc
from protos.registration import registration_pb2, registration_pb2_grpc

GET_INFO_TIMEOUT = 20.0  # the real one's is 1 s, and it comes again
CALL_TIMEOUT = 45.0


@dataclass(frozen=True)
class WireClaim:
    """How a claim is named on the wire."""

    namespace: str
    name: str
    uid: str


def _channel(path: Path) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(f"unix:{path}", options=(("grpc.use_local_subchannel_pool", 1),))


async def wait_for(path: Path, seconds: float = 60.0) -> None:
    """A socket on which somebody listens: its file is there a moment before, or has been left by the dead."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                _, writer = await asyncio.open_unix_connection(path)
            except (FileNotFoundError, ConnectionRefusedError):
                await asyncio.sleep(0.01)
            else:
                writer.close()
                return


async def register(path: Path, *, error: str = "") -> Any:
    """GetInfo, then the verdict; returns the PluginInfo."""
    async with _channel(path) as channel:
        stub = registration_pb2_grpc.RegistrationStub(channel)
        info = await stub.GetInfo(registration_pb2.InfoRequest(), timeout=GET_INFO_TIMEOUT)
        status = registration_pb2.RegistrationStatus(plugin_registered=not error, error=error)
        await stub.NotifyRegistrationStatus(status, timeout=20.0)
        return info


async def watch_health(endpoint: Path, *, version: str = "v1") -> AsyncGenerator[Any, None]:
    """The messages of one stream of the health service, until it ends."""
    async with _channel(endpoint) as channel:
        if version == "v1":
            stub: Any = dra_health_v1_pb2_grpc.DRAResourceHealthStub(channel)
            request: Any = dra_health_v1_pb2.NodeWatchResourcesRequest()
        else:
            stub = dra_health_v1alpha1_pb2_grpc.DRAResourceHealthStub(channel)
            request = dra_health_v1alpha1_pb2.NodeWatchResourcesRequest()
        async for message in stub.NodeWatchResources(request):
            yield message


class Kubelet:
    """One connection to a driver's DRA socket, in v1 or v1beta1."""

    def __init__(self, endpoint: Path, *, version: str = "v1") -> None:
        self._channel = _channel(endpoint)
        if version == "v1":
            self._messages: Any = dra_v1_pb2
            self._stub: Any = dra_v1_pb2_grpc.DRAPluginStub(self._channel)
        else:
            self._messages = dra_v1beta1_pb2
            self._stub = dra_v1beta1_pb2_grpc.DRAPluginStub(self._channel)

    async def __aenter__(self) -> Kubelet:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._channel.close()

    async def prepare(self, *claims: WireClaim, timeout: float = CALL_TIMEOUT) -> dict[str, Any]:  # noqa: ASYNC109
        """UID → the answer's message."""
        request = self._messages.NodePrepareResourcesRequest(claims=self._claims(claims))
        return dict((await self._stub.NodePrepareResources(request, timeout=timeout)).claims)

    async def unprepare(self, *claims: WireClaim, timeout: float = CALL_TIMEOUT) -> dict[str, str]:  # noqa: ASYNC109
        """UID → error, empty for success."""
        request = self._messages.NodeUnprepareResourcesRequest(claims=self._claims(claims))
        answer = await self._stub.NodeUnprepareResources(request, timeout=timeout)
        return {uid: claim.error for uid, claim in answer.claims.items()}

    def _claims(self, claims: tuple[WireClaim, ...]) -> list[Any]:
        return [
            self._messages.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name)
            for claim in claims
        ]
