"""tessera-driver: puts the parts together and keeps them running.

One asyncio process. Both sockets are served first, GPU or not, so that Pods can always be torn down; whatever
takes time (the driver, the API server) is waited for by supervised tasks, and says in /readyz what it waits
for. A task that ends, for whatever reason, ends the process: Kubernetes starts it anew from what is on disk.
SIGTERM ends it within seconds, after the calls that are being answered; ResourceSlices stay.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.metadata
import logging
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NoReturn

import grpc
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.store import Store
from dra_driver import http, library, settings, sockets
from dra_driver.claims import fetch
from dra_driver.conditions import Condition, Conditions
from dra_driver.discovery import Discovery
from dra_driver.grants import GrantDirectories
from dra_driver.health import HealthService
from dra_driver.inventory import Inventory
from dra_driver.ledger import Ledger
from dra_driver.metrics import Figures, Metrics
from dra_driver.names import CDI_KIND, DRIVER, DeviceName
from dra_driver.node import Node
from dra_driver.nvml import SONAME, Nvml
from dra_driver.prepare import Preparer
from dra_driver.reconcile import Reconciler
from dra_driver.registration import Registration
from dra_driver.service import DraService
from dra_driver.settings import Settings, SettingsError
from dra_driver.slices.documents import device_lists
from dra_driver.slices.publisher import Publisher
from dra_driver.steps import Steps
from interposer.abi import library_path
from kube import configuration
from kube.client import Client

_log = logging.getLogger(__name__)
_DISTRIBUTION = "tessera-gpu"


class _TaskEndedError(Exception):
    """A task that should run for ever has returned."""


def main() -> None:
    """The console script. Exit status: 0 after SIGTERM, 1 after a failure, 2 for unusable settings."""
    try:
        chosen = settings.load(sys.argv[1:])
        connection = configuration.load(chosen.kubeconfig)
    except (SettingsError, configuration.ConfigurationError) as error:
        for line in str(error).splitlines():
            print(f"{settings.PROGRAM}: {line}", file=sys.stderr)
        sys.exit(2)
    logging.basicConfig(
        level=chosen.log_level.upper(),
        format="%(asctime)s %(levelname)-7s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    try:
        asyncio.run(run(chosen, connection))
    except OSError as error:
        # A directory that can't be written, an address in use: the sentence is all there is to know.
        _log.critical("ended: %s", error)
        sys.exit(1)
    except Exception:
        _log.critical("ended by a failure", exc_info=True)
        sys.exit(1)


async def run(chosen: Settings, connection: configuration.Connection) -> None:
    """Until SIGTERM or SIGINT. Raises what ended it otherwise."""
    stop = _signalled()
    release = _release()
    conditions = Conditions()
    metrics = Metrics(_registry())
    node = Node(chosen.node_name, chosen.scales)
    directories = GrantDirectories(chosen.run_dir)
    store = Store(chosen.cdi_root, CDI_KIND)
    driver = Driver(DriverRoot(PurePosixPath(chosen.driver_root), chosen.container_driver_root))
    ledger = Ledger(
        chosen.state_dir / "ledger", (await asyncio.to_thread(chosen.boot_id_file.read_text)).strip()
    )
    await asyncio.to_thread(_take_stock, ledger, directories, store, conditions)
    await asyncio.to_thread(_install_library, chosen, release, node, ledger, conditions)
    metrics.registry.register(
        Figures(release=release, node=node, ledger=ledger, directories=directories, conditions=conditions)
    )
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            Client(connection, user_agent=f"{settings.PROGRAM}/{release}")
        )
        preparer = Preparer(
            node=node,
            driver=driver,
            ledger=ledger,
            directories=directories,
            store=store,
            steps=Steps(took=metrics.step_took, clock=time.monotonic),
            fetch=partial(fetch, client),
        )
        reconciler = Reconciler(
            node=node.name,
            ledger=ledger,
            directories=directories,
            store=store,
            preparer=preparer,
            conditions=conditions,
            fetch=partial(fetch, client),
            count=metrics.reconciled,
            period=chosen.reconcile_period,
        )
        stack.push_async_callback(preparer.finish)
        publisher = Publisher(client=client, node=node.name, conditions=conditions, metrics=metrics)

        def found(inventory: Inventory | None) -> None:
            publisher.want(device_lists(inventory, node.scales) if inventory is not None else ((),))
            reconciler.found(inventory)

        discovery = Discovery(
            nvml=Nvml(library=partial(driver.library, SONAME), sys_root=chosen.sys_root),
            driver=driver,
            node=node,
            conditions=conditions,
            found=found,
            again=chosen.look_period,
        )
        listener = stack.enter_context(http.listen(*chosen.http_host_and_port))
        paths = chosen.sockets
        endpoints = http.Endpoints(metrics=metrics, conditions=conditions, sockets=paths)
        health = HealthService(node, partial(_devices_held, ledger))
        await stack.enter_async_context(_served(paths, DraService(preparer, metrics), health, conditions))
        gc.freeze()  # what start-up made stays; collections look at the rest alone
        await _until(
            stop,
            discovery=discovery.run(),
            publisher=publisher.run(),
            reconciler=reconciler.run(),
            http=http.serve(endpoints, listener),
        )


def _signalled() -> asyncio.Event:
    """Set by SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@contextlib.asynccontextmanager
async def _served(
    paths: sockets.Sockets, dra: DraService, health: HealthService, conditions: Conditions
) -> AsyncIterator[None]:
    """Both sockets, until the block ends. Raises OSError.

    The kubelet dials the DRA socket as soon as it has seen the other: so that one comes last, and goes first.
    """

    def serve(server: grpc.aio.Server) -> None:
        dra.serve(server)
        health.serve(server)

    registration = Registration(driver=DRIVER, endpoint=paths.dra, conditions=conditions)
    await asyncio.to_thread(sockets.sweep, paths, DRIVER)
    async with sockets.serving(paths.dra, serve), sockets.serving(paths.registration, registration.serve):
        try:
            yield
        finally:
            health.end()


async def _until(stop: asyncio.Event, **works: Coroutine[Any, Any, Any]) -> None:
    """Runs all of them side by side until `stop`; one that ends by itself ends everything."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_for_ever(name, work), name=name) for name, work in works.items()]
        await stop.wait()
        _log.info("told to stop")
        for task in running:
            task.cancel()


async def _for_ever(name: str, work: Coroutine[Any, Any, Any]) -> NoReturn:
    await work
    raise _TaskEndedError(f"{name} has ended")


def _devices_held(ledger: Ledger) -> set[DeviceName]:
    return {grant.device for entry in ledger.entries.values() for grant in entry.grants}


def _release() -> str:
    try:
        return importlib.metadata.version(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "0"  # run from a source tree that is not installed


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def _take_stock(ledger: Ledger, directories: GrantDirectories, store: Store, conditions: Conditions) -> None:
    """Reads the ledger and removes what is left of an earlier boot. Raises OSError without a ledger."""
    loaded = ledger.load()
    problems = [
        f"{path} is corrupt and set aside, its claim is not counted until it is made again"
        for path in loaded.set_aside
    ]
    problems += [f"{path} was written by a newer release, its claim is not counted" for path in loaded.newer]
    for entry in loaded.earlier_boot:
        try:
            store.remove(entry.uid)
            directories.remove(entry.uid)
            ledger.erase(entry.uid)
        except OSError as error:
            problems.append(f"claim {entry.uid} of an earlier boot can't be removed: {error}")
    if problems:
        conditions.fail(Condition.LEDGER, "; ".join(problems))
    else:
        dropped = f", {len(loaded.earlier_boot)} of an earlier boot dropped" if loaded.earlier_boot else ""
        conditions.hold(Condition.LEDGER, f"{len(ledger.entries)} claims at start{dropped}")
    store.sweep()


def _install_library(
    chosen: Settings, release: str, node: Node, ledger: Ledger, conditions: Conditions
) -> None:
    try:
        installed = library.install(library_path(), release, chosen.state_dir)
    except OSError as error:
        node.not_installed(f"the library can't be installed: {error}")
        conditions.fail(Condition.LIBRARY, f"the library can't be installed: {error}")
        return
    node.installed(installed)
    conditions.hold(Condition.LIBRARY, f"version {installed.version} is installed")
    in_use = {installed.version} | {entry.library for entry in ledger.entries.values() if entry.library}
    for version in library.remove_unused(chosen.state_dir, in_use):
        _log.info("library version %s, which no claim uses, is removed", version)
