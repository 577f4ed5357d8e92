"""Pods and claims of a namespace → what is used of its quotas. Pure.

A Pod counts as it does for Kubernetes: until it has ended, and not when it is stuck in its deletion.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from claim_mutator.quota import cost, limits
from claim_mutator.quota.cost import NOTHING, Cost, Demand, Sizes
from claim_mutator.quota.limits import ANY_POD, Quota, Traits
from claim_mutator.template import NAME_PREFIX

MARK = "tessera.dev/admission"
"""Annotation of a Pod that a quota was asked about: the review that let it in."""
_POD_CLAIM = "resource.kubernetes.io/pod-claim-name"


@dataclass(frozen=True)
class Held:
    """A Pod with claims from our templates. claims: (name in the Pod, template)."""

    uid: str
    claims: tuple[tuple[str, str], ...]
    traits: Traits
    cost: Cost = NOTHING


@dataclass(frozen=True)
class Reservation:
    """A Pod that has been let in. at: seconds since 1970."""

    mark: str
    at: float
    cost: Cost
    traits: Traits = ANY_POD


def mark_of(pod: Mapping[str, Any]) -> str:
    return str((pod["metadata"].get("annotations") or {}).get(MARK) or "")


def held(pod: Mapping[str, Any], now: dt.datetime) -> Held | None:
    """None for a Pod that does not count."""
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    claims = tuple(
        (str(claim.get("name") or ""), str(claim["resourceClaimTemplateName"]))
        for claim in spec.get("resourceClaims") or ()
        if str(claim.get("resourceClaimTemplateName") or "").startswith(NAME_PREFIX)
    )
    if not claims or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return None
    if _is_stuck(metadata, now):
        return None
    return Held(str(metadata.get("uid") or ""), claims, limits.traits_of(pod))


def costed(
    pods: Iterable[Held],
    demands: Mapping[str, Demand | None],
    claims: Mapping[tuple[str, str], Mapping[str, Any]] | None,
    sizes: Sizes,
    instance_class: str,
) -> list[Held] | None:
    """demands: of our templates, by name. claims: by their Pod's uid and their name in it.

    None, if the claims have to be known for it and are not given.
    """
    found = []
    for pod in pods:
        total = Cost()
        for name, template in pod.claims:
            demand = demands.get(template)
            if demand is not None and cost.is_settled(demand, sizes):
                total += cost.most(demand, sizes) or Cost()
            elif claims is None:
                return None
            else:
                total += _of_claim(claims.get((pod.uid, name)), demand, sizes, instance_class)
        found.append(replace(pod, cost=total))
    return found


def used(quota: Quota, pods: Iterable[Held], reservations: Iterable[Reservation]) -> Cost:
    """Of those whom the quota is for."""
    total = Cost()
    for each in pods:
        total += each.cost if quota.covers(each.traits) else NOTHING
    for reservation in reservations:
        total += reservation.cost if quota.covers(reservation.traits) else NOTHING
    return total


def place(claim: Mapping[str, Any]) -> tuple[str, str]:
    """uid of the Pod that a claim belongs to, and its name in it; both may be empty."""
    metadata = claim["metadata"]
    owners = (each for each in metadata.get("ownerReferences") or () if each.get("kind") == "Pod")
    uid = next((str(each.get("uid") or "") for each in owners), "")
    return uid, str((metadata.get("annotations") or {}).get(_POD_CLAIM) or "")


def _of_claim(
    claim: Mapping[str, Any] | None, demand: Demand | None, sizes: Sizes, instance_class: str
) -> Cost:
    """What is allocated says what it came to; before, and while it is not there yet, it is what it may."""
    if claim is not None:
        given = cost.allocated(claim)
        if given is not None:
            return given
        demand = cost.demand_of(claim.get("spec") or {}, instance_class)
    return (cost.most(demand, sizes) if demand is not None else None) or Cost()


def _is_stuck(metadata: Mapping[str, Any], now: dt.datetime) -> bool:
    deleted, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    if not deleted or grace is None:
        return False
    try:
        return now > dt.datetime.fromisoformat(deleted) + dt.timedelta(seconds=int(grace))
    except (ValueError, TypeError):
        return False
