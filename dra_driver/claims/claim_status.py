"""`status.devices` of a claim (KEP-4817), for people and tools: which card, which limits, how the card is.

`device_statuses` is pure; `ClaimStatus` writes, apart from Prepare and some time after it, and only where
what the API server has is not what it should have. What it has is seen whenever somebody reads a claim
anyway, for Prepare or to reconcile: so a restart, a lost write and another one's edit need no reads of their
own, and nothing is written while nothing changes.

Written by server-side apply, as the manager of our entries alone: those of other drivers in the same claim
are not touched. Nothing is taken back at Unprepare, since the API server drops the entries with the
allocation. Without the right to write (403), or on a server that drops the field, it is told once; then there
is quiet.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NoReturn

from dra_driver.cards.rules import Interposition
from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.kubelet.health import DeviceHealth, Health
from dra_driver.names import DRIVER, ClaimUID, DeviceName
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, Conflict, NotFound, Unavailable
from kube.quantity import format_bytes

_log = logging.getLogger(__name__)
_SETTLE = 1.0  # seconds; the kubelet is starting the Pod, which matters more
_PER_SECOND = 10.0  # writes: a thousand nodes start Pods on one API server
_QUIET = 3600.0  # seconds, after a server that won't take them
_SILENT_FOR_LONG = 60.0  # seconds
_TRIES = 5
_SERVER_SIDE_APPLY = "application/apply-patch+yaml"  # JSON is YAML

DeviceStatus = dict[str, Any]


def device_statuses(
    entry: Entry,
    *,
    node: str,
    health: Callable[[DeviceName], DeviceHealth],
    before: Iterable[DeviceStatus] = (),
    now: str,
) -> list[DeviceStatus]:
    """One for each grant of a prepared claim, in the claim's order.

    `before`: what the API server has; a condition that has not changed keeps its time. `now`: RFC 3339.
    """
    known = {_key(status): status for status in before}
    return [_device_status(grant, node, health(grant.device), known, now) for grant in entry.grants]


def own_statuses(raw: Mapping[str, Any], node: str) -> list[DeviceStatus]:
    """Our entries for this node in a claim as the API server has it."""
    devices = (raw.get("status") or {}).get("devices") or ()
    return [status for status in devices if status.get("driver") == DRIVER and status.get("pool") == node]


def _device_status(
    grant: GrantEntry,
    node: str,
    health: DeviceHealth,
    known: Mapping[tuple[str | None, ...], DeviceStatus],
    now: str,
) -> DeviceStatus:
    status: DeviceStatus = {"driver": DRIVER, "pool": node, "device": grant.device}
    if grant.share_id is not None:
        status["shareID"] = grant.share_id
    conditions = [
        {"type": "Ready", "status": "True", "reason": "Prepared", "message": "the kubelet has it"},
        {
            "type": "Healthy",
            "status": {Health.HEALTHY: "True", Health.UNHEALTHY: "False"}.get(health.health, "Unknown"),
            "reason": health.health.name.capitalize(),
            "message": health.message,
        },
    ]
    old = {condition["type"]: condition for condition in known.get(_key(status), {}).get("conditions") or ()}
    for condition in conditions:
        was = old.get(condition["type"], {})
        is_same = was.get("status") == condition["status"]
        condition["lastTransitionTime"] = was.get("lastTransitionTime", now) if is_same else now
    return status | {"conditions": conditions, "data": _data(grant)}


def _data(grant: GrantEntry) -> dict[str, Any]:
    """What no other field of the claim says: which card it is, and what is enforced by whom."""
    data: dict[str, Any] = {"uuid": grant.uuid, "enforcement": "library" if grant.limited else "none"}
    if grant.shim:
        data["interposition"] = Interposition.SHIM.value
    if grant.limited:
        data["limits"] = {"memory": format_bytes(grant.memory)} | (
            {"cores": str(grant.cores)} if grant.cores else {}
        )
    return data


def _key(status: Mapping[str, Any]) -> tuple[str | None, ...]:
    return tuple(status.get(part) for part in ("driver", "pool", "device", "shareID"))


@dataclass
class _Seen:
    """A claim, and our entries in it as the API server has them."""

    ref: ClaimRef
    devices: list[DeviceStatus] = field(default_factory=list)


class ClaimStatus:
    """`entries`: the ledger's, as they are now. `told`: says to people why nothing is written.

    Without `is_wanted` nothing ever is.

    `clock`: seconds since 1970; `monotonic`: seconds that never jump.
    """

    def __init__(
        self,
        client: Client,
        *,
        node: str,
        entries: Callable[[], Mapping[ClaimUID, Entry]],
        health: Callable[[DeviceName], DeviceHealth],
        told: Callable[[str], None],
        is_wanted: bool = True,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        backoff: Backoff = Backoff(),  # noqa: B008 - immutable
    ) -> None:
        self._client = client
        self._node = node
        self._entries = entries
        self._health = health
        self._told = told
        self._clock = clock
        self._monotonic = monotonic
        self._sleep = sleep
        self._backoff = backoff
        self._seen: dict[ClaimUID, _Seen] = {}
        self._dirty: dict[ClaimUID, None] = {}
        self._silent_since: dict[DeviceName, float] = {}
        self._woken = asyncio.Event()
        self._quiet_until = float("-inf")
        self._is_wanted = is_wanted

    @property
    def pending(self) -> list[ClaimUID]:
        """For the dump: claims whose status is to be written."""
        return list(self._dirty)

    def seen(self, ref: ClaimRef, raw: Mapping[str, Any]) -> None:
        """To be called with each claim that was read. Remembers; costs nothing."""
        if not self._is_wanted:
            return
        self._seen[ref.uid] = _Seen(ref, own_statuses(raw, self._node))
        self._mark(ref.uid)

    def health_changed(self) -> None:
        """To be called when any card's health may have changed."""
        for uid in self._seen:
            self._mark(uid)

    async def run(self) -> NoReturn:
        """Writes until cancelled, whatever the API server answers."""
        while True:
            await self._woken.wait()
            await self._sleep(_SETTLE)
            self._woken.clear()
            await self.flush()

    async def flush(self) -> None:
        """Looks at each claim that was seen or whose card has changed, and writes what is different."""
        entries = self._entries()
        self._seen = {uid: seen for uid, seen in self._seen.items() if uid in entries}
        dirty, self._dirty = self._dirty, {}
        for uid in dirty:
            seen, entry = self._seen.get(uid), self._entries().get(uid)
            if seen is None or entry is None or entry.state is not State.PREPARED:
                continue  # if it gets there, whoever reads the claim next brings it up again
            if not self._is_known(entry) or self._monotonic() < self._quiet_until:
                continue
            wanted = self._wanted(seen, entry)
            if wanted != seen.devices:
                await self._write(seen, wanted)
                await self._sleep(1 / _PER_SECOND)

    def _mark(self, uid: ClaimUID) -> None:
        self._dirty[uid] = None
        self._woken.set()

    def _is_known(self, entry: Entry) -> bool:
        """Whether there is something to say of all its cards. A driver that is silent for a moment, as at our
        own start or while it is replaced, is not worth two writes for each claim."""
        now = self._monotonic()
        health = {grant.device: self._health(grant.device).health for grant in entry.grants}
        for device in [device for device, found in health.items() if found is not Health.UNKNOWN]:
            self._silent_since.pop(device, None)
        return all(
            now - self._silent_since.setdefault(device, now) >= _SILENT_FOR_LONG
            for device, found in health.items()
            if found is Health.UNKNOWN
        )

    def _wanted(self, seen: _Seen, entry: Entry) -> list[DeviceStatus]:
        now = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return device_statuses(entry, node=self._node, health=self._health, before=seen.devices, now=now)

    async def _write(self, seen: _Seen, wanted: list[DeviceStatus]) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                raw = await self._apply(seen.ref, wanted)
            except Unavailable as error:
                if attempt == _TRIES:
                    _log.warning("status of ResourceClaim %s is not written: %s", seen.ref, error)
                    return  # whoever reads the claim next brings it up again
                await self._sleep(self._backoff.delay(attempt, error.retry_after))
            except (NotFound, Conflict) as error:
                _log.debug("status of ResourceClaim %s: %s", seen.ref, error)
                seen.devices = wanted  # it is gone, or another one by now
                return
            except ApiError as error:
                self._refused(seen, wanted, error)
                return
            else:
                seen.devices = own_statuses(raw, self._node)
                if not seen.devices:
                    self._be_quiet(
                        "the API server drops status.devices: is DRAResourceClaimDeviceStatus off?"
                    )
                elif seen.devices != wanted:
                    _log.debug("status of ResourceClaim %s is stored in other words", seen.ref)
                    seen.devices = wanted
                return

    async def _apply(self, ref: ClaimRef, devices: list[DeviceStatus]) -> dict[str, Any]:
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": ref.name, "namespace": ref.namespace, "uid": ref.uid},
            "status": {"devices": devices},
        }
        return await self._client.patch(
            paths.resource_claim_status(ref.namespace, ref.name),
            body,
            content_type=_SERVER_SIDE_APPLY,
            params={"fieldManager": DRIVER, "force": "true"},
        )

    def _refused(self, seen: _Seen, wanted: list[DeviceStatus], error: ApiError) -> None:
        if error.status == 403:
            self._be_quiet(
                f"status.devices of claims can't be written: {error}; grant it (resourceclaims/status and"
                " resourceclaims/driver, see the chart's role) or switch it off with --claim-status=false"
            )
            return
        _log.warning("status of ResourceClaim %s is refused: %s", seen.ref, error)
        seen.devices = wanted  # the same again would be refused again

    def _be_quiet(self, why: str) -> None:
        self._quiet_until = self._monotonic() + _QUIET
        self._told(why)
