"""ResourceSlices of our driver → what they say of the cluster's cards. Pure."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from claim_mutator.cluster import Cluster
from claim_mutator.names import CAPACITY_CORES, CAPACITY_MEMORY
from kube.quantity import QuantityError, parse_quantity

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stock:
    """Of one slice. Sizes in bytes; cores are the amounts that cards have to give."""

    node: str = ""
    cards: int = 0
    card_sizes: frozenset[int] = frozenset()
    instance_sizes: frozenset[int] = frozenset()
    cores: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()
    products: frozenset[str] = frozenset()


NOTHING = Stock()


def stock_of(resource_slice: Mapping[str, Any]) -> Stock:
    """What is not readable is left out, with a line in the log."""
    spec = resource_slice.get("spec") or {}
    cards = 0
    found: dict[str, set[Any]] = {key: set() for key in ("cards", "instances", "cores", "uuids", "products")}
    for device in spec.get("devices") or ():
        memory = _amount(device, CAPACITY_MEMORY)
        if memory is None or not device.get("allowMultipleAllocations"):
            continue
        if _text(device, "type") == "mig":
            found["instances"].add(memory)
            found["uuids"].add(_text(device, "parentUUID"))
        else:
            cards += 1
            found["cards"].add(memory)
            found["cores"].add(_amount(device, CAPACITY_CORES))
        found["uuids"].add(_text(device, "uuid"))
        found["products"].add(_text(device, "productName"))
    if not found["cards"] and not found["instances"]:
        return NOTHING
    sets = {key: frozenset(values - {None}) for key, values in found.items()}
    return Stock(
        str(spec.get("nodeName") or ""),
        cards,
        sets["cards"],
        sets["instances"],
        sets["cores"],
        sets["uuids"],
        sets["products"],
    )


def cluster_of(
    stocks: Collection[Stock], version: tuple[int, int], trusted: frozenset[str] = frozenset()
) -> Cluster:
    """All slices together, and what else a conversion has to know."""
    cards: Counter[str] = Counter()
    for stock in stocks:
        cards[stock.node] += stock.cards
    cores = _union(stock.cores for stock in stocks)
    return Cluster(
        tuple(sorted(_union(stock.card_sizes for stock in stocks))),
        version,
        tuple(sorted(_union(stock.instance_sizes for stock in stocks))),
        max(cards.values(), default=0),
        _union(stock.uuids for stock in stocks),
        _union(stock.products for stock in stocks),
        bool(cores) and 100 not in cores,
        trusted,
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
