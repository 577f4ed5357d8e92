"""What the mutator tells Prometheus. One registry per process, handed in, so that tests have their own."""

from __future__ import annotations

import contextlib
import math

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from claim_mutator.names import Role
from claim_mutator.quota.cost import Cost
from claim_mutator.quota.limits import Limit, Quota

RESULTS = ("converted", "untouched", "restored", "told", "refused", "failed")
REASONS = ("resources", "annotations", "securityContext", "nodeName", "claim", "quota", "unreadable")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


_ZONE = "vGPU"  # HAMi's metrics all have it


class Metrics:
    """All series exist from the start, so that rates of rare results are right. legacy: HAMi's names, too."""

    def __init__(self, *, legacy: bool = False) -> None:
        # Series that nobody asks for, one for each of ours.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._count_reviews()
        self._count_templates()
        self._count_quotas()
        self._legacy = _LegacyQuotas(self.registry) if legacy else None

    def _count_reviews(self) -> None:
        self.admissions = Counter(
            "tessera_mutator_admissions",
            "Admission reviews answered, by result.",
            ["result"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "tessera_mutator_admission_duration_seconds",
            "Time from a review's last byte to its answer, by result.",
            ["result"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self.refusals = Counter(
            "tessera_mutator_refusals",
            "Pods refused, by what in them was the reason.",
            ["reason"],
            registry=self.registry,
        )
        for reason in REASONS:
            self.refusals.labels(reason=reason)
        self._of_result = {
            result: (self.admissions.labels(result=result), self.seconds.labels(result=result))
            for result in RESULTS
        }

    def _count_templates(self) -> None:
        """And what else a replica looks after."""
        self.templates_created = Counter(
            "tessera_mutator_templates_created",
            "ResourceClaimTemplates made by this process.",
            registry=self.registry,
        )
        self.templates = Gauge(
            "tessera_mutator_templates",
            "ResourceClaimTemplates of ours that are known.",
            registry=self.registry,
        )
        self.certificate_expiry = Gauge(
            "tessera_mutator_certificate_expiry_timestamp_seconds",
            "When the serving certificate in use ends.",
            registry=self.registry,
        )
        self.templates_removed = Counter(
            "tessera_mutator_templates_removed",
            "ResourceClaimTemplates that nobody used, removed by this process.",
            registry=self.registry,
        )
        self.leads = Gauge(
            "tessera_mutator_leads",
            "1 for the replica that removes unused templates and counts quotas.",
            registry=self.registry,
        )

    def _count_quotas(self) -> None:
        quota = ("namespace", "quota", "key")
        self.quota_used = Gauge(
            "tessera_quota_used",
            "What a ResourceQuota's key of ours comes to, in the quota's unit; as last counted here.",
            quota,
            registry=self.registry,
        )
        self.quota_hard = Gauge(
            "tessera_quota_hard", "What it may come to at most.", quota, registry=self.registry
        )

    def answered(self, result: str, reason: str, seconds: float) -> None:
        """A review. reason: of a refusal."""
        admissions, durations = self._of_result[result]
        admissions.inc()
        durations.observe(seconds)
        if reason:
            self.refusals.labels(reason=reason).inc()

    def counted(self, quota: Quota, used: Cost) -> None:
        for limit in quota.limits:
            labels = (quota.namespace, quota.name, limit.key)
            self.quota_used.labels(*labels).set(float(limit.shown(used.of(limit.role))))
            self.quota_hard.labels(*labels).set(float(limit.most / limit.unit))
            if self._legacy is not None:
                self._legacy.counted(quota, limit, used)

    def gone(self, quota: Quota) -> None:
        """A quota, or one of its keys."""
        for limit in quota.limits:
            for gauge in (self.quota_used, self.quota_hard):
                with contextlib.suppress(KeyError):
                    gauge.remove(quota.namespace, quota.name, limit.key)
            if self._legacy is not None:
                self._legacy.gone(quota, limit)


class _LegacyQuotas:
    """HAMi's metrics of quotas: of `limits.` alone, of memory and compute. Its quota_name is the resource's;
    used is MiB or percent, also where memory is limited in larger units.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("zone", "namespace", "quota_name")
        self._used = Gauge(
            "hami_resource_quota_used",
            "MiB or percent that a namespace uses of a limited resource.",
            (*labels, "limit"),
            registry=registry,
        )
        self._limit = Gauge(
            "hami_resource_quota_limit", "What it may use, as limited.", labels, registry=registry
        )

    def counted(self, quota: Quota, limit: Limit, used: Cost) -> None:
        if name := _legacy_name(limit):
            most = limit.most / limit.unit
            labels = (_ZONE, quota.namespace, name)
            self._used.labels(*labels, str(math.floor(most))).set(used.of(limit.role))
            self._limit.labels(*labels).set(float(most))

    def gone(self, quota: Quota, limit: Limit) -> None:
        labels = (_ZONE, quota.namespace, _legacy_name(limit))
        with contextlib.suppress(KeyError):
            self._used.remove(*labels, str(math.floor(limit.most / limit.unit)))
        with contextlib.suppress(KeyError):
            self._limit.remove(*labels)


def _legacy_name(limit: Limit) -> str:
    prefix, _, name = limit.key.partition(".")
    return name if prefix == "limits" and limit.role in (Role.MEMORY, Role.CORES) else ""
