"""Comparing what we want with what the API server has stored: quantities by value, not by spelling. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from kube.quantity import QuantityError, parse_quantity

_TIME = "timeAdded"
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
    """The time of a taint is the server's to say, and none of the contents."""
    capacity = device.get("capacity") or {}
    taints = device.get("taints") or ()
    return {
        **device,
        "capacity": {name: _quantities(value) for name, value in capacity.items()},
        "taints": [{key: text for key, text in taint.items() if key != _TIME} for taint in taints],
    }


TaintTimes: TypeAlias = Mapping[tuple[str, ...], str]
"""(device, key, value, effect) → since when, as the server wrote it."""


def taint_times(items: Iterable[Mapping[str, Any]]) -> dict[tuple[str, ...], str]:
    """Of the taints of some slices; the earliest where one is there twice."""
    found: dict[tuple[str, ...], str] = {}
    for item in items:
        for device in item["spec"].get("devices") or ():
            for taint in device.get("taints") or ():
                if _TIME in taint:
                    key = _identity(device, taint)
                    found[key] = min(found.get(key, taint[_TIME]), taint[_TIME])
    return found


def taint_keys(devices: Iterable[Mapping[str, Any]]) -> set[tuple[str, ...]]:
    """What `TaintTimes` calls the taints of some devices."""
    return {_identity(device, taint) for device in devices for taint in device.get("taints") or ()}


def with_times(devices: Iterable[Mapping[str, Any]], times: TaintTimes) -> list[dict[str, Any]]:
    """The devices, with the times of the taints that were there before: each write would begin them anew."""
    return [_with_times(device, times) if device.get("taints") else dict(device) for device in devices]


def _with_times(device: Mapping[str, Any], times: TaintTimes) -> dict[str, Any]:
    taints = [
        {**taint, **({_TIME: times[key]} if (key := _identity(device, taint)) in times else {})}
        for taint in device["taints"]
    ]
    return {**device, "taints": taints}


def _identity(device: Mapping[str, Any], taint: Mapping[str, Any]) -> tuple[str, ...]:
    return (str(device.get("name")), *(str(taint.get(key, "")) for key in ("key", "value", "effect")))


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


GATES = tuple(sorted(set(_GATES.values())))


def gate_of(path: str) -> str | None:
    """The feature gate that would have kept a field, if we know it."""
    return next((_GATES[part] for part in path.split(".") if part in _GATES), None)


def gates_of(dropped: Iterable[str]) -> tuple[str, ...]:
    """The feature gates that would have kept the fields, as far as we know them."""
    return tuple(sorted({gate for path in dropped if (gate := gate_of(path)) is not None}))
