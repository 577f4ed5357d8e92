"""AdmissionReview v1: the envelope is decoded, the object in it stays raw bytes.

Contract: https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence

import msgspec

from claim_mutator.patch import Operation

_WARNING_LENGTH = 256
_WARNINGS_LENGTH = 4096
"""What is longer the API server cuts: characters of one, bytes of all."""


class Kind(msgspec.Struct):
    group: str = ""
    kind: str = ""


class Request(msgspec.Struct, rename="camel"):
    uid: str
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")
    kind: Kind | None = None
    namespace: str = ""
    operation: str = "CREATE"
    sub_resource: str = ""
    dry_run: bool | None = None


class Review(msgspec.Struct):
    request: Request


class Status(msgspec.Struct):
    code: int
    reason: str
    message: str


class Response(msgspec.Struct, rename="camel", omit_defaults=True):
    uid: str
    allowed: bool
    patch_type: str = ""
    patch: str = ""
    status: Status | None = None
    warnings: Sequence[str] = ()


class _Answer(msgspec.Struct, rename="camel"):
    response: Response
    api_version: str = "admission.k8s.io/v1"
    kind: str = "AdmissionReview"


_decoder = msgspec.json.Decoder(Review)
_encoder = msgspec.json.Encoder()


def decode(body: bytes) -> Request:
    """Raises msgspec.DecodeError (ValidationError is one) for what is no AdmissionReview."""
    return _decoder.decode(body).request


def encode(response: Response) -> bytes:
    return _encoder.encode(_Answer(response))


def allowed(uid: str, patch: str = "", warnings: Sequence[str] = ()) -> Response:
    """patch: of `patch_of`. Warnings are cut to what the API server passes on."""
    warnings = tuple(_shortened(warnings))
    if not patch:
        return Response(uid, True, warnings=warnings)
    return Response(uid, True, patch_type="JSONPatch", patch=patch, warnings=warnings)


def patch_of(operations: Sequence[Operation]) -> str:
    """As the answer carries them; empty, if there are none."""
    return base64.b64encode(_encoder.encode(operations)).decode() if operations else ""


def _shortened(warnings: Sequence[str]) -> Iterator[str]:
    room = _WARNINGS_LENGTH
    for text in warnings:
        short = text if len(text) <= _WARNING_LENGTH else text[: _WARNING_LENGTH - 1] + "…"
        room -= len(short.encode())
        if room < 0:
            return
        yield short


def denied(uid: str, code: int, reason: str, message: str) -> Response:
    return Response(uid, False, status=Status(code, reason, message))
