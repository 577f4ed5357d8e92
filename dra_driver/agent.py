"""Puts the agent's parts together and keeps them running.

One asyncio process. Both sockets are served first, GPU or not, so that Pods can always be torn down; whatever
takes time (the driver, the API server) is waited for by supervised tasks, and says in /readyz what it waits
for. SIGTERM ends it within seconds, after the calls that are being answered; ResourceSlices stay.

Each part is made by a function below, from `Base` and the parts that it needs.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from functools import partial
from typing import Any

import grpc

from dra_driver.announcements import Announcements
from dra_driver.base import Base, make, rendering
from dra_driver.cards.card_health import CardHealth, life_of_driver
from dra_driver.cards.discovery import Discovery
from dra_driver.cards.inventory import Inventory
from dra_driver.cards.nvml import SONAME, Nvml
from dra_driver.cards.placement import Spread
from dra_driver.cards.remembered_cards import RememberedCards
from dra_driver.cards.sysfs import driven
from dra_driver.cards.xid_files import XidFiles
from dra_driver.claims import allocation, stock
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.claim_pods import ClaimPods
from dra_driver.claims.claim_status import ClaimStatus
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.metadata import MetadataFiles
from dra_driver.claims.prepare import Fetch, Preparer
from dra_driver.claims.reconcile import Reconciler
from dra_driver.claims.steps import Steps
from dra_driver.conditions import Condition
from dra_driver.configuration.node_configuration_file import NodeConfigurationFile, node_labels
from dra_driver.configuration.settings import PROGRAM, Settings
from dra_driver.kubelet import sockets
from dra_driver.kubelet.device_plugins import DevicePlugins
from dra_driver.kubelet.health import DeviceHealth, HealthService, assess
from dra_driver.kubelet.registration import Registration
from dra_driver.kubelet.service import DraService
from dra_driver.metrics.counters import Metrics
from dra_driver.monitor.monitor import Monitor
from dra_driver.names import DRIVER, ClaimUID, DeviceName
from dra_driver.process import http, memory, tasks
from dra_driver.process.dump import Dump, Parts
from dra_driver.process.signals import Signals
from dra_driver.slices.documents import device_lists
from dra_driver.slices.publisher import Publisher
from kube.client import Client
from kube.configuration import Connection
from kube.events import Recorder
from kube.server import Limits, Server

_LAST_WORK = 1.0  # seconds for what still changes the node when the sockets are gone
_HTTP = Limits(body=0, connections=64)


def timed_steps(metrics: Metrics) -> Steps:
    """The steps of Prepare, timed."""
    return Steps(took=metrics.step_took, clock=time.monotonic)


async def run(
    settings: Settings, connection: Connection, steps: Callable[[Metrics], Steps] = timed_steps
) -> None:
    """Until SIGTERM or SIGINT. Raises what ended it otherwise. `steps`: tests fail, or kill, between them."""
    told: dict[str, Callable[[], Any]] = {}
    stop = Signals(Dump(told, settings.run_dir, asyncio.get_running_loop())).stop
    base = await make(settings, steps)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(connection, user_agent=f"{PROGRAM}/{base.release}", observe=base.metrics.api_called)
        )
        recorder = Recorder(client, component=DRIVER, instance=base.node.name)
        announcements = Announcements(recorder, base.node.name)
        base.conditions.listen(announcements.condition)
        claim_status = _claim_status(base, client, announcements)
        pods = ClaimPods(lambda: base.ledger.entries)
        seen = (claim_status.seen, pods.saw)
        preparer = _preparer(base, _fetch(client, seen, allocation.PATIENCE))
        stack.push_async_callback(preparer.tasks.finish, _LAST_WORK)
        reconciler = _reconciler(base, client, _fetch(client, seen), preparer)
        publisher = _publisher(base, client)
        configuration = _configuration(base, client)
        plugins, spread, publish = _slices(base, client, publisher)
        card_health = _card_health(base)
        base.node.listen(partial(announcements.cards, base.node))
        await card_health.recall()
        discovery = _discovery(base, card_health, publish, reconciler)
        endpoints = http.Endpoints(
            render=rendering(base, pods), conditions=base.conditions, sockets=settings.sockets
        )
        server = Server(endpoints, settings.http_address, limits=_HTTP)
        health = HealthService(base.node, partial(_devices_held, base.ledger))
        dra = DraService(preparer, base.metrics, announcements.refused)
        await stack.enter_async_context(_served(base, preparer, dra, health))
        told |= _told(base, preparer, publisher, recorder, claim_status)
        gc.freeze()  # what start-up made stays; collections look at the rest alone
        await tasks.until(
            stop,
            {
                "discovery": discovery.run(),
                "card-health": card_health.run(),
                "publisher": publisher.run(),
                "configuration": configuration(),
                "device-plugins": plugins.run(),
                "spread": spread.run(),
                "reconciler": reconciler.run(),
                "events": recorder.run(),
                "claim-status": claim_status.run(),
                "http": server.run_until_stopped(),
                "monitor": _monitor(base).run(),
                "memory": memory.give_back(lambda: preparer.tasks.begun, lambda: preparer.tasks.is_idle),
            },
        )


def _claim_status(base: Base, client: Client, announcements: Announcements) -> ClaimStatus:
    node = base.node

    def health(device: DeviceName) -> DeviceHealth:
        found = assess(node.cards, node.silence, (device,), node.ailments)
        return next(one for one in found if one.device == device)

    status = ClaimStatus(
        client,
        node=node.name,
        entries=lambda: base.ledger.entries,
        health=health,
        told=announcements.claim_status_not_written,
        is_wanted=base.settings.claim_status,
    )
    node.listen(status.health_changed)
    return status


def _fetch(
    client: Client, seen: Iterable[Callable[[ClaimRef, dict[str, Any]], None]], patience: float = 0.0
) -> Fetch:
    """Reads a claim, for whatever purpose. `seen` are told: what else is to be known of it costs no read."""

    async def fetch_and_tell(ref: ClaimRef, at_least: str | None = None, /) -> dict[str, Any]:
        raw = await allocation.fetch(client, ref, at_least, patience=patience)
        for each in seen:
            each(ref, raw)
        return raw

    return fetch_and_tell


def _metadata(base: Base) -> MetadataFiles:
    """Files that say of each device what its slice does."""
    known: tuple[object, object, dict[DeviceName, Any]] = (None, None, {})

    def attributes() -> dict[DeviceName, Any]:
        nonlocal known
        inventory, scales = base.node.cards, base.node.scales
        if inventory is not None and (known[0] is not inventory or known[1] is not scales):
            lists = device_lists(inventory, scales)
            found = {device["name"]: device["attributes"] for devices in lists for device in devices}
            known = (inventory, scales, found)
        return known[2]

    return MetadataFiles(base.directories, attributes if base.settings.device_metadata else None)


def _preparer(base: Base, fetch: Fetch) -> Preparer:
    return Preparer(
        node=base.node,
        base=base.edits,
        ledger=base.ledger,
        directories=base.directories,
        store=base.store,
        steps=base.steps,
        lock=base.lock,
        fetch=fetch,
        metadata=_metadata(base),
    )


def _reconciler(base: Base, client: Client, fetch: Fetch, preparer: Preparer) -> Reconciler:
    return Reconciler(
        node=base.node.name,
        ledger=base.ledger,
        directories=base.directories,
        store=base.store,
        preparer=preparer,
        lock=base.lock,
        lead=base.lead,
        conditions=base.conditions,
        fetch=fetch,
        search=partial(allocation.search, client),
        tidy=partial(stock.tidy_library, base.settings.state_dir, base.node, base.ledger),
        count=base.metrics.reconciled,
        period=base.settings.reconcile_period,
    )


def _monitor(base: Base) -> Monitor:
    return Monitor(
        entries=lambda: base.ledger.entries,
        directories=base.directories,
        leads=base.lead.holds,
        wrote=base.metrics.terms_written,
    )


def _publisher(base: Base, client: Client) -> Publisher:
    publisher = Publisher(
        client=client,
        node=base.node.name,
        conditions=base.conditions,
        metrics=base.metrics,
        leads=base.lead.holds,
    )
    base.lead.listen(publisher.look)
    return publisher


def _configuration(base: Base, client: Client) -> Callable[[], Coroutine[Any, Any, Any]]:
    """What keeps the node's rules up to date; the rules hold already where they ask nobody but the file."""
    path = base.settings.node_configuration
    if path is None:
        base.node.configure(base.node.rules)
        base.conditions.hold(Condition.CONFIGURATION, "no node configuration is set: the settings hold")
        return asyncio.Event().wait  # for ever
    file = NodeConfigurationFile(
        path=path,
        node=base.node,
        defaults=base.settings.rules,
        labels=partial(node_labels, client, base.node.name),
        conditions=base.conditions,
        loaded=base.metrics.configuration_loaded,
        labels_period=base.settings.look_period,
    )
    file.start()
    return file.run


def _slices(
    base: Base, client: Client, publisher: Publisher
) -> tuple[DevicePlugins, Spread, Callable[[], None]]:
    """Who looks for others, the keeper of the devices' order, and what publishes all that is known by now."""

    def publish() -> None:
        node = base.node
        inventory = node.cards
        if node.why_no_rules is not None or not plugins.are_known:
            return
        if inventory is not None:
            publisher.want(device_lists(inventory, node.scales, order=spread.order(), taints=node.taints))
        elif node.was_asked:
            publisher.want(((),))

    held = partial(base.ledger.held_by_others, ClaimUID(""))  # by all
    spread = Spread(node=base.node, held=held, changed=publish)
    plugins = DevicePlugins(client, node=base.node, conditions=base.conditions, first_known=publish)
    base.node.listen(publish)
    return plugins, spread, publish


def _card_health(base: Base) -> CardHealth:
    settings, boot_id = base.settings, base.ledger.boot_id
    return CardHealth(
        node=base.node,
        cards=RememberedCards(settings.state_dir / "cards.json", boot_id),
        files=XidFiles(settings.state_dir / "xids"),
        life=partial(life_of_driver, boot_id, settings.sys_root),
        driven=partial(driven, settings.sys_root),
        ignored=settings.ignored_xids,
        count=base.metrics.xid,
    )


def _discovery(
    base: Base, card_health: CardHealth, publish: Callable[[], None], reconciler: Reconciler
) -> Discovery:
    def found(inventory: Inventory | None) -> None:
        publish()
        reconciler.found(inventory)

    return Discovery(
        nvml=Nvml(
            library=partial(base.driver.library, SONAME),
            sys_root=base.settings.sys_root,
            took=base.metrics.nvml_took,
        ),
        base=base.edits,
        node=base.node,
        conditions=base.conditions,
        health=card_health,
        found=found,
        again=base.settings.look_period,
    )


@contextlib.asynccontextmanager
async def _served(
    base: Base, preparer: Preparer, dra: DraService, health: HealthService
) -> AsyncIterator[None]:
    """Both sockets, until the block ends. Raises OSError.

    The kubelet dials the DRA socket as soon as it has seen the other: so that one comes last, and goes first.
    """

    def serve(server: grpc.aio.Server) -> None:
        dra.serve(server)
        health.serve(server)

    paths = base.settings.sockets
    registration = Registration(
        driver=DRIVER, endpoint=paths.dra, conditions=base.conditions, registered=base.lead.take
    )
    await asyncio.to_thread(sockets.sweep, paths, DRIVER)
    async with sockets.serving(paths.dra, serve), sockets.serving(paths.registration, registration.serve):
        try:
            yield
        finally:
            health.end()
            preparer.tasks.stop()


def _told(
    base: Base, preparer: Preparer, publisher: Publisher, recorder: Recorder, status: ClaimStatus
) -> Parts:
    """What SIGUSR1 writes down."""
    node, ledger = base.node, base.ledger
    return {
        "release": lambda: base.release,
        "leads": base.lead.holds,
        "settings": lambda: dataclasses.asdict(base.settings),
        "conditions": base.conditions.describe,
        "node": lambda: {
            "inventory": node.cards,
            "silence": node.silence,
            "ailments": node.ailments,
            "taints": node.taints,
            "rules": node.rules,
            "library": node.library_version,
        },
        "ledger": lambda: {"entries": ledger.entries, "uncounted": ledger.uncounted},
        "claimsInHand": lambda: preparer.tasks.in_hand,
        "slices": lambda: publisher.state,
        "eventsToWrite": lambda: recorder.pending,
        "claimStatusesToWrite": lambda: status.pending,
    }


def _devices_held(ledger: Ledger) -> set[DeviceName]:
    return {grant.device for entry in ledger.entries.values() for grant in entry.grants}
