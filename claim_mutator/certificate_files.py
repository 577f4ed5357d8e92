"""The serving certificate as files that somebody else keeps: cert-manager, in a Secret mounted as a volume.

The kubelet exchanges such files all at once; they are looked at every few seconds, and a pair that has
changed and fits together counts for new connections from then on.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from cryptography import x509

_log = logging.getLogger(__name__)
_IMPATIENT = 1.0  # seconds between looks while there is none yet


class CertificateFiles:
    """`context` serves connections at any time."""

    def __init__(
        self,
        directory: Path,
        *,
        period: float,
        on_loaded: Callable[[dt.datetime], None] = lambda _: None,
    ) -> None:
        self._certificate = directory / "tls.crt"
        self._key = directory / "tls.key"
        self._period = period
        self._on_loaded = on_loaded
        self._read: tuple[bytes, bytes] | None = None
        self._complaint = ""
        self.loaded = asyncio.Event()
        self.context = serving_context()

    @property
    def missing(self) -> str | None:
        """What keeps the API server from calling us, or None."""
        return None if self.loaded.is_set() else "there is no serving certificate yet"

    async def run(self) -> NoReturn:
        """Looks after the certificate until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(self._period if self.loaded.is_set() else min(_IMPATIENT, self._period))

    def look(self) -> None:
        """Takes a changed pair. What can't be used is told once, and the one before goes on."""
        try:
            read = self._certificate.read_bytes(), self._key.read_bytes()
            if read == self._read:
                return
            expires = x509.load_pem_x509_certificate(read[0]).not_valid_after_utc
            # First where it can do no harm: a pair that does not fit together leaves a context broken.
            serving_context().load_cert_chain(self._certificate, self._key)
            self.context.load_cert_chain(self._certificate, self._key)
        except (OSError, ValueError) as error:
            if str(error) != self._complaint:
                self._complaint = str(error)
                _log.warning("certificate in %s: %s", self._certificate.parent, error)
            return
        self._read, self._complaint = read, ""
        self._on_loaded(expires)
        self.loaded.set()
        _log.info("serving certificate of %s until %s", self._certificate.parent, expires.isoformat())


def serving_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context
