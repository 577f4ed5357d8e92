"""Sockets of the servers."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from kube.server import _listening


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0"], ids=["IPv4", "IPv6"])
def test_nagle_is_turned_off(listen: str) -> None:
    with closing(_listening(listen)) as listener:
        assert listener.proto == socket.IPPROTO_TCP, "asyncio looks at this before it sets TCP_NODELAY"


def test_address_in_use_is_named() -> None:
    with closing(_listening("127.0.0.1:0")) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(OSError, match=f"can't listen on {address}: Address already in use"):
            _listening(address)
