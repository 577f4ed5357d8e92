"""Desired device lists and observed slices → the writes that make one of the other. Pure.

The rules are those of Kubernetes' own helper for drivers in Go, because its readers rely on them:
a slice's place in the pool is the hexadecimal index that starts its name; a change of one slice keeps the
pool's generation, anything else raises it and rewrites all; what is left of older generations, has a foreign
name or a place beyond the last is deleted first. Equal contents give no writes at all, and a taint that was
there before keeps its time, on which tolerations count. Slices of other
drivers or nodes are none of our business, even if somebody hands them in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from dra_driver.slices.documents import DeviceLists
from dra_driver.slices.stored import TaintTimes, fingerprint, taint_times, with_times

_RANDOM_LENGTH = 5  # of what the API server adds to a generateName


@dataclass(frozen=True)
class Delete:
    """Remove exactly the object that was seen."""

    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True)
class Update:
    """Replace an object; `body` has the resource version that was seen."""

    name: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Create:
    """A new object; `body` lacks only the owner, which takes a look at the API server."""

    body: dict[str, Any]


Write: TypeAlias = Delete | Update | Create
Stored: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Pool:
    """A node's pool, named as the node. `adopted`: fingerprints of what was sent → of what was stored.

    `times`: of taints, where the slices that had them are gone.
    """

    driver: str
    node: str
    adopted: Mapping[str, str] = field(default_factory=dict)
    times: TaintTimes = field(default_factory=dict)

    def writes(self, wanted: DeviceLists, observed: Iterable[Mapping[str, Any]]) -> tuple[Write, ...]:
        """In the order in which they are to be done: deletes, updates, creates."""
        newest, current, obsolete = self._sort(wanted, observed)
        times = {**self.times, **taint_times((*current.values(), *obsolete))}
        missing = [index for index in range(len(wanted)) if index not in current]
        changed = [
            index for index, item in sorted(current.items()) if not self._is_up_to_date(item, wanted, index)
        ]
        generation = newest
        if missing or len(changed) > 1:
            generation = newest + 1
            changed = sorted(current)
        return (
            *(Delete(_name(item), item["metadata"]["uid"], _version(item)) for item in obsolete),
            *(self._update(current[index], wanted, index, generation, times) for index in changed),
            *(self._create(wanted, index, generation, times) for index in missing),
        )

    def current(self, wanted: DeviceLists, observed: Iterable[Mapping[str, Any]]) -> dict[int, Stored]:
        """Place in the pool → the slice that is there."""
        return self._sort(wanted, observed)[1]

    def _sort(
        self, wanted: DeviceLists, observed: Iterable[Mapping[str, Any]]
    ) -> tuple[int, dict[int, Stored], list[Stored]]:
        """The newest generation, the slices of it that have a place, and what is left of ours."""
        ours = sorted((item for item in observed if self._is_ours(item)), key=_name)
        newest = max((_generation(item) for item in ours if _pool(item) == self.node), default=0)
        current: dict[int, Stored] = {}
        obsolete = []
        for item in ours:
            index = self._index(item)
            is_current = _pool(item) == self.node and _generation(item) == newest
            if is_current and index is not None and index < len(wanted) and index not in current:
                current[index] = item
            else:
                obsolete.append(item)
        return newest, current, obsolete

    def _is_ours(self, item: Mapping[str, Any]) -> bool:
        spec = item.get("spec") or {}
        return spec.get("driver") == self.driver and spec.get("nodeName") == self.node

    def _index(self, item: Mapping[str, Any]) -> int | None:
        name = _name(item)
        match = re.match(r"([0-9a-f]{5,})-", name)
        if match is None:
            return None
        # The server cuts a long generateName before it adds its random part, so the beginning decides.
        given = name[:-_RANDOM_LENGTH]
        return int(match[1], 16) if self._prefix(match[1]).startswith(given) else None

    def _prefix(self, index: str) -> str:
        return f"{index}-{self.driver}-{self.node}-"

    def _is_up_to_date(self, item: Mapping[str, Any], wanted: DeviceLists, index: int) -> bool:
        if item["spec"]["pool"].get("resourceSliceCount") != len(wanted):
            return False
        stored, sent = fingerprint(item["spec"].get("devices") or ()), fingerprint(wanted[index])
        return stored in (sent, self.adopted.get(sent))

    def _update(
        self, item: Stored, wanted: DeviceLists, index: int, generation: int, times: TaintTimes
    ) -> Update:
        # Everything that this release does not know is kept.
        body = deepcopy(dict(item))
        body["spec"] |= self._spec(wanted, index, generation, times)
        return Update(_name(item), body)

    def _create(self, wanted: DeviceLists, index: int, generation: int, times: TaintTimes) -> Create:
        return Create(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceSlice",
                "metadata": {"generateName": self._prefix(f"{index:05x}")},
                "spec": {
                    "driver": self.driver,
                    "nodeName": self.node,
                    **self._spec(wanted, index, generation, times),
                },
            }
        )

    def _spec(self, wanted: DeviceLists, index: int, generation: int, times: TaintTimes) -> dict[str, Any]:
        pool = {"name": self.node, "generation": generation, "resourceSliceCount": len(wanted)}
        return {"pool": pool, "devices": with_times(wanted[index], times)}


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def _version(item: Mapping[str, Any]) -> str:
    return str(item["metadata"].get("resourceVersion", ""))


def _pool(item: Mapping[str, Any]) -> str | None:
    return (item["spec"].get("pool") or {}).get("name")


def _generation(item: Mapping[str, Any]) -> int:
    return int((item["spec"].get("pool") or {}).get("generation") or 0)
