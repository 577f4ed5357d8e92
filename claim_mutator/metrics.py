"""What the mutator tells Prometheus. One registry per process, handed in, so that tests have their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

RESULTS = ("converted", "untouched", "refused", "failed")
_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Metrics:
    """All series exist from the start, so that rates of rare results are right."""

    def __init__(self) -> None:
        # Series that nobody asks for, one for each of ours.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry(auto_describe=True)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
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
        for result in RESULTS:
            self.admissions.labels(result=result)
            self.seconds.labels(result=result)
