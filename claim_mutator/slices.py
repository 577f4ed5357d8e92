"""ResourceSlices of our driver → what they say of the cluster's cards. Pure."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from claim_mutator.cluster import Card, Cluster, most_of_a_node
from claim_mutator.names import CAPACITY_CORES, CAPACITY_MEMORY
from kube.quantity import QuantityError, parse_quantity

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stock:
    """Of one slice. Sizes in bytes; cores are the amounts that cards have to give."""

    cards: tuple[Card, ...] = ()
    """Sorted."""
    instance_sizes: frozenset[int] = frozenset()
    cores: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()


NOTHING = Stock()


def stock_of(resource_slice: Mapping[str, Any]) -> Stock:
    """What is not readable is left out, with a line in the log."""
    spec = resource_slice.get("spec") or {}
    node, cards = str(spec.get("nodeName") or ""), list[Card]()
    found: dict[str, set[Any]] = {key: set() for key in ("instances", "cores", "uuids", "products")}
    for device in spec.get("devices") or ():
        memory = _amount(device, CAPACITY_MEMORY)
        if memory is None or not device.get("allowMultipleAllocations"):
            continue
        if _text(device, "type") == "mig":
            found["instances"].add(memory)
            found["uuids"].add(_text(device, "parentUUID"))
        else:
            uuid, product = _text(device, "uuid") or "", _text(device, "productName") or ""
            cards.append(Card(node, memory, uuid, product))
            found["cores"].add(_amount(device, CAPACITY_CORES))
        found["uuids"].add(_text(device, "uuid"))
        found["products"].add(_text(device, "productName"))
    if not cards and not found["instances"]:
        return NOTHING
    sets = {key: frozenset(values - {None}) for key, values in found.items()}
    return Stock(
        tuple(sorted(cards)),
        sets["instances"],
        sets["cores"],
        sets["uuids"],
        sets["products"],
    )


def cluster_of(
    stocks: Collection[Stock],
    version: tuple[int, int],
    trusted: frozenset[str] = frozenset(),
    *,
    drops_capacity: bool = False,
) -> Cluster:
    """All slices together, and what else a conversion has to know."""
    cards = tuple(sorted(card for stock in stocks for card in stock.cards))
    most, alike = most_of_a_node(cards)
    cores = _union(stock.cores for stock in stocks)
    return Cluster(
        tuple(sorted({card.size for card in cards})),
        version,
        tuple(sorted(_union(stock.instance_sizes for stock in stocks))),
        most,
        _union(stock.uuids for stock in stocks),
        _union(stock.products for stock in stocks),
        bool(cores) and 100 not in cores,
        trusted,
        alike,
        drops_capacity,
        cards,
    )


def _amount(device: Mapping[str, Any], name: str) -> int | None:
    """None where there is nothing to give."""
    capacity = (device.get("capacity") or {}).get(name)
    if capacity is None:
        return None
    try:
        return int(parse_quantity(capacity["value"])) or None
    except (QuantityError, KeyError, TypeError) as error:
        _log.warning("device %s: %s is not readable: %s", device.get("name"), name, error)
        return None


def _text(device: Mapping[str, Any], name: str) -> str | None:
    value = ((device.get("attributes") or {}).get(name) or {}).get("string")
    return value if isinstance(value, str) else None


def _union(sets: Iterator[frozenset[Any]]) -> frozenset[Any]:
    return frozenset().union(*sets)
