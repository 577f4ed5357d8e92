"""HAMi's metrics (`hami_...`), for dashboards and alerts that people have: the same names, labels and units.

What HAMi's scheduler and its monitor told of a node, as far as the agent knows it. `container` and
`container_index` are empty: a claim is a Pod's, and its containers share the budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dra_driver.cards.capacity import NOTHING, Amounts, Scales, capacity_of
from dra_driver.cards.inventory import Card
from dra_driver.metrics.exposition import Table
from dra_driver.metrics.grant_figures import GrantUse
from dra_driver.names import MEBIBYTE, ClaimUID, DeviceName

_ZONE = "vGPU"  # HAMi's registry puts it on every series
_CARD = ("zone", "node", "device_uuid", "device_index", "device_type")
_OVERVIEW = (*_CARD, "device_cores", "shared_containers", "device_memory_limit")
_ALLOCATED = ("zone", "namespace", "node", "pod", "container_index", "device_uuid")
_USED = ("zone", "namespace", "pod", "container", "vdevice_index", "device_uuid")


def card_tables(
    node: str, cards: Iterable[Card], scales: Scales, grants: Iterable[GrantUse]
) -> Iterator[Table]:
    """What HAMi's scheduler told of cards: what they have, and what of it is given away."""
    held: dict[DeviceName, Amounts] = {}
    sharers: dict[DeviceName, int] = {}
    for one in grants:
        device = one.grant.device
        held[device] = held.get(device, NOTHING) + one.grant.held
        sharers[device] = sharers.get(device, 0) + 1
    known = [(card, capacity_of(card, scales), held.get(card.name, NOTHING)) for card in cards]

    def table(name: str, words: str, number: Callable[[Card, Amounts, Amounts], float]) -> Table:
        rows = [(_of_card(node, card), number(card, there, taken)) for card, there, taken in known]
        return Table(f"hami_{name}", words, _CARD, rows)

    yield table("gpu_memory_limit_bytes", "Memory of a card.", lambda _card, there, _: there.memory)
    yield table("gpu_core_limit_ratio", "Compute of a card, in percent.", lambda _card, there, _: there.cores)
    yield table(
        "gpu_core_allocated_ratio",
        "Compute given away, in percent.",
        lambda _card, _there, taken: taken.cores,
    )
    yield table(
        "gpu_shared_count", "Shares given away.", lambda card, _there, _taken: sharers.get(card.name, 0)
    )
    yield table(
        "node_gpu_memory_allocated_ratio",
        "Part of a card's memory that is given away, 0 to 1.",
        lambda _card, there, taken: taken.memory / there.memory if there.memory else 0,
    )
    yield Table(
        "hami_gpu_memory_allocated_bytes",
        "Memory given away.",
        (*_CARD, "device_cores"),
        [((*_of_card(node, card), str(taken.cores)), taken.memory) for card, _, taken in known],
    )
    yield Table(
        "hami_node_gpu_overview",
        "Memory given away, with the rest of the card's figures as labels.",
        _OVERVIEW,
        [
            (
                (
                    *_of_card(node, card),
                    str(taken.cores),
                    str(sharers.get(card.name, 0)),
                    str(there.memory // MEBIBYTE),
                ),
                taken.memory,
            )
            for card, there, taken in known
        ],
    )


def grant_tables(node: str, grants: Iterable[GrantUse], pod: Callable[[ClaimUID], str]) -> Iterator[Table]:
    """What HAMi's scheduler and monitor told of containers: what they were given, and what they use."""
    memory: dict[tuple[str, ...], float] = {}
    cores: dict[tuple[str, ...], float] = {}
    limits: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    numbers: dict[ClaimUID, int] = {}
    for one in grants:
        entry, grant = one.entry, one.grant
        number = numbers.get(entry.uid, 0)
        numbers[entry.uid] = number + 1
        user = pod(entry.uid)
        given = (_ZONE, entry.namespace, node, user, "", grant.uuid)
        memory[given] = memory.get(given, 0) + grant.memory
        cores[given] = cores.get(given, 0) + grant.cores
        if one.used is not None:
            using = (_ZONE, entry.namespace, user, "", str(number), grant.uuid)
            limits[using] = limits.get(using, 0) + grant.memory
            used[using] = used.get(using, 0) + one.used
    yield Table("hami_vgpu_memory_allocated_bytes", "Memory given to a Pod.", _ALLOCATED, memory.items())
    yield Table(
        "hami_vgpu_core_allocated_ratio", "Compute given to a Pod, in percent.", _ALLOCATED, cores.items()
    )
    yield Table("hami_vgpu_memory_limit_bytes", "Memory a Pod may use of a card.", _USED, limits.items())
    yield Table("hami_vgpu_memory_used_bytes", "Memory a Pod uses of a card.", _USED, used.items())
    yield Table("hami_container_device_memory_bytes", "Memory a Pod uses of a card.", _USED, used.items())


def _of_card(node: str, card: Card) -> tuple[str, ...]:
    index = "" if card.index is None else str(card.index)
    return (_ZONE, node, card.uuid, index, card.product_name)
