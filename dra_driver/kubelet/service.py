"""The kubelet's DRA protocol, in both versions, on one socket.

Each claim of a call is answered, whatever happens to the others: an error of one is a message in its own
entry, never the end of the call. Here, and only here, any exception at all is caught: the kubelet is owed an
answer.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

import grpc

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.handed import PreparedDevice
from dra_driver.claims.prepare import Preparer
from dra_driver.errors import PermanentError, RetryableError
from dra_driver.metrics.counters import Metrics
from dra_driver.names import ClaimUID
from dra_driver.process import logs
from protos.dra_v1 import dra_v1_pb2
from protos.dra_v1beta1 import dra_v1beta1_pb2

_log = logging.getLogger(__name__)

# The short name registers, the long one is the service.
V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
V1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
V1BETA1_SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin"
_METHODS = {"prepare": "NodePrepareResources", "unprepare": "NodeUnprepareResources"}


class _WireClaim(Protocol):
    namespace: str
    uid: str
    name: str


class DraService:
    """`serve` adds both versions to a server; the messages differ in the share's id alone.

    `refused` is told of each claim that is not prepared, and why.
    """

    def __init__(
        self,
        preparer: Preparer,
        metrics: Metrics,
        refused: Callable[[ClaimRef, Exception], None] = lambda _ref, _error: None,
    ) -> None:
        self._preparer = preparer
        self._metrics = metrics
        self._refused = refused
        self._numbers = itertools.count(1)

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
        with logs.about(request=str(next(self._numbers)), method=_METHODS[operation]):
            answers = await asyncio.gather(*(self._guarded(operation, ref, do) for ref in refs.values()))
        return dict(zip(refs, answers, strict=True))

    async def _guarded(self, operation: str, ref: ClaimRef, do: Callable[[ClaimRef], Awaitable[Any]]) -> Any:
        """A task of its own for each claim, so that what is logged below is about this one."""
        began = time.monotonic()
        with logs.about(claim=str(ref)), self._metrics.claim(operation):
            outcome, answer, problem = await self._answer(operation, ref, do)
            self._metrics.claim_done(operation, outcome, problem)
            milliseconds = round((time.monotonic() - began) * 1000, 1)
            more = logs.fields(operation=operation, outcome=outcome, milliseconds=milliseconds)
            if problem is None:
                _log.info("%s of ResourceClaim %s done in %s ms", operation, ref, milliseconds, extra=more)
            else:
                _log.warning(
                    "%s of ResourceClaim %s refused after %s ms: %s",
                    operation,
                    ref,
                    milliseconds,
                    answer,
                    extra=more,
                )
        return answer

    async def _answer(
        self, operation: str, ref: ClaimRef, do: Callable[[ClaimRef], Awaitable[Any]]
    ) -> tuple[str, Any, Exception | None]:
        """Outcome, answer, and why it is a refusal."""
        try:
            return "success", await do(ref), None
        except RetryableError as error:
            self._refused(ref, error)
            return "retryable", str(error), error
        except PermanentError as error:
            self._refused(ref, error)
            words = str(error)
            return "permanent", words if str(ref) in words else f"ResourceClaim {ref}: {words}", error
        except Exception as error:
            _log.exception("%s of ResourceClaim %s failed in an unforeseen way", operation, ref)
            return "internal", f"ResourceClaim {ref}: {operation} failed: {error!r}", error


def _fields(device: PreparedDevice) -> dict[str, Any]:
    return {
        "request_names": [device.request],
        "pool_name": device.pool,
        "device_name": device.device,
        "cdi_device_ids": device.cdi_ids,
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
