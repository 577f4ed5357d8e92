"""What the fake API server knows of any object: its path, selectors, merge patches, one default."""

from __future__ import annotations

import time
from typing import Any

Object = dict[str, Any]


def split_path(path: str) -> tuple[str, str, str | None] | None:
    """A path → collection without namespace, namespace or "", name or None; /status is dropped."""
    parts = path.strip("/").split("/")
    if parts[:2] == ["api", "v1"]:
        group, rest = "/api/v1", parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, rest = "/" + "/".join(parts[:3]), parts[3:]
    else:
        return None
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not rest:
        return None
    return f"{group}/{rest[0]}", namespace, rest[1] if len(rest) > 1 else None


def default_times(item: Object) -> None:
    """The one default of the real server that drivers can see: since when a device has a taint."""
    spec = item.get("spec")
    devices = spec.get("devices") if isinstance(spec, dict) else None
    for device in devices if isinstance(devices, list) else ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))


def key_of(item: Object) -> tuple[str, str]:
    return (item["metadata"].get("namespace", ""), item["metadata"]["name"])


def belongs(collection: str, key: tuple[str, str], path: str) -> bool:
    split = split_path(path)
    return split is not None and split[0] == collection and split[1] in ("", key[0])


def matches(item: Object, params: dict[str, str]) -> bool:
    labels = item["metadata"].get("labels") or {}
    for selector, read in (("labelSelector", labels.get), ("fieldSelector", lambda name: _field(item, name))):
        for term in filter(None, params.get(selector, "").split(",")):
            name, _, value = term.partition("=")
            if read(name) != value:
                return False
    return True


def _field(item: Object, name: str) -> Any:
    found: Any = item
    for part in name.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def merge_patch(target: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    if not isinstance(target, dict):
        target = {}
    for name, value in change.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merge_patch(target.get(name), value)
    return target
