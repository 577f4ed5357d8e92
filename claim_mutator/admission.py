"""One admission review: bytes in, bytes out. The meaning is conversion's; here are its consequences."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from claim_mutator import pod, review, update, workload
from claim_mutator.cluster import Cluster
from claim_mutator.conversion import Conversion
from claim_mutator.metrics import Metrics
from claim_mutator.patch import Operation
from claim_mutator.quota.gate import Exceeded, Gate
from claim_mutator.quota.usage import MARK
from claim_mutator.refusal import Pointer, Refused
from claim_mutator.remembered import Conversions
from claim_mutator.review import Request, Response
from claim_mutator.rules import Rules
from claim_mutator.templates import TemplateStore
from kube.errors import ApiError, Unavailable
from kube.events import ObjectRef, Recorder

_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The last: of what is nested more deeply than any object is."""
_REASONS = ("resources", "annotations", "securityContext", "nodeName")
"""Steps of a problem's pointer that say what kind of problem it is."""
REFUSED = "GPUPodRefused"


class BadReview(Exception):  # noqa: N818 - what it is
    """The body is no AdmissionReview: an HTTP 400, not an answer."""


@dataclass(frozen=True)
class Decision:
    """result: one of metrics.RESULTS. reason: of a refusal, one of metrics.REASONS."""

    result: str
    response: Response
    reason: str = ""


class Admission:
    """`cluster` gives the facts of the moment. `recorder`: Events about what makes the Pods we refuse."""

    def __init__(
        self,
        rules: Rules,
        cluster: Callable[[], Cluster],
        *,
        templates: TemplateStore,
        gate: Gate,
        metrics: Metrics,
        recorder: Recorder,
    ) -> None:
        self._rules = rules
        self._cluster = cluster
        self._conversions = Conversions(rules)
        self._templates = templates
        self._metrics = metrics
        self._gate = gate
        self._recorder = recorder
        self._marks = tuple(domain.encode() for domain in sorted(rules.names.domains)) + tuple(
            name.encode() for name in rules.names.roles if "/" not in name
        )

    async def review(self, body: bytes) -> bytes:
        """Raises BadReview; every other trouble is an answer that says so."""
        began = time.perf_counter()
        try:
            request = review.decode(body)
        except _UNREADABLE as error:
            raise BadReview(f"not an AdmissionReview: {error}") from error
        found = await self._decide(request)
        self._metrics.answered(found.result, found.reason, time.perf_counter() - began)
        return review.encode(found.response)

    async def _decide(self, request: Request) -> Decision:
        raw = bytes(request.object)
        kind = request.kind.kind if request.kind else "Pod"
        if request.sub_resource or request.operation not in ("CREATE", "UPDATE"):
            return Decision("untouched", review.allowed(request.uid))
        if kind != "Pod":
            return self._told(request)
        if not any(mark in raw for mark in self._marks):
            return Decision("untouched", review.allowed(request.uid))
        if request.operation == "UPDATE":
            return self._updated(request)
        try:
            found = pod.decode(raw)
        except _UNREADABLE as error:
            message = f"the Pod can't be read: {error}"
            return Decision("refused", review.denied(request.uid, 400, "BadRequest", message), "unreadable")
        name = f"Pod {request.namespace}/{found.display_name}"
        try:
            conversion, patch = self._conversions.convert(found, self._cluster(), request.namespace)
        except Refused as refused:
            response = review.denied(request.uid, 400, "BadRequest", f"{name}: {refused}")
            return self._refused(request, response, _reason(refused.problems[0].pointer))
        if conversion.template is None:
            return _converted(request, conversion, patch)
        return await self._admit(request, name, conversion, patch)

    async def _admit(self, request: Request, name: str, conversion: Conversion, patch: str) -> Decision:
        """What the answer needs of the cluster: room in the quotas, and the template."""
        template = conversion.template
        assert template is not None  # noqa: S101 - the caller has looked
        marked: tuple[Operation, ...] = ()
        is_trial = bool(request.dry_run)
        if self._gate.concerns(request.namespace):
            document = _document(request.object)
            if document is None:
                response = review.denied(request.uid, 400, "BadRequest", f"{name} can't be read")
                return Decision("refused", response, "unreadable")
            spec = template.spec["spec"]
            try:
                await self._gate.ask(request.namespace, request.uid, spec, document, is_trial=is_trial)
            except Exceeded as exceeded:
                response = review.denied(request.uid, 403, "Forbidden", str(exceeded))
                return self._refused(request, response, "quota")
            except ApiError as error:
                return _failed(request, f"{name}: its quota can't be looked up", error)
            marked = _marked(document, request.uid)
        if not is_trial:
            try:
                await self._templates.ensure(request.namespace, template)
            except ApiError as error:
                if marked:
                    await self._gate.leave(request.namespace, request.uid)
                what = f"{name}: {template.name}: the ResourceClaimTemplate can't be created"
                return _failed(request, what, error)
            patch = review.patch_of((*conversion.operations, *marked)) if marked else patch
        return _converted(request, conversion, patch)

    def _updated(self, request: Request) -> Decision:
        """Of a Pod that is converted already; whatever is not readable here the server judges."""
        new, old = _document(request.object), _document(request.old_object)
        if new is None or old is None:
            return Decision("untouched", review.allowed(request.uid))
        changes = update.restored(new, old, self._rules)
        if not changes:
            return Decision("untouched", review.allowed(request.uid))
        warnings = update.warnings(new, old, self._rules, self._cluster(), request.namespace)
        return Decision("restored", review.allowed(request.uid, review.patch_of(changes), warnings))

    def _told(self, request: Request) -> Decision:
        """A workload is never changed or refused; its author is told what its Pods will meet."""
        document = _document(request.object)
        if document is None:
            return Decision("untouched", review.allowed(request.uid))
        notices = workload.review(document, self._rules, self._cluster(), request.namespace)
        warnings = tuple(dict.fromkeys(notice.text for notice in notices))
        return Decision("told" if warnings else "untouched", review.allowed(request.uid, "", warnings))

    def _refused(self, request: Request, response: Response, reason: str) -> Decision:
        """Whoever applies a Pod reads the answer; for a controller's Pod nobody does."""
        if not request.dry_run and response.status is not None:
            owner = _controller(request)
            if owner is not None:
                self._recorder.warn(owner, REFUSED, response.status.message)
        return Decision("refused", response, reason)


def _converted(request: Request, conversion: Conversion, patch: str) -> Decision:
    result = "converted" if patch else "untouched"
    return Decision(result, review.allowed(request.uid, patch, conversion.warnings))


def _failed(request: Request, what: str, error: ApiError) -> Decision:
    message = f"{what}: {error}"
    if isinstance(error, Unavailable):
        response = review.denied(request.uid, 503, "ServiceUnavailable", f"{message}; try again")
    else:
        response = review.denied(request.uid, error.status or 500, error.reason, message)
    return Decision("failed", response)


def _reason(pointer: Pointer) -> str:
    return next((step for step in _REASONS if step in pointer), "claim")


def _marked(document: Mapping[str, Any], uid: str) -> tuple[Operation, ...]:
    """By this the quota knows that the Pod has come."""
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        return ({"op": "add", "path": "/metadata", "value": {"annotations": {MARK: uid}}},)
    if not metadata.get("annotations"):
        return ({"op": "add", "path": "/metadata/annotations", "value": {MARK: uid}},)
    return ({"op": "add", "path": f"/metadata/annotations/{MARK.replace('/', '~1')}", "value": uid},)


def _document(raw: msgspec.Raw) -> dict[str, Any] | None:
    """None for what is no object: the server judges that better."""
    try:
        found = msgspec.json.decode(raw)
    except _UNREADABLE:
        return None
    return found if isinstance(found, dict) else None


def _controller(request: Request) -> ObjectRef | None:
    metadata = (_document(request.object) or {}).get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, dict) else None
    for each in owners if isinstance(owners, list) else ():
        if isinstance(each, dict) and each.get("controller") is True:
            version, kind, name, uid = (
                str(each.get(field) or "") for field in ("apiVersion", "kind", "name", "uid")
            )
            return ObjectRef(version, kind, name, request.namespace, uid)
    return None
