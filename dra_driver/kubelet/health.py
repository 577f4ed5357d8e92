"""The kubelet's health service: what it writes into `status` of the Pods that hold our devices.

Every message is the complete list, so a lost one does no harm; it is sent at once, at each change, and as a
heartbeat before the kubelet would take the devices for unknown. A card that is lost or has reported an error
is unhealthy, as is one that has gone as long as somebody may hold it: those that were ever seen, and those in
the ledger. While the driver is silent nothing more is known of any card, and so it is said.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import grpc

from dra_driver.cards.inventory import Card, Inventory, LostCard
from dra_driver.cards.taints import NO_AILMENTS, Ailments
from dra_driver.cards.xids import describe
from dra_driver.names import DeviceName, device_name
from dra_driver.node import Node
from protos.dra_health_v1 import dra_health_v1_pb2
from protos.dra_health_v1alpha1 import dra_health_v1alpha1_pb2

V1 = "v1.DRAResourceHealth"  # here the short name, which registers, is the service's too
V1ALPHA1 = "v1alpha1.DRAResourceHealth"
_MESSAGE_LENGTH = 1024  # characters, the kubelet's limit
_TIMEOUT = 30  # seconds without a message after which the kubelet knows nothing
_HEARTBEAT = 10.0  # seconds; two may be late


class Health(enum.IntEnum):
    """The protocol's numbers."""

    UNKNOWN = 0
    HEALTHY = 1
    UNHEALTHY = 2


@dataclass(frozen=True)
class DeviceHealth:
    """`message`: why it is not healthy."""

    device: DeviceName
    health: Health
    message: str = ""


def assess(
    inventory: Inventory | None,
    silence: str | None,
    others: Iterable[DeviceName] = (),
    ailments: Ailments = NO_AILMENTS,
) -> tuple[DeviceHealth, ...]:
    """Of each device of the last inventory and of `others`, by name. `silence`: why it may be outdated."""
    cards = inventory.by_device() if inventory else {}
    lost = {one.card.name: one for one in inventory.lost} if inventory else {}
    found = []
    for device in sorted(cards.keys() | lost.keys() | set(others)):
        card = cards.get(device) or (lost[device].card if device in lost else None)
        words = _complaints(card, lost.get(device), inventory, ailments)
        if words:
            found.append(DeviceHealth(device, Health.UNHEALTHY, "; ".join(words)[:_MESSAGE_LENGTH]))
        elif silence is not None or inventory is None:
            found.append(DeviceHealth(device, Health.UNKNOWN, (silence or "")[:_MESSAGE_LENGTH]))
        elif card is None:
            found.append(_gone(device, inventory))
        else:
            found.append(DeviceHealth(device, Health.HEALTHY))
    return tuple(found)


def _complaints(
    card: Card | None, lost: LostCard | None, inventory: Inventory | None, ailments: Ailments
) -> list[str]:
    """What is known against a card, and does not get better while the driver is silent."""
    words = [lost.reason] if lost is not None else []
    xid = ailments.xid_of(card) if card is not None else None
    if card is not None and xid is not None:
        words.append(describe(xid, inventory.actions.get(card.gpu_uuid) if inventory else None))
    return words


def _gone(device: DeviceName, inventory: Inventory) -> DeviceHealth:
    own = [fault for fault in inventory.faults if device_name(fault.card) == device]
    # A card that is too far gone to give its UUID is a fault by number; which one, nobody can tell.
    nameless = [fault for fault in inventory.faults if not fault.card.startswith("GPU-")]
    words = [f"{fault.card} {fault.reason}" for fault in own or nameless]
    message = "; ".join(words if own else ["the NVIDIA driver does not list the card any more", *words])
    return DeviceHealth(device, Health.UNHEALTHY, message[:_MESSAGE_LENGTH])


class HealthService:
    """`held`: the devices that claims hold. `serve` adds both versions, whose messages are the same."""

    def __init__(
        self, node: Node, held: Callable[[], Iterable[DeviceName]], *, heartbeat: float = _HEARTBEAT
    ) -> None:
        self._node = node
        self._held = held
        self._heartbeat = heartbeat
        self._news = asyncio.Event()
        self._ended = False
        node.listen(self._wake)

    def serve(self, server: grpc.aio.Server) -> None:
        handlers = (_handler(V1, dra_health_v1_pb2, self), _handler(V1ALPHA1, dra_health_v1alpha1_pb2, self))
        server.add_generic_rpc_handlers(handlers)

    def end(self) -> None:
        """Ends all streams: they would keep the server from stopping."""
        self._ended = True
        self._wake()

    async def watch(self, messages: Any) -> AsyncIterator[Any]:
        """One kubelet's stream of NodeWatchResourcesResponse, of that version's messages."""
        while not self._ended:
            news = self._news  # taken before the look, so that nothing is missed in between
            yield self._response(messages)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._heartbeat):
                    await news.wait()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    def _response(self, messages: Any) -> Any:
        now = int(time.time())
        node = self._node
        devices = assess(node.cards, node.silence, node.seen.union(self._held()), node.ailments)
        return messages.NodeWatchResourcesResponse(
            devices=[
                messages.DeviceHealth(
                    device=messages.DeviceIdentifier(pool_name=self._node.name, device_name=device.device),
                    health=device.health,
                    last_updated_time=now,
                    health_check_timeout_seconds=_TIMEOUT,
                    message=device.message,
                )
                for device in devices
            ]
        )


def _handler(name: str, messages: Any, service: HealthService) -> grpc.GenericRpcHandler:
    async def watch(_request: Any, _context: Any) -> AsyncIterator[Any]:
        async for response in service.watch(messages):
            yield response

    method = grpc.unary_stream_rpc_method_handler(
        watch,
        request_deserializer=messages.NodeWatchResourcesRequest.FromString,
        response_serializer=messages.NodeWatchResourcesResponse.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(name, {"NodeWatchResources": method})
