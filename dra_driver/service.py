"""The kubelet's DRA protocol, in both versions, on one socket.

Each claim of a call is answered, whatever happens to the others: an error of one is a message in its own
entry, never the end of the call. Here, and only here, any exception at all is caught: the kubelet is owed an
answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc

from dra_driver.claims import ClaimRef
from dra_driver.errors import PermanentError, RetryableError
from dra_driver.metrics import Metrics
from dra_driver.names import ClaimUID
from dra_driver.prepare import PreparedDevice, Preparer
from protos.dra_v1 import dra_v1_pb2
from protos.dra_v1beta1 import dra_v1beta1_pb2

_log = logging.getLogger(__name__)

# The short name registers, the long one is the service.
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
V1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"


class _WireClaim(Protocol):
    namespace: str
    uid: str
    name: str


class DraService:
    """`serve` adds both versions to a server; the messages differ in the share's id alone."""

    def __init__(self, preparer: Preparer, metrics: Metrics) -> None:
        self._preparer = preparer
        self._metrics = metrics

    def serve(self, server: grpc.aio.Server) -> None:
        server.add_generic_rpc_handlers(
            (
                _handler(V1_SERVICE, dra_v1_pb2, self._prepare_v1, self._unprepare_v1),
                _handler(V1BETA1_SERVICE, dra_v1beta1_pb2, self._prepare_v1beta1, self._unprepare_v1beta1),
            )
        )

    async def _prepare_v1(self, request: Any, _context: Any) -> Any:
        answers = await self._each("prepare", request.claims, self._preparer.prepare)
        return dra_v1_pb2.NodePrepareResourcesResponse(
            claims={
                uid: dra_v1_pb2.NodePrepareResourceResponse(error=answer)
                if isinstance(answer, str)
                else dra_v1_pb2.NodePrepareResourceResponse(
                    devices=[
                        dra_v1_pb2.Device(**_fields(device), share_id=device.share_id) for device in answer
                    ]
                )
                for uid, answer in answers.items()
            }
        )

    async def _prepare_v1beta1(self, request: Any, _context: Any) -> Any:
        answers = await self._each("prepare", request.claims, self._preparer.prepare)
        return dra_v1beta1_pb2.NodePrepareResourcesResponse(
            claims={
                uid: dra_v1beta1_pb2.NodePrepareResourceResponse(error=answer)
                if isinstance(answer, str)
                else dra_v1beta1_pb2.NodePrepareResourceResponse(
                    devices=[dra_v1beta1_pb2.Device(**_fields(device)) for device in answer]
                )
                for uid, answer in answers.items()
            }
        )

    async def _unprepare_v1(self, request: Any, _context: Any) -> Any:
        return dra_v1_pb2.NodeUnprepareResourcesResponse(
            claims={
                uid: dra_v1_pb2.NodeUnprepareResourceResponse(error=error)
                for uid, error in (await self._unprepare(request.claims)).items()
            }
        )

    async def _unprepare_v1beta1(self, request: Any, _context: Any) -> Any:
        return dra_v1beta1_pb2.NodeUnprepareResourcesResponse(
            claims={
                uid: dra_v1beta1_pb2.NodeUnprepareResourceResponse(error=error)
                for uid, error in (await self._unprepare(request.claims)).items()
            }
        )

    async def _unprepare(self, claims: Iterable[_WireClaim]) -> dict[str, str]:
        answers = await self._each("unprepare", claims, self._preparer.unprepare)
        return {uid: answer if isinstance(answer, str) else "" for uid, answer in answers.items()}

    async def _each(
        self, operation: str, claims: Iterable[_WireClaim], do: Callable[[ClaimRef], Awaitable[Any]]
    ) -> dict[str, Any]:
        """UID → what `do` gave, or the error as text; all claims side by side."""
        refs = {claim.uid: ClaimRef(claim.namespace, claim.name, ClaimUID(claim.uid)) for claim in claims}
        answers = await asyncio.gather(*(self._guarded(operation, ref, do) for ref in refs.values()))
        return dict(zip(refs, answers, strict=True))

    async def _guarded(self, operation: str, ref: ClaimRef, do: Callable[[ClaimRef], Awaitable[Any]]) -> Any:
        began = time.monotonic()
        try:
            answer = await do(ref)
        except RetryableError as error:
            outcome, answer = "retryable", str(error)
        except PermanentError as error:
            outcome, answer = (
                "permanent",
                f"ResourceClaim {ref}: {error}" if str(ref) not in str(error) else str(error),
            )
        except Exception as error:
            _log.exception("%s of ResourceClaim %s failed in an unforeseen way", operation, ref)
            outcome, answer = "internal", f"ResourceClaim {ref}: {operation} failed: {error!r}"
        else:
            outcome = "success"
        self._metrics.claim_done(operation, outcome)
        seconds = time.monotonic() - began
        if outcome == "success":
            _log.info("%s of ResourceClaim %s done in %.1f ms", operation, ref, seconds * 1000)
        else:
            _log.warning("%s of ResourceClaim %s refused: %s", operation, ref, answer)
        return answer


def _fields(device: PreparedDevice) -> dict[str, Any]:
    return {
        "request_names": [device.request],
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": [device.cdi_id],
    }


def _handler(service: str, messages: Any, prepare: Any, unprepare: Any) -> grpc.GenericRpcHandler:
    return grpc.method_handlers_generic_handler(
        service,
        {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                prepare,
                request_deserializer=messages.NodePrepareResourcesRequest.FromString,
                response_serializer=messages.NodePrepareResourcesResponse.SerializeToString,
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                unprepare,
                request_deserializer=messages.NodeUnprepareResourcesRequest.FromString,
                response_serializer=messages.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        },
    )
