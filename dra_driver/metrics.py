"""What Prometheus gets. Labels come from closed sets; their series exist from the start, so that rates do.

The figures of cards and grants are read when somebody asks, from the ledger and the usage files; `Figures`
collects them and is the only part that does IO, in the scraper's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dra_driver.conditions import Condition, Conditions
from dra_driver.grants import GrantDirectories
from dra_driver.ledger import Ledger, State
from dra_driver.node import Node
from dra_driver.reconcile import OUTCOMES as RECONCILE_ACTIONS
from dra_driver.steps import Step
from interposer.abi import AbiError

_log = logging.getLogger(__name__)
_STEP_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
OPERATIONS = ("prepare", "unprepare")
OUTCOMES = ("success", "retryable", "permanent", "internal")
SLICE_VERBS = ("create", "update", "delete")


class Metrics:
    """All series of the agent that count events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._steps = Histogram(
            "tessera_prepare_seconds",
            "Time of each step of preparing and unpreparing a claim.",
            ["step"],
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self._claims = Counter(
            "tessera_claim_operations",
            "Claims that the kubelet asked to prepare or unprepare, by outcome.",
            ["operation", "outcome"],
            registry=registry,
        )
        self._slice_writes = Counter(
            "tessera_slice_writes",
            "ResourceSlices written to the API server.",
            ["verb"],
            registry=registry,
        )
        self._slice_failures = Counter(
            "tessera_slice_write_failures", "Publishing attempts that failed.", registry=registry
        )
        self._reconciled = Counter(
            "tessera_reconcile",
            "What was done to claims that were not as they should be, by action.",
            ["action"],
            registry=registry,
        )
        for action in RECONCILE_ACTIONS:
            self._reconciled.labels(action)
        for step in Step:
            self._steps.labels(step.value)
        for operation in OPERATIONS:
            for outcome in OUTCOMES:
                self._claims.labels(operation, outcome)
        for verb in SLICE_VERBS:
            self._slice_writes.labels(verb)

    def step_took(self, step: Step, seconds: float) -> None:
        self._steps.labels(step.value).observe(seconds)

    def claim_done(self, operation: str, outcome: str) -> None:
        self._claims.labels(operation, outcome).inc()

    def reconciled(self, action: str) -> None:
        self._reconciled.labels(action).inc()

    def slice_written(self, verb: str) -> None:
        self._slice_writes.labels(verb).inc()

    def slice_write_failed(self) -> None:
        self._slice_failures.inc()

    def render(self) -> bytes:
        """The text that Prometheus reads. Does the IO of `Figures`."""
        return generate_latest(self.registry)


class Figures(Collector):
    """State as gauges: conditions, cards, prepared claims, and each grant's limit and use."""

    def __init__(
        self,
        *,
        release: str,
        node: Node,
        ledger: Ledger,
        directories: GrantDirectories,
        conditions: Conditions,
    ) -> None:
        self._release = release
        self._node = node
        self._ledger = ledger
        self._directories = directories
        self._conditions = conditions

    def describe(self) -> Iterator[Metric]:
        """Nothing ahead of time, so that registering does no IO."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        build = InfoMetricFamily("tessera_build", "What is running.", labels=("version", "library"))
        build.add_metric((), {"version": self._release, "library": self._node.library_version or ""})
        yield build
        conditions = GaugeMetricFamily(
            "tessera_condition",
            "1 where a condition of readiness holds; /readyz has the words.",
            labels=("condition",),
        )
        for condition in Condition:
            conditions.add_metric((condition.value,), float(self._conditions[condition].holds))
        yield conditions
        yield from self._cards()
        yield from self._claims()

    def _cards(self) -> Iterator[Metric]:
        memory = GaugeMetricFamily("tessera_card_memory_bytes", "Memory of a card.", labels=("uuid",))
        cards = self._node.cards.cards if self._node.cards is not None else ()
        for card in cards:
            memory.add_metric((card.uuid,), card.memory_bytes)
        yield memory

    def _claims(self) -> Iterator[Metric]:
        entries = tuple(self._ledger.entries.values())
        prepared = GaugeMetricFamily("tessera_claims_prepared", "Claims prepared on this node.")
        prepared.add_metric((), sum(entry.state is State.PREPARED for entry in entries))
        yield prepared
        labels = ("namespace", "claim", "uuid")
        limit = GaugeMetricFamily(
            "tessera_grant_memory_limit_bytes", "Memory a claim may use of a card.", labels=labels
        )
        used = GaugeMetricFamily(
            "tessera_grant_memory_used_bytes", "Memory a claim uses of a card.", labels=labels
        )
        limits: dict[tuple[str, str, str], int] = {}
        uses: dict[tuple[str, str, str], int] = {}
        for entry in entries:
            for grant in entry.grants:
                if not grant.limited:
                    continue
                # Two shares of one card in one claim are one series: the claim's.
                key = (entry.namespace, entry.name, grant.uuid)
                limits[key] = limits.get(key, 0) + grant.memory
                try:
                    usage = self._directories.read_usage(entry.uid, grant.name)
                except (OSError, AbiError) as error:
                    _log.debug("usage of %s: %s", grant.name, error)
                    continue
                uses[key] = uses.get(key, 0) + usage.memory_bytes
        for key, number in limits.items():
            limit.add_metric(key, number)
        for key, number in uses.items():
            used.add_metric(key, number)
        yield limit
        yield used
