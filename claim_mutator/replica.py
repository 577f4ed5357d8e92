"""One replica: its parts put together, and run until it is told to leave.

SIGTERM: not ready any more, but reviews are still taken for a while (the API server learns of it later), then
those in flight are answered, then the lease is given back.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import gc
import logging
import os
import signal
import socket
from collections.abc import Coroutine
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NoReturn, TypeAlias

from claim_mutator.admission import Admission
from claim_mutator.certificate_files import CertificateFiles
from claim_mutator.credentials import CredentialKeeper
from claim_mutator.facts import ClusterFacts
from claim_mutator.http import Endpoints
from claim_mutator.keeper import TemplateKeeper
from claim_mutator.metrics import Metrics
from claim_mutator.names import MEBIBYTE, MUTATOR
from claim_mutator.quota.cost import Demand, Sizes
from claim_mutator.quota.gate import Gate, World
from claim_mutator.quota.ledger import Ledger
from claim_mutator.quota.quotas import QuotaReporter, Quotas
from claim_mutator.settings import Settings
from claim_mutator.templates import SELECTOR, TemplateStore, demand, reduced
from claim_mutator.webhook import Webhook
from kube import paths
from kube.client import Client
from kube.configuration import Connection
from kube.events import Recorder
from kube.leader import Leader
from kube.reflector import Reflector
from kube.server import Limits, Server

_log = logging.getLogger(__name__)
_REVIEWS = Limits(body=8 << 20, connections=1024)  # the API server itself takes bodies of 3 MiB
_PROBES = Limits(body=0, connections=64)
_Certificate: TypeAlias = CertificateFiles | CredentialKeeper


class _Finished(Exception):  # noqa: N818 - ends the group when everything is done
    pass


async def run(settings: Settings, connection: Connection) -> None:
    """Serves until SIGTERM or SIGINT."""
    namespace = settings.namespace or os.environ.get("POD_NAMESPACE") or connection.namespace
    async with Client(connection, user_agent=f"{MUTATOR}/{_version()}") as client:
        await _Replica(settings, client, namespace).run()


class _Replica:
    def __init__(self, settings: Settings, client: Client, namespace: str) -> None:
        identity = os.environ.get("HOSTNAME") or socket.gethostname()
        self._settings = settings
        self._client = client
        self._metrics = Metrics(legacy=settings.legacy_metrics)
        self._facts = ClusterFacts(client, namespace)
        self._recorder = Recorder(client, component=MUTATOR, instance=identity)
        self._leader = Leader(client, namespace, settings.lease, f"{identity}-{os.getpid()}")
        self._templates = Reflector(
            client,
            paths.resource_claim_templates(),
            params=SELECTOR,
            on_change=lambda change: self._store.shown(change),  # noqa: PLW0108 - it comes below
            reduced=reduced(settings.mig_device_class),
        )
        self._store = TemplateStore(
            client, self._templates.objects, on_created=self._metrics.templates_created.inc
        )
        rules = settings.rules
        self._quotas = Quotas(client, rules.names, rules.memory_factor, self._metrics.gone)
        self._gate = Gate(
            client,
            Ledger(client, namespace, settings.lease),
            World(self._demand, self._sizes, settings.mig_device_class),
            quotas=self._quotas.of,
            observe=self._metrics.counted,
        )
        self._certificate = self._chosen_certificate(namespace)
        admission = Admission(
            rules,
            lambda: self._facts.cluster,
            templates=self._store,
            gate=self._gate,
            metrics=self._metrics,
            recorder=self._recorder,
        )
        self._webhook = Webhook(admission)
        self._metrics.templates.set_function(lambda: len(self._templates.objects))
        self._metrics.leads.set_function(lambda: self._leader.leads)

    async def run(self) -> None:
        settings = self._settings
        plain = Server(Endpoints(self._metrics, self._missing), settings.http_address, limits=_PROBES)
        secure = Server(
            self._webhook,
            settings.listen,
            self._certificate.context,
            limits=_REVIEWS,
            is_leaving=lambda: self._webhook.draining,
        )
        leaving = asyncio.create_task(_leave(settings.drain_seconds, self._webhook, secure, plain))
        try:
            async with asyncio.TaskGroup() as tasks:
                for name, task in self._tasks().items():
                    tasks.create_task(task, name=name)
                tasks.create_task(_serve(secure, self._certificate.loaded), name="webhook")
                tasks.create_task(_until_last(plain), name="endpoints")
        except* _Finished:
            _log.info("done")
        finally:
            leaving.cancel()
        await self._leader.release()

    def _tasks(self) -> dict[str, Coroutine[Any, Any, NoReturn]]:
        settings, leads = self._settings, lambda: self._leader.leads
        keeper = TemplateKeeper(
            self._client,
            self._templates.objects,
            period=settings.keeper_period,
            keep=settings.keep_seconds,
            leads=leads,
            on_removed=self._metrics.templates_removed.inc,
        )
        reporter = QuotaReporter(
            self._client,
            self._quotas,
            self._gate,
            self._recorder,
            leads=leads,
            period=settings.quota_period,
            observe=self._metrics.counted,
        )
        return {
            "facts": self._facts.run(),
            "templates": self._templates.run(),
            "quotas": self._quotas.reflector.run(),
            "certificate": self._certificate.run(),
            "events": self._recorder.run(),
            "leader": self._leader.run(),
            "unused templates": keeper.run(),
            "quota usage": reporter.run(),
        }

    def _chosen_certificate(self, namespace: str) -> _Certificate:
        settings = self._settings

        def on_loaded(expires: dt.datetime) -> None:
            self._metrics.certificate_expiry.set(expires.timestamp())

        if settings.tls_directory is not None:
            return CertificateFiles(
                settings.tls_directory, period=settings.certificate_period, on_loaded=on_loaded
            )
        return CredentialKeeper(
            self._client,
            namespace=namespace,
            secret=settings.tls_secret,
            service=settings.service_name,
            webhook=settings.webhook_name,
            period=settings.certificate_period,
            on_loaded=on_loaded,
        )

    def _missing(self) -> list[str]:
        """What this replica lacks to answer reviews."""
        listed = None if self._templates.has_synced else "the ResourceClaimTemplates are not listed yet"
        quotas = None if self._quotas.reflector.has_synced else "the ResourceQuotas are not listed yet"
        leaving = "this replica is leaving" if self._webhook.draining else None
        found = (self._facts.missing, listed, quotas, self._certificate.missing, leaving)
        return [reason for reason in found if reason]

    def _demand(self, namespace: str, name: str) -> Demand | None:
        return demand(self._templates.objects.get(f"{namespace}/{name}"))

    def _sizes(self) -> Sizes:
        cluster = self._facts.cluster
        return Sizes(
            tuple(size // MEBIBYTE for size in cluster.card_sizes),
            tuple(size // MEBIBYTE for size in cluster.instance_sizes),
        )


async def _leave(drain: float, webhook: Webhook, secure: Server, plain: Server) -> None:
    """After a signal: drains, then stops the webhook, then the probes; their end ends the process."""
    stopping = asyncio.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)
    await stopping.wait()
    _log.info("leaving: taking reviews for %g s more", drain)
    webhook.draining = True
    await asyncio.sleep(drain)
    secure.stop()
    await secure.ended.wait()
    plain.stop()


async def _until_last(plain: Server) -> None:
    """The endpoints are the last to stop, so their end is the end of everything."""
    _log.info("metrics and probes on %s", plain.address)
    await plain.run_until_stopped()
    raise _Finished


async def _serve(server: Server, has_certificate: asyncio.Event) -> None:
    """Takes reviews as soon as there is a certificate."""
    await has_certificate.wait()
    # What is there now stays: looking through it again and again would make some reviews wait for it.
    gc.collect()
    gc.freeze()
    _log.info("taking reviews on %s", server.address)
    await server.run_until_stopped()


def _version() -> str:
    try:
        return version("tessera-gpu")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"
