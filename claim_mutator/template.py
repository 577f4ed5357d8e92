"""Shape → the spec of its ResourceClaimTemplate, and its name. Pure; equal shapes give equal bytes.

Names follow the content, so all replicas of a workload, and all workloads of a namespace that ask for the
same, share one template, and nobody has to remember which is whose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from claim_mutator.alternatives import Alternative, alternatives, needs_sizes
from claim_mutator.cluster import Cluster
from claim_mutator.names import CONFIG_API_VERSION, DRIVER, MANAGED_BY, MAX_UNLIKE, MEBIBYTE, MUTATOR
from claim_mutator.placement import ANY, Level
from claim_mutator.rules import DeviceClasses
from claim_mutator.shape import Amount, Shape, Share
from claim_mutator.terms import CorePolicy, Terms
from kube.quantity import format_bytes

NAME_PREFIX = "tessera-"


@dataclass(frozen=True)
class Template:
    """A ResourceClaimTemplate without its namespace."""

    name: str
    spec: dict[str, Any]
    request_names: tuple[tuple[str, ...], ...]
    """For each share of the shape the names of the requests that a container refers to."""

    def document(self, namespace: str, *, managed: bool = True) -> dict[str, Any]:
        """managed: by the mutator, whose keeper removes it when no Pod uses it."""
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {
                "name": self.name,
                **({"namespace": namespace} if namespace else {}),
                **({"labels": {MANAGED_BY: MUTATOR}} if managed else {}),
            },
            "spec": self.spec,
        }

    @property
    def devices(self) -> dict[str, Any]:
        found: dict[str, Any] = self.spec["spec"]["devices"]
        return found


def template_of(shape: Shape, cluster: Cluster, classes: DeviceClasses | None = None) -> Template:
    """Percentages must be resolvable: at least one card size, at most eight."""
    builder = _Builder(shape, cluster, classes or DeviceClasses())
    for index in range(len(shape.shares)):
        builder.add_share(index)
    for used in shape.together:
        builder.add_constraints(used)
    spec = {"spec": {"devices": builder.devices()}}
    digest = hashlib.sha256(canonical(spec)).hexdigest()
    return Template(NAME_PREFIX + digest[:16], spec, tuple(builder.names))


def canonical(spec: dict[str, Any]) -> bytes:
    """JSON with sorted keys, no spaces, UTF-8."""
    return msgspec.json.encode(spec, order="sorted")


class _Builder:
    def __init__(self, shape: Shape, cluster: Cluster, classes: DeviceClasses) -> None:
        self._shape = shape
        self._cluster = cluster
        self._classes = classes
        self._requests: list[dict[str, Any]] = []
        self._constraints: list[dict[str, Any]] = []
        self._config: list[dict[str, Any]] = []
        self._alternatives: list[list[Alternative]] = []
        self.names: list[tuple[str, ...]] = []

    def devices(self) -> dict[str, Any]:
        found: dict[str, Any] = {"requests": self._requests}
        if self._constraints:
            found["constraints"] = self._constraints
        if self._config:
            found["config"] = self._config
        return found

    def add_share(self, index: int) -> None:
        share = self._shape.shares[index]
        names, each = self._request_names(index)
        forms = alternatives(share, self._shape, self._levels(index, names), self._cluster)
        self.names.append(names)
        self._alternatives.append(forms)
        terms = _effective(share)
        for name in names:
            bodies = [{"name": form.name} | self._body(form, terms, each) for form in forms]
            if len(bodies) > 1:
                self._requests.append({"name": name, "firstAvailable": bodies})
            else:
                del bodies[0]["name"]
                self._requests.append({"name": name, "exactly": bodies[0]})
        self._add_config(share, terms, names, forms)

    def add_constraints(self, used: tuple[int, ...]) -> None:
        """Between the cards of one container."""
        names = [name for index in used for name in self.names[index]]
        self._constraints.append({"requests": names, "distinctAttribute": f"{DRIVER}/uuid"})
        forms = {index: self._alternatives[index] for index in used}
        for level in dict.fromkeys(form.level for index in used for form in forms[index]):
            if level.match is None:
                continue
            listed = names
            if any(form.level != level for index in used for form in forms[index]):
                listed = [
                    f"{name}/{form.name}"
                    for index in used
                    for name in self.names[index]
                    for form in forms[index]
                    if form.level == level
                ]
            self._constraints.append({"requests": listed, "matchAttribute": level.match})

    def _request_names(self, index: int) -> tuple[tuple[str, ...], int]:
        """The names, and how many cards each of them has."""
        share = self._shape.shares[index]
        count = share.count
        # Cards of one request have one form, and so one size. Single cards may differ; the search for many
        # of them takes too long where they don't fit.
        if count <= MAX_UNLIKE and needs_sizes(share) and self._cluster.lacks_alike(count):
            return tuple(f"g{index}-{card}" for card in range(count)), 1
        split = any(index in used and len(used) > 1 for used in self._shape.together)
        distinct = self._cluster.counts_are_distinct and not (
            split and not self._cluster.counts_are_distinct_across_requests
        )
        if count == 1 or distinct:
            return (f"g{index}",), count
        return tuple(f"g{index}-{card}" for card in range(count)), 1

    def _levels(self, index: int, names: tuple[str, ...]) -> tuple[Level, ...]:
        """Several requests each choose a level of their own, so only one request can prefer some to others.

        What binds they choose alike, unless a node tells the NUMA node of some of its cards only. The search
        for many cards that have two forms each takes too long where they don't fit.
        """
        groups = [used for used in self._shape.together if index in used]
        if not groups:
            return (ANY,)
        if len(names) == 1 and all(len(used) == 1 for used in groups):
            return self._shape.levels
        if self._shape.levels[-1].selector is None:
            return self._shape.levels[-1:]
        cards = max(sum(self._shape.shares[each].count for each in used) for used in groups)
        return self._shape.levels if cards <= MAX_UNLIKE else self._shape.levels[:1]

    def _body(self, form: Alternative, terms: Terms, count: int) -> dict[str, Any]:
        body: dict[str, Any] = {
            "deviceClassName": self._class(form, terms),
            "allocationMode": "ExactCount",
            "count": count,
        }
        if form.selectors:
            body["selectors"] = [{"cel": {"expression": text}} for text in form.selectors]
        if form.capacity:
            body["capacity"] = {"requests": form.capacity}
        return body

    def _class(self, form: Alternative, terms: Terms) -> str:
        if form.instance:
            return self._classes.mig
        if terms.unlimited or terms.core_policy is CorePolicy.DISABLE:
            return self._classes.trusted
        return self._classes.priority if terms.high else self._classes.shared

    def _add_config(
        self, share: Share, terms: Terms, names: tuple[str, ...], forms: list[Alternative]
    ) -> None:
        parameters = [{} if form.instance else _parameters(share, terms, form.size) for form in forms]
        if all(each == parameters[0] for each in parameters):
            self._configure(names, parameters[0])
            return
        for form, each in zip(forms, parameters, strict=True):
            self._configure([f"{name}/{form.name}" for name in names], each)

    def _configure(self, requests: Iterable[str], parameters: dict[str, Any]) -> None:
        if parameters:
            head = {"apiVersion": CONFIG_API_VERSION, "kind": "ShareConfig"}
            opaque = {"driver": DRIVER, "parameters": head | parameters}
            self._config.append({"requests": list(requests), "opaque": opaque})


def _effective(share: Share) -> Terms:
    """Without what changes nothing, so that more Pods share a template, and nobody needs to be trusted."""
    amount, terms = share.amount, share.terms
    alone = amount.alone or amount.whole
    enforced = not (amount.alone and amount.whole)
    throttled = 0 < amount.cores < 100 or any(0 < cap.amount.cores < 100 for cap in share.caps)
    return Terms(
        high=terms.high and not alone,
        core_policy=terms.core_policy if throttled and not terms.unlimited else CorePolicy.DEFAULT,
        unlimited=terms.unlimited and enforced,
    )


def _parameters(share: Share, terms: Terms, size: int | None) -> dict[str, Any]:
    """A claim can only tighten what its class says: the trusted class is loose in all."""
    if terms.unlimited:
        return {}
    found: dict[str, Any] = {}
    if terms.core_policy is CorePolicy.DISABLE:
        found |= {"enforcement": "library"} | ({} if terms.high else {"priority": 1})
    elif terms.core_policy is CorePolicy.FORCE:
        found["corePolicy"] = CorePolicy.FORCE.value
    caps = []
    for cap in share.caps:
        limits = _cap(cap.amount, share.amount, size)
        if limits:
            caps.append({"container": cap.container} | limits)
    return found | ({"caps": caps} if caps else {})


def _cap(own: Amount, held: Amount, size: int | None) -> dict[str, Any]:
    """What of the container's amount is less than its share's, on a card of this size."""
    found: dict[str, Any] = {}
    if not own.whole:
        memory = own.memory(size or 0)
        if held.whole or memory < held.memory(size or 0):
            found["memory"] = format_bytes(memory * MEBIBYTE)
    if 0 < own.cores < 100 and own.cores != held.cores:
        found["cores"] = own.cores
    return found
