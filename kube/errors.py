"""What the API server answered when it did not do as asked; one class per consequence for the caller."""

# ruff: noqa: N818 - the names are what the server says

from __future__ import annotations

from typing import Any

import msgspec


class ApiError(Exception):
    """An answer that is not success. `status` is the HTTP code, 0 where there was no answer at all."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        """Seconds that the server asked to wait, where it did."""

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})" if self.status else self.message


class NotFound(ApiError):
    """The object, or the kind, is not there."""


class Conflict(ApiError):
    """Somebody else changed the object (resource version), or a precondition did not hold: read again."""


class AlreadyExists(ApiError):
    """An object of that name is there already."""


class Gone(ApiError):
    """The resource version is too old to continue from: list again."""


class Unavailable(ApiError):
    """No answer, a time-out, 429 or 5xx: the same request may succeed later."""


def from_status(status: dict[str, Any], *, code: int = 0, retry_after: float | None = None) -> ApiError:
    """The error for a `kind: Status` object (a body, or the object of an ERROR event of a watch)."""
    code = int(status.get("code") or code)
    reason = str(status.get("reason") or "Unknown")
    message = str(status.get("message") or f"the API server answered {code}")
    details = status.get("details")
    if retry_after is None and isinstance(details, dict) and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    kind: type[ApiError] = ApiError
    if code == 404:
        kind = NotFound
    elif code == 409:
        kind = AlreadyExists if reason == "AlreadyExists" else Conflict
    elif code == 410 or reason in ("Expired", "Gone"):
        kind = Gone
    elif code == 429 or code >= 500:
        kind = Unavailable
    return kind(code, reason, message, retry_after)


def from_response(code: int, body: bytes, retry_after_header: str | None) -> ApiError:
    """The error for an HTTP answer; its body is a Status object or, from proxies, any text."""
    retry_after = None
    if retry_after_header is not None and retry_after_header.isascii() and retry_after_header.isdigit():
        retry_after = float(retry_after_header)
    try:
        status = msgspec.json.decode(body)
    except msgspec.DecodeError:
        status = None
    if not isinstance(status, dict):
        text = body[:200].decode(errors="replace").strip()
        status = {"message": f"the API server answered {code}: {text}" if text else None}
    return from_status(status | {"code": code}, retry_after=retry_after)
