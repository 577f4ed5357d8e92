"""What the agent's parts share, made from the settings and put in order before anything is served."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.store import Store
from cdi.toolkit import Toolkit
from dra_driver.claims import selinux, stock
from dra_driver.claims.base_edits import BaseEdits, CdiMode
from dra_driver.claims.claim_pods import ClaimPods
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.steps import Steps
from dra_driver.conditions import Conditions
from dra_driver.configuration.settings import Settings
from dra_driver.kubelet import lead, node_lock
from dra_driver.kubelet.lead import Lead
from dra_driver.kubelet.node_lock import NodeLock
from dra_driver.metrics import exposition, grant_figures, legacy_metrics
from dra_driver.metrics.counters import Metrics
from dra_driver.metrics.figures import Figures
from dra_driver.names import CDI_KIND, DRIVER
from dra_driver.node import Node

_DISTRIBUTION = "tessera-gpu"


@dataclass(frozen=True)
class Base:
    """What the parts share: what was set, what is on disk, and where the state of things is said."""

    settings: Settings
    release: str
    conditions: Conditions
    metrics: Metrics
    node: Node
    driver: Driver
    edits: BaseEdits
    ledger: Ledger
    directories: GrantDirectories
    store: Store
    lock: NodeLock
    lead: Lead
    steps: Steps


async def make(settings: Settings, steps: Callable[[Metrics], Steps]) -> Base:
    """Reads what is on disk and puts it in order. Raises OSError, ClaimError where another agent hangs."""
    boot_id = (await asyncio.to_thread(settings.boot_id_file.read_text)).strip()
    driver = Driver(DriverRoot(PurePosixPath(settings.driver_root), settings.container_driver_root))
    label = selinux.label_of(settings.sys_root)
    directories = GrantDirectories(settings.run_dir, label)
    store = Store(settings.cdi_root, CDI_KIND)
    ledger = Ledger(
        settings.state_dir / "ledger",
        boot_id,
        has_files=lambda uid: directories.exists(uid) or store.path(uid).exists(),
    )
    metrics = Metrics(_registry())
    own = settings.sockets.dra
    await asyncio.to_thread(own.parent.mkdir, mode=0o750, parents=True, exist_ok=True)
    base = Base(
        settings=settings,
        release=_release(),
        conditions=Conditions(),
        metrics=metrics,
        node=Node(
            settings.node_name, settings.rules, why_no_rules="the node configuration has not been read yet"
        ),
        driver=driver,
        edits=_edits(settings, driver),
        ledger=ledger,
        directories=directories,
        store=store,
        lock=NodeLock(own.with_name(node_lock.NAME), ledger),
        lead=Lead(own.with_name(lead.NAME), own),
        steps=steps(metrics),
    )
    async with base.lock.held():
        await asyncio.to_thread(stock.take_stock, ledger, directories, store, base.conditions)
        await asyncio.to_thread(
            stock.install_library, settings.state_dir, base.release, base.node, base.conditions, label
        )
    base.metrics.registry.register(
        Figures(
            release=base.release,
            node=base.node,
            ledger=base.ledger,
            conditions=base.conditions,
        )
    )
    return base


def rendering(base: Base, pods: ClaimPods) -> Callable[[], bytes]:
    """What /metrics gives; called in a thread, since it reads the usage files."""
    node = base.node

    def render() -> bytes:
        grants = tuple(grant_figures.uses(tuple(base.ledger.entries.values()), base.directories))
        tables = [*grant_figures.tables(grants)]
        if base.settings.legacy_metrics:
            cards = node.cards.published if node.cards is not None else ()
            tables += legacy_metrics.card_tables(node.name, cards, node.scales, grants)
            tables += legacy_metrics.grant_tables(node.name, grants, pods.of)
        return base.metrics.render() + exposition.text(tables)

    return render


def _edits(settings: Settings, driver: Driver) -> BaseEdits:
    directories = (settings.cdi_static_root, settings.cdi_root)  # the second counts more
    documents = Toolkit(directories, root=driver.root, nodes=driver.nodes, ours=DRIVER)
    return BaseEdits(driver, documents, CdiMode(settings.cdi_mode))


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
