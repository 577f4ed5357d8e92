"""One admission review: bytes in, bytes out. The meaning is conversion's; here are its consequences."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from claim_mutator import pod, review
from claim_mutator.container import Rules
from claim_mutator.conversion import convert
from claim_mutator.metrics import Metrics
from claim_mutator.refusal import Refused
from claim_mutator.review import Request, Response
from claim_mutator.template import Cluster
from claim_mutator.templates import TemplateStore
from kube.errors import ApiError, Unavailable


class BadReview(Exception):  # noqa: N818 - what it is
    """The body is no AdmissionReview: an HTTP 400, not an answer."""


class Admission:
    """`cluster` gives the facts of the moment."""

    def __init__(
        self, rules: Rules, cluster: Callable[[], Cluster], templates: TemplateStore, metrics: Metrics
    ) -> None:
        self._rules = rules
        self._cluster = cluster
        self._templates = templates
        self._metrics = metrics
        self._marks = tuple(domain.encode() for domain in sorted(rules.names.domains)) + tuple(
            name.encode() for name in rules.names.roles if "/" not in name
        )

    async def review(self, body: bytes) -> bytes:
        """Raises BadReview; every other trouble is an answer that says so."""
        began = time.perf_counter()
        try:
            request = review.decode(body)
        except msgspec.DecodeError as error:
            raise BadReview(f"not an AdmissionReview: {error}") from error
        result, response = await self._decide(request)
        self._metrics.admissions.labels(result=result).inc()
        self._metrics.seconds.labels(result=result).observe(time.perf_counter() - began)
        return review.encode(response)

    async def _decide(self, request: Request) -> tuple[str, Response]:
        raw = bytes(request.object)
        kind = request.kind.kind if request.kind else "Pod"
        if kind != "Pod" or request.operation != "CREATE" or request.sub_resource:
            return "untouched", review.allowed(request.uid)
        if not any(mark in raw for mark in self._marks):
            return "untouched", review.allowed(request.uid)
        try:
            found = pod.decode(raw)
        except msgspec.DecodeError as error:
            message = f"the Pod can't be read: {error}"
            return "refused", review.denied(request.uid, 400, "BadRequest", message)
        name = f"Pod {request.namespace}/{found.display_name}"
        try:
            conversion = convert(found, self._rules, self._cluster())
        except Refused as refused:
            return "refused", review.denied(request.uid, 400, "BadRequest", f"{name}: {refused}")
        if conversion.template is not None and not request.dry_run:
            try:
                await self._templates.ensure(request.namespace, conversion.template)
            except ApiError as error:
                return "failed", _failed(request, f"{name}: {conversion.template.name}", error)
        result = "converted" if conversion.operations else "untouched"
        return result, review.allowed(request.uid, conversion.operations, conversion.warnings)


def _failed(request: Request, what: str, error: ApiError) -> Response:
    message = f"{what}: the ResourceClaimTemplate can't be created: {error}"
    if isinstance(error, Unavailable):
        return review.denied(request.uid, 503, "ServiceUnavailable", f"{message}; try again")
    return review.denied(request.uid, error.status or 500, error.reason, message)
