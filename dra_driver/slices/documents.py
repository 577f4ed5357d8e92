"""Inventory → the devices of the node's pool. Pure, and sorted: equal inventories give equal documents.

Kept to, because the API server or the scheduler breaks otherwise: at most 64 devices in a slice; names C
identifiers without a domain of our own; a `requestPolicy` with default and minimum on every capacity (no
default: a claim that does not mention it takes everything; no minimum: a negative request is a credit);
minimum = step, or 0, so that the grids of server and scheduler coincide; minimum + step never above the
value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from dra_driver.cards.capacity import Scales, capacity_of, smallest_share
from dra_driver.cards.inventory import Card, Inventory, nvlink_domains
from dra_driver.cards.taints import Taint
from dra_driver.cards.versions import semver
from dra_driver.names import CAPACITY_CORES, CAPACITY_MEMORY, CAPACITY_SHARES, MEBIBYTE, DeviceName
from kube.quantity import format_bytes, format_number

DEVICES_IN_A_SLICE = 64  # 128 without taints; a taint must not change how the pool is cut
_STRING_LENGTH = 64  # the API's limit for an attribute's value

Device: TypeAlias = dict[str, Any]
DeviceLists: TypeAlias = tuple[tuple[Device, ...], ...]
_NO_TAINTS: Mapping[DeviceName, tuple[Taint, ...]] = {}


def device_lists(
    inventory: Inventory,
    scales: Scales,
    *,
    order: Sequence[DeviceName] = (),
    taints: Mapping[DeviceName, tuple[Taint, ...]] = _NO_TAINTS,
) -> DeviceLists:
    """One list of devices for each slice; without any card one empty list, so that the pool is known.

    `order`: the devices that come first; the others follow in PCI order.
    """
    domains = nvlink_domains((*inventory.cards, *(lost.card for lost in inventory.lost)))
    places = {name: place for place, name in enumerate(order)}
    cards = sorted(inventory.published, key=lambda card: places.get(card.name, len(places)))
    devices = tuple(
        _device(card, inventory, scales, domains) | _taints(taints.get(card.name, ())) for card in cards
    )
    cuts = range(0, max(len(devices), 1), DEVICES_IN_A_SLICE)
    return tuple(devices[start : start + DEVICES_IN_A_SLICE] for start in cuts)


def _device(card: Card, inventory: Inventory, scales: Scales, domains: Mapping[str, str]) -> Device:
    return {
        "name": card.name,
        "attributes": _attributes(card, inventory, scales, domains.get(card.uuid)),
        "allowMultipleAllocations": True,
        "capacity": _capacity(card, scales),
    }


def _taints(taints: tuple[Taint, ...]) -> Device:
    """The field, where there is anything in it; the API takes up to 16, of which we know three."""
    return {"taints": [taint.document() for taint in taints]} if taints else {}


def _attributes(
    card: Card, inventory: Inventory, scales: Scales, nvlink_domain: str | None
) -> dict[str, Any]:
    strings = {
        "type": "gpu" if card.mig is None else "mig",
        "uuid": card.uuid,
        "parentUUID": card.mig.parent_uuid if card.mig is not None else None,
        "profile": card.mig.profile if card.mig is not None else None,
        "productName": card.product_name,
        "brand": card.brand,
        "architecture": card.architecture,
        "nvlinkDomain": nvlink_domain,
        "mode": "shared" if scales.split_count > 1 else "exclusive",
        "resource.kubernetes.io/pciBusID": card.pci_bus_id,
        "resource.kubernetes.io/pcieRoot": card.pcie_root,
    }
    versions = {
        "cudaComputeCapability": card.compute_capability,
        "driverVersion": inventory.driver_version,
        "cudaDriverVersion": inventory.cuda_driver_version,
    }
    numbers = {
        "minor": card.minor,
        "numaNode": card.numa_node,  # for selectors on releases that lack the standard one
        "resource.kubernetes.io/numaNode": card.numa_node,
    }
    found: dict[str, Any] = {}
    found |= {key: {"string": _cut(text)} for key, text in strings.items() if text}
    found |= {key: {"version": semver(text)} for key, text in versions.items() if text is not None}
    found |= {key: {"int": number} for key, number in numbers.items() if number is not None}
    return dict(sorted(found.items()))


def _cut(text: str) -> str:
    """The server counts bytes."""
    return text.encode()[:_STRING_LENGTH].decode(errors="ignore")


def _capacity(card: Card, scales: Scales) -> dict[str, Any]:
    amounts = capacity_of(card, scales)
    memory = format_bytes(amounts.memory)
    smallest = format_number(smallest_share(scales))
    return {
        CAPACITY_CORES: {
            "value": format_number(amounts.cores),
            "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "1"}},
        },
        CAPACITY_MEMORY: {
            "value": memory,
            "requestPolicy": {
                "default": memory,
                "validRange": {"min": "1Mi", "max": memory}
                | ({"step": "1Mi"} if amounts.memory >= 2 * MEBIBYTE else {}),
            },
        },
        CAPACITY_SHARES: {
            # No step: with split count 1 the minimum is the value, and min + step > value is refused.
            "value": format_number(amounts.shares),
            "requestPolicy": {"default": smallest, "validRange": {"min": smallest}},
        },
    }
