"""What a Pod will have to wait for, as far as it can be told from the cards that there are now. Pure.

The scheduler only ever says that it cannot allocate; what is asked for, and what there is, is said here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from claim_mutator import selection
from claim_mutator.cluster import Cluster
from claim_mutator.container import Percent, Reading, Request
from claim_mutator.metadata import MODE, USE_TYPE, USE_UUID
from claim_mutator.names import MAX_UNLIKE, MEBIBYTE, Role
from claim_mutator.refusal import Notice, annotation
from claim_mutator.rules import Rules
from claim_mutator.selection import Selection


def notices(asking: Sequence[Reading], chosen: Selection, rules: Rules, cluster: Cluster) -> Iterator[Notice]:
    """asking: readings that have a request. cluster: as far as the Pod's selection leaves it."""
    sizes = (
        cluster.largest_card if chosen.cards else 0,
        *(cluster.instance_sizes if chosen.instances else ()),
    )
    largest = max(sizes, default=0) // MEBIBYTE
    what = "card of the cluster" if chosen.cards else "MIG instance of the cluster"
    if cluster.is_narrowed:
        what = "card that its annotations leave"
    of_these = " of those that its annotations leave" if cluster.is_narrowed else ""
    for reading in asking:
        if reading.request is None:
            continue
        count, memory = reading.request.count, reading.request.memory
        if isinstance(memory, int) and 0 < largest < memory:
            key = reading.key(Role.MEMORY, rules)
            text = f"{key} {memory} is more than any {what} has now ({largest})"
            yield _waits(reading, reading.limit(key), text)
        key = reading.key(Role.COUNT, rules)
        if chosen.cards and 0 < cluster.most_cards < count:
            text = (
                f"{key} {count} means {count} different cards, no node has more than {cluster.most_cards}"
                f"{of_these} now"
            )
            yield _waits(reading, reading.limit(key), text)
        elif chosen.uuids and len(set(chosen.uuids)) < count and not chosen.instances:
            text = (
                f"{key} {count} means {count} different cards, and {USE_UUID} lists {len(set(chosen.uuids))}"
            )
            yield _waits(reading, annotation(USE_UUID), text)
        elif _needs_alike(reading.request, chosen, cluster):
            key = reading.key(Role.PERCENTAGE, rules)
            text = (
                f"{key} of {count} cards means cards of one size, and no node has more than"
                f" {cluster.most_alike} such{of_these} now ({rules.names.preferred(Role.MEMORY)} takes any)"
            )
            yield _waits(reading, reading.limit(key), text)
    if chosen.instances and not chosen.cards and cluster.card_sizes and not cluster.instance_sizes:
        text = "the Pod asks for MIG instances, and the cluster has none now: the Pod will wait"
        yield Notice(annotation(MODE), text)
    unknown = list(_unknown_cards(chosen, cluster))
    yield from unknown
    if not unknown and chosen.cards and not chosen.instances and _leaves_none(chosen, cluster):
        text = "the Pod's annotations together leave no card of the cluster: the Pod will wait"
        yield Notice(("metadata", "annotations"), text)


def _needs_alike(request: Request, chosen: Selection, cluster: Cluster) -> bool:
    """Whether its cards have to be of one size, and no node has so many."""
    count, is_share = request.count, isinstance(request.memory, Percent)
    can_differ = count <= MAX_UNLIKE or not cluster.counts_are_distinct
    return chosen.cards and is_share and not can_differ and cluster.lacks_alike(count)


def _leaves_none(chosen: Selection, cluster: Cluster) -> bool:
    """Where some were left, the cluster would be narrowed to them."""
    return bool(cluster.cards and chosen.selectors) and not cluster.is_narrowed


def _unknown_cards(chosen: Selection, cluster: Cluster) -> Iterator[Notice]:
    if cluster.uuids and chosen.uuids and cluster.uuids.isdisjoint(chosen.uuids):
        listed = ", ".join(chosen.uuids)
        text = f"annotation {USE_UUID}: {listed} is no card of the cluster now: the Pod will wait"
        yield Notice(annotation(USE_UUID), text)
    if not cluster.products or not chosen.types:
        return
    if not any(selection.matches(product, term) for product in cluster.products for term in chosen.types):
        there = ", ".join(sorted(cluster.products)[:8])
        text = (
            f"annotation {USE_TYPE}: {', '.join(chosen.types)} is in no card's name now (there are: {there}):"
            " the Pod will wait"
        )
        yield Notice(annotation(USE_TYPE), text)


def _waits(reading: Reading, pointer: tuple[str | int, ...], text: str) -> Notice:
    return Notice(pointer, f"container {reading.name!r}: {text}: the Pod will wait")
