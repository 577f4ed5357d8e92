"""Keeps the API server's ResourceSlices of this node as they should be.

Level-based: whatever woke it up (another inventory, a slice that somebody changed or deleted, a failed try),
it looks at the whole and writes the difference. No difference, no write. The kubelet deletes all slices of
its node when it starts, and a driver's 30 s after losing it; both are seen and mended. At our own end the
slices stay: the next agent finds them right.

What was written lately is remembered until the watch shows it, or a slow watch would have it written twice;
where the watch is silent for long, the server is asked. Fields that the server drops because a feature is off
are said aloud as long as they are wanted, and what it stored is taken for what was wanted, or there would be
no end of writing; now and then it is tried again, so that a feature that was switched on is used.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn

from dra_driver.cards.rules import Effect
from dra_driver.conditions import Condition, Conditions
from dra_driver.metrics.counters import Metrics
from dra_driver.names import DRIVER
from dra_driver.slices.diff import Create, Delete, Pool, Update, Write
from dra_driver.slices.documents import DeviceLists
from dra_driver.slices.stored import (
    TaintTimes,
    dropped_fields,
    fingerprint,
    gate_of,
    gates_of,
    taint_keys,
    taint_times,
)
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, NotFound
from kube.reflector import Change, Reflector

_log = logging.getLogger(__name__)
_SETTLE = 0.3  # seconds; a kubelet that wipes several slices is answered once
_WATCH_LAG = 10.0  # seconds after which a write that the watch has not shown is asked for
_ADOPTED_FOR = 3600.0  # seconds after which fields that were dropped are sent again
_NOTHING_DROPPED = "no field of a slice was dropped by the API server"
_FIGHT = 60.0  # seconds without a write after which somebody else's changes are no fight


@dataclass(frozen=True)
class _Written:
    item: dict[str, Any]
    at: float


class Publisher:
    """`want` says what should be there, `run` sees to it. `leads`: whether this agent is to; see lead.py."""

    def __init__(
        self,
        *,
        client: Client,
        node: str,
        conditions: Conditions,
        metrics: Metrics,
        leads: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
    ) -> None:
        self._client = client
        self._node = node
        self._conditions = conditions
        self._metrics = metrics
        self._leads = leads
        self._clock = clock
        self._backoff = backoff
        self._wanted: DeviceLists | None = None
        self._woken = asyncio.Event()
        self._written: dict[str, _Written] = {}
        self._deleted: dict[str, float] = {}
        self._adopted: dict[str, str] = {}
        self._adopted_at = 0.0
        self._times: TaintTimes = {}
        self._reflector = Reflector(
            client,
            paths.resource_slices(),
            params={"fieldSelector": f"spec.driver={DRIVER},spec.nodeName={node}"},
            on_change=self._changed,
        )
        conditions.fail(Condition.SLICES, "nothing is published yet")
        conditions.hold(Condition.FEATURES, _NOTHING_DROPPED)

    def want(self, wanted: DeviceLists) -> None:
        """Publishes from now on, at once if it is different."""
        if wanted != self._wanted:
            self._wanted = wanted
            self._woken.set()

    @property
    def state(self) -> dict[str, Any]:
        """For the dump: what is wanted, what was written and not seen yet, and what the watch has shown."""
        return {
            "wantedDevices": [len(devices) for devices in self._wanted or ()],
            "pendingWrites": sorted(self._written),
            "pendingDeletions": sorted(self._deleted),
            "adopted": len(self._adopted),
            "shown": sorted(self._reflector.objects),
            "watchSilentFor": round(self._reflector.silence, 1),
            "watchFailure": str(self._reflector.last_error) if self._reflector.last_error else None,
        }

    def look(self) -> None:
        """Looks again: whether we are to publish may have changed."""
        self._woken.set()

    async def run(self) -> NoReturn:
        """Until cancelled; every failure of the API server is waited out."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run(), name="slices-reflector")
            say = partial(self._conditions.fail, Condition.SLICES)
            tasks.create_task(self._reflector.tell_until_synced(say), name="slices-sync")
            tasks.create_task(self._publish(), name="slices-publisher")
        raise AssertionError("unreachable: none of the tasks ends")

    async def sync(self) -> int:
        """One look, and the writes it takes; returns how many. Raises ApiError."""
        if self._wanted is None:
            return 0
        if not self._leads():
            self._conditions.hold(Condition.SLICES, "the node's other agent, which is newer, publishes them")
            return 0
        wanted = self._wanted
        await self._ask_for_unseen()
        observed = self._observed().values()
        sent = {fingerprint(devices) for devices in wanted}
        self._adopted = {was: became for was, became in self._adopted.items() if was in sent}
        self._times = _times_of(wanted, {**self._times, **taint_times(observed)})
        pool = Pool(DRIVER, self._node, self._adopted, self._times)
        writes = pool.writes(wanted, observed)
        owner = None
        for write in writes:
            if isinstance(write, Create) and owner is None:
                # Anew each time: a Node that was made again has another UID, and the old one's slices go with
                # it.
                owner = await self._owner()
            await self._do(write, owner)
        self._tell(wanted, pool.current(wanted, self._observed().values()))
        return len(writes)

    async def _publish(self) -> NoReturn:
        await self._reflector.synced()
        failures, repeats, last_write = 0, 0, self._clock()
        self._woken.set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_again_in()):
                    await self._woken.wait()
            self._woken.clear()
            if self._adopted and self._clock() - self._adopted_at >= _ADOPTED_FOR:
                self._adopted = {}
            await asyncio.sleep(_SETTLE)
            wanted = self._wanted
            try:
                writes = await self.sync()
            except ApiError as error:
                failures += 1
                self._metrics.slice_write_failed()
                self._conditions.fail(Condition.SLICES, f"ResourceSlices can't be published: {error}")
                await asyncio.sleep(self._backoff.delay(failures, error.retry_after))
                self._woken.set()
                continue
            failures = 0
            if not writes:
                continue
            now = self._clock()
            # Somebody who undoes our writes again and again is met with more and more patience.
            repeats = repeats + 1 if wanted is self._wanted and now - last_write < _FIGHT else 0
            last_write = now
            if repeats > 2:
                await asyncio.sleep(self._backoff.delay(repeats - 2))

    def _changed(self, change: Change) -> None:
        """The watch has caught up with what we wrote, or with its deletion: from now on it is right."""
        written = self._written.get(change.key)
        if change.kind == "DELETED":
            self._written.pop(change.key, None)
            self._deleted[change.key] = self._clock()
        elif written is not None and _revision(change.object) >= _revision(written.item):
            del self._written[change.key]
        self._woken.set()

    def _look_again_in(self) -> float | None:
        """Seconds. Writes that the watch has not shown, and dropped fields, are looked at again in time."""
        if self._written or self._deleted:
            return _WATCH_LAG
        return max(1.0, self._adopted_at + _ADOPTED_FOR - self._clock()) if self._adopted else None

    async def _ask_for_unseen(self) -> None:
        """What the watch has not shown for long is asked for: it may be silent. Raises ApiError."""
        now = self._clock()
        shown = self._reflector.objects
        self._deleted = {
            name: at for name, at in self._deleted.items() if name in shown or now - at <= _WATCH_LAG
        }
        times = {name: written.at for name, written in self._written.items()} | self._deleted
        for name in [name for name, at in times.items() if now - at > _WATCH_LAG]:
            try:
                item = await self._client.get(paths.resource_slice(name))
            except NotFound:
                self._written.pop(name, None)
                self._deleted[name] = now
            else:
                self._deleted.pop(name, None)
                self._written[name] = _Written(item, now)

    def _observed(self) -> dict[str, dict[str, Any]]:
        """What the watch has shown, overlaid with what we wrote or deleted and it has not shown yet."""
        seen = {name: item for name, item in self._reflector.objects.items() if name not in self._deleted}
        return seen | {name: written.item for name, written in self._written.items()}

    async def _owner(self) -> dict[str, Any]:
        node = await self._client.get(paths.node(self._node))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "name": self._node,
            "uid": node["metadata"]["uid"],
            "controller": True,
        }

    async def _do(self, write: Write, owner: dict[str, Any] | None) -> None:
        if isinstance(write, Delete):
            with contextlib.suppress(NotFound):
                await self._client.delete(
                    paths.resource_slice(write.name), uid=write.uid, resource_version=write.resource_version
                )
            self._written.pop(write.name, None)
            self._deleted[write.name] = self._clock()
            self._metrics.slice_written("delete")
            _log.info("ResourceSlice %s deleted", write.name)
            return
        if isinstance(write, Update):
            stored = await self._client.replace(paths.resource_slice(write.name), write.body)
            self._metrics.slice_written("update")
        else:
            body = write.body | {"metadata": write.body["metadata"] | {"ownerReferences": [owner]}}
            stored = await self._client.create(paths.resource_slices(), body)
            self._metrics.slice_written("create")
        name = str(stored["metadata"]["name"])
        shown = self._reflector.objects.get(name)
        # The watch can be faster than the answer, and know what happened after it.
        if name not in self._deleted and (shown is None or _revision(shown) < _revision(stored)):
            self._written[name] = _Written(stored, self._clock())
        _log.info(
            "ResourceSlice %s %s, %d devices",
            name,
            "updated" if isinstance(write, Update) else "created",
            len(write.body["spec"]["devices"]),
        )
        self._compare(write.body["spec"]["devices"], stored["spec"].get("devices") or [])

    def _compare(self, sent: list[Any], stored: list[Any]) -> None:
        was, became = fingerprint(sent), fingerprint(stored)
        if was != became:
            self._adopted[was] = became
            self._adopted_at = self._clock()

    def _tell(self, wanted: DeviceLists, current: Mapping[int, Mapping[str, Any]]) -> None:
        count = sum(len(devices) for devices in wanted)
        self._conditions.hold(Condition.SLICES, f"{count} devices in {len(wanted)} ResourceSlices")
        stored = {index: item["spec"].get("devices") or [] for index, item in current.items()}
        dropped = dict.fromkeys(
            path for index, devices in stored.items() for path in dropped_fields(wanted[index], devices)
        )
        self._metrics.slice_fields_dropped(gate_of(path) for path in dropped)
        if not dropped:
            self._conditions.hold(Condition.FEATURES, _NOTHING_DROPPED)
            return
        gates = gates_of(dropped)
        advice = (
            f"switch on the feature gate {', '.join(gates)} on API server, scheduler and kubelet"
            if gates
            else "is it an older release than this driver supports?"
        )
        said = f"the API server dropped {', '.join(dropped)} from our ResourceSlices: {advice}"
        # A taint that only tells something is no loss to a cluster that knows none.
        if set(dropped) == {"taints"} and not _has_effect(wanted):
            self._conditions.hold(Condition.FEATURES, said)
        else:
            self._conditions.fail(Condition.FEATURES, said)


def _times_of(wanted: DeviceLists, times: TaintTimes) -> TaintTimes:
    """Those of the taints that are wanted: one that comes back later is a new one."""
    keys = taint_keys(device for devices in wanted for device in devices)
    return {key: time for key, time in times.items() if key in keys}


def _has_effect(wanted: DeviceLists) -> bool:
    return any(
        taint["effect"] != Effect.NONE.value
        for devices in wanted
        for device in devices
        for taint in device.get("taints", ())
    )


def _revision(item: dict[str, Any]) -> int:
    """Resource versions can be compared as numbers (guaranteed since 1.35, true before)."""
    text = str(item["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
