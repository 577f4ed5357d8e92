"""Telling the kubelet who we are: the plugin registration protocol, on a socket of its own.

The kubelet finds the socket by watching its directory, asks, and tells what it made of the answer; it asks
again whenever it restarts. Not being registered is told in readiness, it never ends the agent: a kubelet that
is down for an hour is none of our faults.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from dra_driver.conditions import Condition, Conditions
from dra_driver.kubelet import health, service
from protos.registration import registration_pb2, registration_pb2_grpc

_log = logging.getLogger(__name__)
PLUGIN_TYPE = "DRAPlugin"
# Preferred first: a kubelet takes the first of each service that it knows, and skips what it does not know.
SUPPORTED_VERSIONS = (service.V1, service.V1BETA1, health.V1, health.V1ALPHA1)


class Registration:
    """`endpoint`: the DRA socket as the kubelet sees it; it must be served already.

    `registered` is called each time the kubelet has registered us.
    """

    def __init__(
        self,
        *,
        driver: str,
        endpoint: Path,
        conditions: Conditions,
        registered: Callable[[], None] = lambda: None,
    ) -> None:
        self._info = registration_pb2.PluginInfo(
            type=PLUGIN_TYPE, name=driver, endpoint=str(endpoint), supported_versions=SUPPORTED_VERSIONS
        )
        self._conditions = conditions
        self._registered = registered
        conditions.fail(Condition.REGISTERED, "the kubelet has not asked yet: is it running?")

    def serve(self, server: grpc.aio.Server) -> None:
        registration_pb2_grpc.add_RegistrationServicer_to_server(self, server)

    async def GetInfo(self, _request: Any, _context: Any) -> registration_pb2.PluginInfo:  # noqa: N802 - protocol
        return self._info

    async def NotifyRegistrationStatus(  # noqa: N802 - protocol
        self, status: Any, _context: Any
    ) -> registration_pb2.RegistrationStatusResponse:
        if status.plugin_registered:
            self._conditions.hold(Condition.REGISTERED, "the kubelet has registered the driver")
            self._registered()
        else:
            self._conditions.fail(Condition.REGISTERED, f"the kubelet refused the driver: {status.error}")
        return registration_pb2.RegistrationStatusResponse()
