"""`tessera-mutator`: one asyncio process, supervised tasks. A task that dies ends the process with an error.

SIGTERM: not ready any more, but reviews are still taken for a while (the API server learns of it later), then
those in flight are answered, then exit 0.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from pydantic import ValidationError

from claim_mutator.admission import Admission
from claim_mutator.credentials import CredentialKeeper
from claim_mutator.facts import ClusterFacts, UnsupportedServer
from claim_mutator.http import Endpoints
from claim_mutator.keeper import TemplateKeeper
from claim_mutator.metrics import Metrics
from claim_mutator.names import MUTATOR
from claim_mutator.server import Server, Webhook
from claim_mutator.settings import Settings
from claim_mutator.templates import SELECTOR, TemplateStore
from kube import configuration, paths
from kube.client import Client
from kube.configuration import ConfigurationError, Connection
from kube.reflector import Reflector

_log = logging.getLogger(__name__)


class _Finished(Exception):  # noqa: N818 - ends the group when everything is done
    pass


def main() -> None:
    """Exit status 0 after SIGTERM, 1 when something went wrong, 2 for bad settings."""
    try:
        settings = Settings()
    except ValidationError as error:
        for line in _mistakes(error):
            print(line, file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(
        level=settings.log_level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    reasons: list[BaseException] = []
    try:
        asyncio.run(run(settings, configuration.load(settings.kubeconfig)))
    except* (ConfigurationError, UnsupportedServer, OSError) as group:
        reasons += _leaves(group)
    # Not in the except* above: what is raised there becomes one more member of the group (Python 3.11.2).
    for reason in reasons:
        _log.critical("%s", reason)
    if reasons:
        sys.exit(1)


async def run(settings: Settings, connection: Connection) -> None:
    """Serves until SIGTERM or SIGINT."""
    namespace = settings.namespace or os.environ.get("POD_NAMESPACE") or connection.namespace
    metrics = Metrics()
    async with Client(connection, user_agent=f"{MUTATOR}/{_version()}") as client:
        facts = ClusterFacts(client, settings.device_class)
        templates = Reflector(client, paths.resource_claim_templates(), params=SELECTOR)
        metrics.templates.set_function(lambda: len(templates.objects))
        keeper = TemplateKeeper(
            client, templates.objects, period=settings.keeper_period, keep=settings.keep_seconds
        )
        store = TemplateStore(client, templates.objects, on_created=metrics.templates_created.inc)
        credentials = CredentialKeeper(
            client,
            namespace=namespace,
            secret=settings.tls_secret,
            service=settings.service_name,
            webhook=settings.webhook_name,
            period=settings.certificate_period,
            on_loaded=lambda expires: metrics.certificate_expiry.set(expires.timestamp()),
        )
        webhook = Webhook(Admission(settings.rules, lambda: facts.cluster, store, metrics))

        def missing() -> list[str]:
            listed = None if templates.has_synced else "the ResourceClaimTemplates are not listed yet"
            leaving = "this replica is leaving" if webhook.draining else None
            return [reason for reason in (facts.missing, listed, credentials.missing, leaving) if reason]

        plain = Server(Endpoints(metrics, missing), settings.http_address)
        secure = Server(webhook, settings.listen, credentials.context)
        leaving = asyncio.create_task(_leave(settings.drain_seconds, webhook, secure, plain))
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(facts.run(), name="facts")
                tasks.create_task(templates.run(), name="templates")
                tasks.create_task(credentials.run(), name="credentials")
                tasks.create_task(keeper.run(), name="unused templates")
                tasks.create_task(_serve(secure, credentials), name="webhook")
                tasks.create_task(_until_last(plain), name="endpoints")
        except* _Finished:
            _log.info("done")
        finally:
            leaving.cancel()


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


async def _serve(server: Server, credentials: CredentialKeeper) -> None:
    """Takes reviews as soon as there is a certificate."""
    await credentials.loaded.wait()
    _log.info("taking reviews on %s", server.address)
    await server.run_until_stopped()


def _version() -> str:
    try:
        return version("tessera-gpu")
    except PackageNotFoundError:  # run from a checkout that is not installed
        return "unknown"


def _leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _mistakes(error: ValidationError) -> Iterator[str]:
    for mistake in error.errors():
        name = ".".join(map(str, mistake["loc"][:1]))
        flag = f"--{name.replace('_', '-')} (TESSERA_{name.upper()})" if name else "settings"
        given = f", not {mistake['input']!r}" if name else ""
        yield f"{MUTATOR}: {flag}: {mistake['msg'].removeprefix('Value error, ')}{given}"


if __name__ == "__main__":
    main()
