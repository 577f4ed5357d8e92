"""What can go wrong with one claim, by consequence. The message names object, field and value, for people."""

from __future__ import annotations


class ClaimError(Exception):
    """This claim can't be prepared or unprepared; the kubelet shows the message on the Pod and tries anew."""


class RetryableError(ClaimError):
    """The same request can succeed later without anybody changing the claim."""


class OvercommitError(RetryableError):
    """A card would be promised twice: others still hold what the scheduler has given away again."""


class GoneError(RetryableError):
    """The API server says that there is no such claim: not the same as saying nothing."""


class PermanentError(ClaimError):
    """The request can't succeed as long as the claim, its class or the node's settings are as they are."""


class ConfigError(PermanentError):
    """An opaque config that can't be honoured. `path`: the field, as kubectl explain would name it."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason
