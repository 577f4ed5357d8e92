"""Sockets of the servers."""

from __future__ import annotations

import errno
import socket
from contextlib import closing

import pytest

from kube.server import _listening


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"], ids=["IPv4", "IPv6"])
def test_nagle_is_turned_off(listen: str) -> None:
    with closing(_listening(listen)) as listener:
        assert listener.proto == socket.IPPROTO_TCP, "asyncio looks at this before it sets TCP_NODELAY"


@pytest.mark.parametrize(
    "peer", [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)], ids=["IPv4", "IPv6"]
)
def test_all_addresses_of_both_families(peer: tuple[str, socket.AddressFamily]) -> None:
    """A cluster may have the one, the other, or both."""
    host, family = peer
    with closing(_listening("[::]:0")) as listener, closing(socket.socket(family)) as caller:
        caller.connect((host, listener.getsockname()[1]))


def test_a_kernel_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    class Socket(socket.socket):
        def __init__(self, family: int, *arguments: int) -> None:
            if family == socket.AF_INET6:
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *arguments)

    monkeypatch.setattr(socket, "socket", Socket)
    with closing(_listening("[::]:0")) as listener:
        assert listener.getsockname()[0] == "0.0.0.0"
    with pytest.raises(OSError, match=r"can't listen on \[::1\]:0: Address family not supported"):
        _listening("[::1]:0")


def test_address_in_use_is_named() -> None:
    with closing(_listening("127.0.0.1:0")) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(OSError, match=f"can't listen on {address}: Address already in use"):
            _listening(address)
