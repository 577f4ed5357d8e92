"""Keeps the serving certificate: in a Secret, in our webhook's caBundle, in the TLS context.

All replicas share the Secret, and it decides; whoever finds it empty or due replaces it under its resource
version, the others take what is there. The CA is published before a certificate of it is served. Safe to be
killed anywhere: the next turn goes on from what the Secret says.
"""

from __future__ import annotations

import asyncio
import base64
import datetime as dt
import logging
import os
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from claim_mutator import certificates
from claim_mutator.certificate_files import serving_context
from claim_mutator.certificates import Credentials, Lifetimes
from claim_mutator.names import MANAGED_BY, MUTATOR
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound

_log = logging.getLogger(__name__)

_GRACE = 5.0  # seconds until all API servers have seen a new caBundle
_IMPATIENT = 2.0  # seconds between turns while the webhook configuration is not there yet
_TRIES = 5


class CredentialKeeper:
    """`context` serves connections at any time; a certificate that is replaced in it counts for new ones."""

    def __init__(
        self,
        client: Client,
        *,
        namespace: str,
        secret: str,
        service: str,
        webhook: str,
        period: float,
        lifetimes: Lifetimes = Lifetimes(),  # noqa: B008 - immutable
        now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
        on_loaded: Callable[[dt.datetime], None] = lambda _: None,
        grace: float = _GRACE,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._service = service
        self._webhook = webhook
        self._period = period
        self._lifetimes = lifetimes
        self._now = now
        self._on_loaded = on_loaded
        self._grace = grace
        self._names = serving_names(service, namespace)
        self._loaded: Credentials | None = None
        self._published = False
        self.loaded = asyncio.Event()
        self.context = serving_context()

    @property
    def missing(self) -> str | None:
        """What keeps the API server from calling us, or None."""
        if self._loaded is None:
            return "there is no serving certificate yet"
        return None if self._published else f"no webhook of {self._webhook} trusts our CA yet"

    async def run(self) -> NoReturn:
        """Looks after the certificate until cancelled."""
        backoff, failures = Backoff(), 0
        while True:
            try:
                await self.turn()
                failures = 0
            except ApiError as error:
                failures += 1
                _log.warning("serving certificate: %s", error)
                await asyncio.sleep(backoff.delay(failures, error.retry_after))
                continue
            await asyncio.sleep(self._period if self._published else min(_IMPATIENT, self._period))

    async def turn(self) -> None:
        """Secret, caBundle and context are as they should be, or an ApiError is raised."""
        found = await self._agreed()
        self._published = await self._publish(_bundle(found, self._loaded))
        if found == self._loaded:
            return
        if self._loaded is not None and found.ca_bundle != self._loaded.ca_bundle:
            await asyncio.sleep(self._grace)
        load(self.context, found)
        self._loaded = found
        self._on_loaded(found.expires)
        self.loaded.set()
        _log.info("serving certificate for %s until %s", self._names[0], found.expires.isoformat())

    async def _agreed(self) -> Credentials:
        """The Secret's credentials, after whatever is due has been replaced by us or by another replica."""
        for _ in range(_TRIES):
            try:
                document: dict[str, Any] = await self._client.get(paths.secret(self._namespace, self._secret))
            except NotFound:
                document = {}
            held = certificates.from_data(document.get("data"))
            # A Secret that somebody deleted comes back as it was: what we serve is still trusted.
            wanted = certificates.renewed(held or self._loaded, self._names, self._now(), self._lifetimes)
            if wanted == held:
                return wanted
            try:
                await self._store(document, wanted)
            except (AlreadyExists, Conflict):
                continue  # another replica was faster
            _log.info("stored the serving certificate in Secret %s/%s", self._namespace, self._secret)
            return wanted
        raise ApiError(409, "Conflict", f"Secret {self._secret} changes whenever it is written")

    async def _store(self, document: dict[str, Any], wanted: Credentials) -> None:
        if document:
            changed = document | {"data": (document.get("data") or {}) | wanted.to_data()}
            await self._client.replace(paths.secret(self._namespace, self._secret), changed)
            return
        metadata = {"name": self._secret, "labels": {MANAGED_BY: MUTATOR}}
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/tls",
            "metadata": metadata,
            "data": wanted.to_data(),
        }
        await self._client.create(paths.secrets(self._namespace), secret)

    async def _publish(self, bundle: bytes) -> bool:
        """Puts the CA into those webhooks of the configuration that call our service; False if none does."""
        path = paths.mutating_webhook_configuration(self._webhook)
        try:
            document = await self._client.get(path)
        except NotFound:
            return False
        value = base64.b64encode(bundle).decode()
        ours = [
            (index, webhook)
            for index, webhook in enumerate(document.get("webhooks") or ())
            if self._is_ours(webhook.get("clientConfig") or {})
        ]
        operations: list[dict[str, Any]] = []
        for index, webhook in ours:
            if webhook["clientConfig"].get("caBundle") != value:
                base = f"/webhooks/{index}"
                operations += [
                    {"op": "test", "path": f"{base}/name", "value": webhook["name"]},
                    {"op": "add", "path": f"{base}/clientConfig/caBundle", "value": value},
                ]
        if operations:
            await self._client.patch(path, operations, content_type="application/json-patch+json")
            _log.info("published the CA in MutatingWebhookConfiguration %s", self._webhook)
        return bool(ours)

    def _is_ours(self, client_config: dict[str, Any]) -> bool:
        service = client_config.get("service") or {}
        return (service.get("name"), service.get("namespace")) == (self._service, self._namespace)


def _bundle(wanted: Credentials, loaded: Credentials | None) -> bytes:
    """What API servers have to trust now: also who signed what we still serve, if the Secret was replaced."""
    if loaded is None or loaded.ca_bundle == wanted.ca_bundle:
        return wanted.ca_bundle
    return certificates.joined(wanted.ca_bundle, loaded.ca_bundle)


def serving_names(service: str, namespace: str) -> Sequence[str]:
    """DNS names of a Service; the API server uses the first."""
    return [
        f"{service}.{namespace}.svc",
        f"{service}.{namespace}.svc.cluster.local",
        f"{service}.{namespace}",
    ]


def load(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Replaces the certificate in a context in use, without the key ever being a file on disk."""
    descriptor = os.memfd_create("serving-certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(credentials.certificate + credentials.key)
        context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    finally:
        os.close(descriptor)
