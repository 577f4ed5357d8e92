"""Which of several replicas does what only one should do: a Lease, as Kubernetes' own controllers have it.

Whether somebody else's lease has run out is judged by how long it has not changed here, so clocks of
different machines need not agree. A leader that can't renew in time stops being one before the others may
start. There can still be two for a moment (a process that was suspended): what a leader does has to be safe
against that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NoReturn

from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound

_log = logging.getLogger(__name__)
_MARGIN = 0.7  # of the duration: as long as a leader leads without having renewed


class Leader:
    """`identity`: of this process. `duration`: seconds for which a lease holds; renewed three times in it."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        *,
        duration: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._duration = duration
        self._clock = clock
        self._until = float("-inf")
        self._seen: tuple[Any, ...] = ()
        self._seen_at = float("-inf")
        self._was = False

    @property
    def leads(self) -> bool:
        return self._clock() < self._until

    async def run(self) -> NoReturn:
        """Takes the lease whenever it is to be had, and renews it, until cancelled."""
        while True:
            try:
                await self.turn()
            except ApiError as error:
                _log.warning("lease %s/%s: %s", self._namespace, self._name, error)
            if self.leads != self._was:
                self._was = self.leads
                _log.info("this replica %s", "leads now" if self._was else "does not lead any more")
            await asyncio.sleep(self._duration / 3)

    async def turn(self) -> None:
        """Takes or renews the lease, if nobody else has it. Raises ApiError."""
        asked = self._clock()
        try:
            lease = await self._client.get(paths.lease(self._namespace, self._name))
        except NotFound:
            lease = {}
        spec = lease.get("spec") or {}
        if not self._is_free(spec, asked):
            return
        try:
            await self._write(lease, self._claimed(spec))
        except (Conflict, AlreadyExists, NotFound):
            return  # another replica was faster
        self._until = asked + _MARGIN * self._duration

    async def release(self) -> None:
        """Lets another replica take over at once. Never raises."""
        if not self.leads:
            return
        self._until = float("-inf")
        try:
            lease = await self._client.get(paths.lease(self._namespace, self._name))
            if (lease.get("spec") or {}).get("holderIdentity") == self._identity:
                await self._write(lease, {**lease["spec"], "holderIdentity": ""})
        except (ApiError, TimeoutError) as error:
            _log.info("lease %s/%s runs out by itself: %s", self._namespace, self._name, error)

    def _is_free(self, spec: dict[str, Any], now: float) -> bool:
        """Held by nobody, by us, or by somebody who has not renewed it for its duration."""
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"), spec.get("leaseTransitions"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, now
        lasts = float(spec.get("leaseDurationSeconds") or self._duration)
        return holder in ("", self._identity) or now - self._seen_at > lasts

    def _claimed(self, spec: dict[str, Any]) -> dict[str, Any]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_new = spec.get("holderIdentity") != self._identity
        changed = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": max(1, round(self._duration)),
            "renewTime": now,
        }
        if is_new:
            transitions = int(spec.get("leaseTransitions") or 0) + 1
            changed |= {"acquireTime": now, "leaseTransitions": transitions}
        return spec | changed

    async def _write(self, lease: dict[str, Any], spec: dict[str, Any]) -> None:
        if lease:
            await self._client.replace(paths.lease(self._namespace, self._name), lease | {"spec": spec})
            return
        document = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name},
            "spec": spec,
        }
        await self._client.create(paths.leases(self._namespace), document)
