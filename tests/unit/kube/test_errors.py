"""Which class an answer of the API server becomes."""

from __future__ import annotations

import pytest

from kube import errors


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (404, b'{"reason":"NotFound","message":"nodes \\"a\\" not found"}', errors.NotFound),
        (409, b'{"reason":"AlreadyExists"}', errors.AlreadyExists),
        (409, b'{"reason":"Conflict"}', errors.Conflict),
        (410, b'{"reason":"Expired"}', errors.Gone),
        (429, b"{}", errors.Unavailable),
        (500, b"boom", errors.Unavailable),
        (503, b"", errors.Unavailable),
        (403, b'{"reason":"Forbidden"}', errors.ApiError),
        (422, b"[1]", errors.ApiError),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_class(code: int, body: bytes, kind: type[errors.ApiError]) -> None:
    error = errors.from_response(code, body, None)
    assert type(error) is kind
    assert error.status == code
    assert str(error)


@pytest.mark.parametrize(
    ("header", "body", "seconds"),
    [("7", b"{}", 7.0), (None, b'{"details":{"retryAfterSeconds":3}}', 3.0), ("Wed, 21 Oct", b"{}", None)],
    ids=["header", "details", "a date is not used"],
)
def test_retry_after(header: str | None, body: bytes, seconds: float | None) -> None:
    assert errors.from_response(429, body, header).retry_after == seconds


def test_text_of_a_proxy_is_kept() -> None:
    assert "upstream is down" in str(errors.from_response(502, b"<h1>upstream is down</h1>", None))
