"""Comparing what we want with what the API server has stored: quantities by value, not by spelling. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kube.quantity import QuantityError, parse_quantity

# Field that a switched-off feature makes the server drop → the gate to switch on.
_GATES = {
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "requestPolicy": "DRAConsumableCapacity",
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "sharedCounters": "DRAPartitionableDevices",
}


def fingerprint(devices: Iterable[Mapping[str, Any]]) -> str:
    """Equal for two lists of devices that mean the same, whatever their quantities are written like."""
    return json.dumps([_canonical(device) for device in devices], sort_keys=True)


def _canonical(device: Mapping[str, Any]) -> dict[str, Any]:
    capacity = device.get("capacity") or {}
    return {**device, "capacity": {name: _quantities(value) for name, value in capacity.items()}}


def _quantities(value: Any) -> Any:
    """All strings below a capacity are quantities."""
    if isinstance(value, Mapping):
        return {key: _quantities(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_quantities(inner) for inner in value]
    if isinstance(value, str | int) and not isinstance(value, bool):
        try:
            return str(parse_quantity(value))
        except QuantityError:
            return value
    return value


def dropped_fields(wanted: Any, stored: Any, path: str = "") -> tuple[str, ...]:
    """Paths of fields that were sent and are not in what the server stored; list indexes are left out."""
    return tuple(dict.fromkeys(_dropped(wanted, stored, path)))


def _dropped(wanted: Any, stored: Any, path: str) -> Iterator[str]:
    if isinstance(wanted, Mapping):
        for key, value in wanted.items():
            inner = f"{path}.{key}" if path else str(key)
            if not isinstance(stored, Mapping) or key not in stored:
                # An empty value and an absent one are the same to the API.
                if value not in ({}, [], (), "", None, False):
                    yield inner
            else:
                yield from _dropped(value, stored[key], inner)
    elif isinstance(wanted, list | tuple) and isinstance(stored, list):
        for one, other in zip(wanted, stored, strict=False):
            yield from _dropped(one, other, path)


def gates_of(dropped: Iterable[str]) -> tuple[str, ...]:
    """The feature gates that would have kept the fields, as far as we know them."""
    parts = {part for path in dropped for part in path.split(".")}
    return tuple(sorted({gate for field, gate in _GATES.items() if field in parts}))
