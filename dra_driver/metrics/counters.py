"""What happens, counted and timed for Prometheus. What there is at a moment is in figures.py.

Labels come from closed sets; their series exist from the start, so that rates do. Every method may be called
from any thread, and costs microseconds.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter as Counts
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dra_driver.cards import xids
from dra_driver.cards.nvml import NVML_CALLS
from dra_driver.claims.reconcile import OUTCOMES as RECONCILE_ACTIONS
from dra_driver.claims.steps import Step
from dra_driver.errors import ConfigError, GoneError, OvercommitError, PermanentError, RetryableError
from dra_driver.slices import stored
from kube.client import Call
from kube.errors import ApiError

_STEP_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
OPERATIONS = ("prepare", "unprepare")
OUTCOMES = ("success", "retryable", "permanent", "internal")
LOADED = ("success", "failure")
SLICE_VERBS = ("create", "update", "delete")
_NVML_BUCKETS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 15, 60)
_API_BUCKETS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)
OTHER = ("other", "other")
API_CALLS = (
    ("get", "resourceclaims"),
    ("patch", "resourceclaims/status"),
    *((verb, "resourceslices") for verb in ("get", "list", "watch", "create", "update", "delete")),
    ("get", "nodes"),
    ("create", "events"),
    ("patch", "events"),
    OTHER,
)
API_CODES = ("2xx", "404", "409", "410", "429", "4xx", "5xx", "none")
REASONS = (
    "overcommit",
    "gone",
    "config",
    "claim",
    "api-server",
    "files",
    "not-yet",
    "internal",
)
_UNKNOWN_GATE = "unknown"
_GATES = (*stored.GATES, _UNKNOWN_GATE)


class Metrics:
    """All series of the agent that count events."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.registry = registry
        self._count_claims(registry)
        self._count_calls(registry)
        self._count_changes(registry)
        self._initialise()

    def _count_claims(self, registry: CollectorRegistry) -> None:
        self._steps = Histogram(
            "tessera_prepare_seconds",
            "Time of each step of preparing and unpreparing a claim.",
            ["step"],
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self._claims = Counter(
            "tessera_claim_operations",
            "Claims that the kubelet asked to prepare or unprepare, by outcome.",
            ["operation", "outcome"],
            registry=registry,
        )
        self._in_flight = Gauge(
            "tessera_claims_in_flight",
            "Claims that are being prepared or unprepared for the kubelet at this moment.",
            ["operation"],
            registry=registry,
        )
        self._seconds = Histogram(
            "tessera_claim_seconds",
            "Time from the kubelet's question to the answer, of one claim.",
            ["operation"],
            buckets=_STEP_BUCKETS,
            registry=registry,
        )
        self._errors = Counter(
            "tessera_claim_errors",
            "Claims that the kubelet was refused, by reason.",
            ["operation", "reason"],
            registry=registry,
        )

    def _count_calls(self, registry: CollectorRegistry) -> None:
        """To the API server, and into the NVIDIA driver."""
        self._api = Histogram(
            "tessera_api_request_seconds",
            "Time of requests to the API server; of a watch, until its first byte.",
            ["verb", "resource"],
            buckets=_API_BUCKETS,
            registry=registry,
        )
        self._api_codes = Counter(
            "tessera_api_requests",
            "Requests to the API server, by its answer; none: there was no answer.",
            ["verb", "resource", "code"],
            registry=registry,
        )
        self._nvml = Histogram(
            "tessera_nvml_seconds",
            "Time that the NVIDIA driver took to answer; inventory is one look at all cards.",
            ["call"],
            buckets=_NVML_BUCKETS,
            registry=registry,
        )

    def _count_changes(self, registry: CollectorRegistry) -> None:
        """Of slices, grants and cards."""
        self._slice_writes = Counter(
            "tessera_slice_writes",
            "ResourceSlices written to the API server.",
            ["verb"],
            registry=registry,
        )
        self._slice_failures = Counter(
            "tessera_slice_write_failures", "Publishing attempts that failed.", registry=registry
        )
        self._reconciled = Counter(
            "tessera_reconcile",
            "What was done to claims that were not as they should be, by action.",
            ["action"],
            registry=registry,
        )
        self._terms = Counter(
            "tessera_compute_terms",
            "Writes of what compute a grant may have for now: idle shares lent, or taken back.",
            registry=registry,
        )
        self._configurations = Counter(
            "tessera_node_configuration_loads",
            "New contents of the node configuration file, by whether they could be used.",
            ["outcome"],
            registry=registry,
        )
        self._xids = Counter(
            "tessera_xid_events",
            "Errors that the cards have reported, by NVIDIA's number; programs' own errors included.",
            ["xid"],
            registry=registry,
        )
        self._dropped = Gauge(
            "tessera_slice_fields_dropped",
            "Kinds of fields of our ResourceSlices that the API server drops, by the gate that is off.",
            ["gate"],
            registry=registry,
        )

    def _initialise(self) -> None:
        for counter, values in (
            (self._xids, xids.LABELS),
            (self._dropped, _GATES),
            (self._configurations, LOADED),
            (self._reconciled, RECONCILE_ACTIONS),
            (self._steps, [step.value for step in Step]),
            (self._slice_writes, SLICE_VERBS),
            (self._in_flight, OPERATIONS),
            (self._seconds, OPERATIONS),
            (self._nvml, NVML_CALLS),
        ):
            for value in values:
                counter.labels(value)
        for operation in OPERATIONS:
            for outcome in OUTCOMES:
                self._claims.labels(operation, outcome)
            for reason in REASONS:
                self._errors.labels(operation, reason)
        self._step_timers = {step: self._steps.labels(step.value) for step in Step}
        for call in API_CALLS:
            self._api.labels(*call)
            for code in API_CODES:
                self._api_codes.labels(*call, code)

    def step_took(self, step: Step, seconds: float) -> None:
        self._step_timers[step].observe(seconds)

    @contextlib.contextmanager
    def claim(self, operation: str) -> Iterator[None]:
        """Around the work on one claim for the kubelet."""
        began = time.monotonic()
        in_flight = self._in_flight.labels(operation)
        in_flight.inc()
        try:
            yield
        finally:
            in_flight.dec()
            self._seconds.labels(operation).observe(time.monotonic() - began)

    def claim_done(self, operation: str, outcome: str, error: BaseException | None = None) -> None:
        """`error`: why it was refused."""
        self._claims.labels(operation, outcome).inc()
        if error is not None:
            self._errors.labels(operation, reason_of(error)).inc()

    def api_called(self, call: Call) -> None:
        known = (call.verb, call.resource)
        labels = known if known in API_CALLS else OTHER
        self._api.labels(*labels).observe(call.seconds)
        self._api_codes.labels(*labels, _code(call.code)).inc()

    def terms_written(self) -> None:
        self._terms.inc()

    def nvml_took(self, call: str, seconds: float) -> None:
        """`call`: one of NVML_CALLS."""
        self._nvml.labels(call).observe(seconds)

    def reconciled(self, action: str) -> None:
        self._reconciled.labels(action).inc()

    def configuration_loaded(self, can_be_used: bool) -> None:
        self._configurations.labels(LOADED[0] if can_be_used else LOADED[1]).inc()

    def slice_written(self, verb: str) -> None:
        self._slice_writes.labels(verb).inc()

    def slice_write_failed(self) -> None:
        self._slice_failures.inc()

    def slice_fields_dropped(self, gates: Iterable[str | None]) -> None:
        """Of each field that is dropped now, the gate, if it is known."""
        dropped = Counts(gate or _UNKNOWN_GATE for gate in gates)
        for gate in _GATES:
            self._dropped.labels(gate).set(dropped[gate])

    def xid(self, number: int) -> None:
        """A card has reported an error."""
        self._xids.labels(xids.label(number)).inc()

    def render(self) -> bytes:
        """The text that Prometheus reads. Does the IO of what else is registered."""
        return generate_latest(self.registry)


def reason_of(error: BaseException) -> str:
    """One of REASONS."""
    causes = (error, error.__cause__)
    for reason, kinds in (
        ("overcommit", OvercommitError),
        ("gone", GoneError),
        ("config", ConfigError),
        ("api-server", ApiError),
        ("files", OSError),
        ("claim", PermanentError),
    ):
        if any(isinstance(each, kinds) for each in causes):
            return reason
    return "not-yet" if isinstance(error, RetryableError) else "internal"


def _code(code: int) -> str:
    if code == 0:
        return "none"
    return str(code) if str(code) in API_CODES else f"{code // 100}xx"
