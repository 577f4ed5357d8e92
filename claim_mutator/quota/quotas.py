"""The cluster's ResourceQuotas that concern us, followed, and what our keys of them come to, shown.

Shown: in the quota's own status for keys with `limits.`, which Kubernetes' controller leaves alone; those
with `requests.` it counts by itself, from what Pods no longer have, so there it says 0. And as metrics, for
both. The leader writes, and seldom; nothing is decided by what is written there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from claim_mutator.names import ResourceNames
from claim_mutator.quota import limits
from claim_mutator.quota.cost import Cost
from claim_mutator.quota.gate import Gate
from claim_mutator.quota.limits import Quota
from kube import paths
from kube.client import Client
from kube.errors import ApiError, NotFound
from kube.events import ObjectRef, Recorder
from kube.reflector import Change, Reflector

_log = logging.getLogger(__name__)
UNKEPT = "QuotaNotKept"


class Quotas:
    """`of(namespace)` costs no call."""

    def __init__(
        self,
        client: Client,
        names: ResourceNames,
        memory_factor: int,
        on_gone: Callable[[Quota], None] = lambda _: None,
    ) -> None:
        self._names = names
        self._on_gone = on_gone
        self._memory_factor = memory_factor
        self._by_namespace: dict[str, dict[str, Quota]] = defaultdict(dict)
        self.reflector = Reflector(
            client, paths.resource_quotas(), on_change=self._changed, reduced=_essential
        )

    def of(self, namespace: str) -> Sequence[Quota]:
        """In the order of their names, as Kubernetes asks them."""
        found = self._by_namespace.get(namespace)
        return [found[name] for name in sorted(found)] if found else ()

    @property
    def namespaces(self) -> list[str]:
        return list(self._by_namespace)

    def _changed(self, change: Change) -> None:
        metadata = change.object["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        quota, before = None, self._by_namespace.get(namespace, {}).get(name)
        if change.kind != "DELETED":
            quota = limits.read(change.object, self._names, self._memory_factor)
        if before is not None and (quota is None or quota.limits != before.limits):
            self._on_gone(before)
        if quota is not None:
            self._by_namespace[namespace][name] = quota
            return
        self._by_namespace.get(namespace, {}).pop(name, None)
        if not self._by_namespace.get(namespace, True):
            del self._by_namespace[namespace]


class QuotaReporter:
    """`leads`: whether this replica is the one that writes."""

    def __init__(
        self,
        client: Client,
        quotas: Quotas,
        gate: Gate,
        recorder: Recorder,
        *,
        leads: Callable[[], bool],
        period: float,
        observe: Callable[[Quota, Cost], None],
    ) -> None:
        self._client = client
        self._quotas = quotas
        self._gate = gate
        self._recorder = recorder
        self._leads = leads
        self._period = period
        self._observe = observe
        self._counted: set[str] = set()

    async def run(self) -> NoReturn:
        """A turn each `period` seconds, until cancelled."""
        while True:
            await asyncio.sleep(self._period)
            if self._leads():
                await self.turn()

    async def turn(self) -> None:
        """Never raises: a namespace that can't be counted now is counted next time."""
        for namespace in self._counted - set(self._quotas.namespaces):
            try:
                await self._gate.forget(namespace)
            except ApiError as error:
                _log.info("what was noted for the quotas of %s stays: %s", namespace, error)
        self._counted = set(self._quotas.namespaces)
        for namespace in self._quotas.namespaces:
            try:
                for quota, used in await self._gate.used(namespace):
                    self._observe(quota, used)
                    self._complain(quota)
                    await self._show(quota, used)
            except NotFound:
                continue
            except ApiError as error:
                _log.warning("quotas of %s: %s", namespace, error)

    def _complain(self, quota: Quota) -> None:
        if quota.mistakes:
            about = ObjectRef("v1", "ResourceQuota", quota.name, quota.namespace, quota.uid)
            self._recorder.warn(about, UNKEPT, "; ".join(quota.mistakes))

    async def _show(self, quota: Quota, used: Cost) -> None:
        shown = {
            limit.key: limit.shown(used.of(limit.role))
            for limit in quota.limits
            if limit.key.startswith(limits.PREFIXES[0])
        }
        held = dict(quota.used)
        changed = {key: value for key, value in shown.items() if held.get(key) != value}
        if changed:
            path = paths.resource_quota_status(quota.namespace, quota.name)
            await self._client.patch(path, {"status": {"used": changed}})


def _essential(document: Mapping[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    kept = {key: metadata[key] for key in ("namespace", "name", "uid", "resourceVersion") if key in metadata}
    return {"metadata": kept, "spec": document.get("spec"), "status": document.get("status")}
