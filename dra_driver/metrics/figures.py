"""What there is at this moment, as gauges: conditions, cards, claims.

Collected when somebody asks, in the scraper's thread, from values that the event loop replaces and never
changes. What there is of each grant is in grant_figures.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from dra_driver.cards.capacity import NOTHING, Amounts, capacity_of
from dra_driver.cards.inventory import Card
from dra_driver.cards.taints import KEYS
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.ledger_file import State
from dra_driver.conditions import Condition, Conditions
from dra_driver.kubelet.health import Health, assess
from dra_driver.names import ClaimUID
from dra_driver.node import Node

_AMOUNTS: tuple[tuple[str, str, Callable[[Amounts], int]], ...] = (
    ("memory_bytes", "bytes", lambda amounts: amounts.memory),
    ("cores", "percent of one card", lambda amounts: amounts.cores),
    ("shares", "per mille of its share slots", lambda amounts: amounts.shares),
)


class Figures(Collector):
    """Registered once; asked with each scrape."""

    def __init__(
        self,
        *,
        release: str,
        node: Node,
        ledger: Ledger,
        conditions: Conditions,
    ) -> None:
        self._release = release
        self._node = node
        self._ledger = ledger
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
        healthy = GaugeMetricFamily(
            "tessera_card_healthy",
            "1 where nothing is known against a card; 0 also where the driver does not answer.",
            labels=("uuid",),
        )
        tainted = GaugeMetricFamily(
            "tessera_card_tainted", "1 where a card's device has a taint, by key.", labels=("uuid", "key")
        )
        inventory, tainting = self._node.cards, self._node.taints
        healths = {
            one.device: one.health
            for one in assess(inventory, self._node.silence, ailments=self._node.ailments)
        }
        known = (*inventory.cards, *(lost.card for lost in inventory.lost)) if inventory is not None else ()
        for card in known:
            memory.add_metric((card.uuid,), card.memory_bytes)
            healthy.add_metric((card.uuid,), float(healths.get(card.name) is Health.HEALTHY))
            keys = {taint.key for taint in tainting.get(card.name, ())}
            for key in KEYS:
                tainted.add_metric((card.uuid, key), float(key in keys))
        yield from (memory, healthy, tainted)
        yield from self._amounts(tuple(known))

    def _amounts(self, cards: tuple[Card, ...]) -> Iterator[Metric]:
        """Published and held, of each card."""
        held = self._ledger.held_by_others(ClaimUID(""))  # by all
        scales = self._node.scales
        for name, unit, amount in _AMOUNTS:
            published = GaugeMetricFamily(
                f"tessera_card_published_{name}",
                f"What a card has to give to claims, in {unit}.",
                labels=("uuid",),
            )
            taken = GaugeMetricFamily(
                f"tessera_card_held_{name}",
                f"What claims on this node hold of a card, in {unit}.",
                labels=("uuid",),
            )
            for card in cards:
                published.add_metric((card.uuid,), amount(capacity_of(card, scales)))
                taken.add_metric((card.uuid,), amount(held.get(card.name, NOTHING)))
            yield from (published, taken)

    def _claims(self) -> Iterator[Metric]:
        entries = tuple(self._ledger.entries.values())
        prepared = GaugeMetricFamily("tessera_claims_prepared", "Claims prepared on this node.")
        prepared.add_metric((), sum(entry.state is State.PREPARED for entry in entries))
        yield prepared
        uncounted = GaugeMetricFamily(
            "tessera_claims_uncounted",
            "Claims whose ledger entry can't be read, so that nobody knows what they hold.",
        )
        uncounted.add_metric((), len(self._ledger.uncounted))
        yield uncounted
