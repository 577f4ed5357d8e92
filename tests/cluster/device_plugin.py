"""A device plugin as the kubelet knows them (k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1), with any cards.

Only what a kubelet asks of one that nobody's Pod uses: options, and the list of its devices. The messages are
written by hand; they have two fields at most.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

import grpc

DIRECTORY = "/var/lib/kubelet/device-plugins"
_SERVICE = "v1beta1.DevicePlugin"


def _field(number: int, value: bytes) -> bytes:
    """A field of bytes, text or a message; shorter than 128."""
    assert len(value) < 128
    return bytes([number << 3 | 2, len(value)]) + value


def _devices(names: Sequence[str]) -> bytes:
    return b"".join(_field(1, _field(1, name.encode()) + _field(2, b"Healthy")) for name in names)


class DevicePlugin:
    """`directory`: DIRECTORY, as this process sees it. Registers itself with the kubelet when it is entered.

    The kubelet keeps the devices of a plugin that ends for five minutes; of one that withdraws them, none.
    """

    def __init__(self, directory: Path, resource: str, names: Sequence[str]) -> None:
        self._directory = directory
        self._endpoint = "test.sock"
        self._resource = resource
        self._lists: queue.SimpleQueue[Sequence[str]] = queue.SimpleQueue()
        self._lists.put(names)
        self._server = grpc.server(ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, self._methods()),)
        )
        self._server.add_insecure_port(f"unix:{directory / self._endpoint}")

    def _methods(self) -> dict[str, grpc.RpcMethodHandler[bytes, bytes]]:
        return {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list_and_watch),
        }

    def _list_and_watch(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active():
            try:
                yield _devices(self._lists.get(timeout=1.0))
            except queue.Empty:
                continue

    def __enter__(self) -> Self:
        self._server.start()
        request = b"".join(
            _field(number, text.encode())
            for number, text in ((1, "v1beta1"), (2, self._endpoint), (3, self._resource))
        )
        with grpc.insecure_channel(f"unix:{self._directory / 'kubelet.sock'}") as channel:
            register: Callable[..., bytes] = channel.unary_unary("/v1beta1.Registration/Register")
            register(request, timeout=60)
        return self

    def withdraw(self) -> None:
        """It has no devices any more."""
        self._lists.put(())

    def __exit__(self, *_exc: object) -> None:
        self._server.stop(grace=None).wait()
