"""Allocation + inventory → the grants to hand out. Pure; refuses what can't be honoured.

The scheduler has counted already, but it can be wrong (a force-deleted Pod's share is given out again before
its containers are gone) and its view can be forged, so the sum over a card is checked once more.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dra_driver.cards.capacity import NOTHING, Amounts, Scales, capacity_of, own_memory
from dra_driver.cards.inventory import Card, Inventory
from dra_driver.cards.rules import Interposition, MemoryOverflow
from dra_driver.claims.allocation import Allocation, ClaimRef, Result
from dra_driver.claims.config import Terms, terms_of
from dra_driver.claims.share_config import CorePolicy, Enforcement
from dra_driver.errors import OvercommitError, PermanentError, RetryableError
from dra_driver.names import DeviceName
from interposer.abi import Cap, Limits, Policy
from kube.quantity import format_bytes

_POLICIES = {
    CorePolicy.DEFAULT: Policy.DEFAULT,
    CorePolicy.FORCE: Policy.FORCE,
    CorePolicy.DISABLE: Policy.DISABLE,
}
_NO_AMOUNTS: Mapping[DeviceName, Amounts] = {}


@dataclass(frozen=True)
class Grant:
    """One card, or one share of it, for the containers of a request.

    `name` is the CDI device's and the directory's. `limits` is None where nothing is enforced: the whole
    card, an administrator's access, or a class that wants no enforcement. `held`: what counts against the
    card.
    """

    name: str
    request: str
    pool: str
    device: DeviceName
    share_id: str | None
    card: Card
    held: Amounts
    limits: Limits | None
    interposition: Interposition = Interposition.PRELOAD
    """Of no meaning without limits."""
    subrequest: str = ""
    """Of a request with alternatives the one that was taken."""

    @property
    def full_request(self) -> str:
        return f"{self.request}/{self.subrequest}" if self.subrequest else self.request

    @property
    def needs_shim(self) -> bool:
        """Whether the library also takes the place of the driver's libraries."""
        return self.limits is not None and self.interposition is Interposition.SHIM


class DriverFiles(enum.Enum):
    """Which document brings the NVIDIA driver's files to a claim's containers."""

    BESIDE = "beside"
    """One of our own for all claims, by a second CDI id."""
    TOOLKIT = "toolkit"
    """The NVIDIA toolkit's, by a second CDI id; it brings the cards, too."""
    WITHIN = "within"
    """The claim's own: where a second CDI id is not known to be there."""


@dataclass(frozen=True)
class Plan:
    """Everything that a claim needs on this node."""

    claim: ClaimRef
    grants: tuple[Grant, ...]
    pod_claim_name: str | None = None
    files: DriverFiles = DriverFiles.BESIDE


def make_plan(
    allocation: Allocation,
    inventory: Inventory,
    scales: Scales,
    interposition: Interposition = Interposition.PRELOAD,
    memory_overflow: MemoryOverflow = MemoryOverflow.SPILL,
) -> Plan:
    """`interposition`, `memory_overflow`: where neither class nor claim says which. Raises ClaimError."""
    cards = inventory.by_device()
    lost = {one.card.name: one.reason for one in inventory.lost}
    names = _grant_names(allocation)
    grants = []
    for result, name in zip(allocation.results, names, strict=True):
        card = cards.get(result.device)
        if card is None and result.device in lost:
            raise RetryableError(
                f"ResourceClaim {allocation.claim}: device {result.device} is lost: {lost[result.device]}"
            )
        if card is None:
            raise RetryableError(
                f"ResourceClaim {allocation.claim}: device {result.device} is not on this node (any more);"
                f" it has {', '.join(cards) or 'no usable card'}"
            )
        terms = terms_of(result, allocation.configs, interposition, memory_overflow)
        grants.append(_grant(allocation.claim, result, card, name=name, terms=terms, scales=scales))
    return Plan(allocation.claim, tuple(grants), allocation.pod_claim_name)


def refuse_overcommit(
    plan: Plan,
    others: Mapping[DeviceName, Amounts],
    scales: Scales,
    before: Mapping[DeviceName, Amounts] = _NO_AMOUNTS,
) -> None:
    """`others`: what the node's other claims hold of each device. Raises RetryableError, OvercommitError.

    `before`: what this claim was prepared with. Containers run with that, so it is never refused again, even
    if the configuration has made the card smaller, or excluded it.
    """
    cards = {grant.device: grant.card for grant in plan.grants}
    for device, card in cards.items():
        there = capacity_of(card, scales)
        wanted = total(grant.held for grant in plan.grants if grant.device == device)
        if wanted == NOTHING or wanted.fits_in(before.get(device, NOTHING)):
            continue
        if card.withheld is not None:
            raise RetryableError(
                f"ResourceClaim {plan.claim}: device {device} takes no new claims: it {card.withheld}"
            )
        held = others.get(device, NOTHING)
        after = held + wanted
        for what, number, limit in (
            ("memory", after.memory, there.memory),
            ("cores", after.cores, there.cores),
            ("shares", after.shares, there.shares),
        ):
            if number > limit:
                show = format_bytes if what == "memory" else str
                raise OvercommitError(
                    f"ResourceClaim {plan.claim}: device {device} would be over-committed, {what}"
                    f" {show(number)} of {show(limit)}: other claims on this node still hold"
                    f" {show(getattr(held, what))}"
                )


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum."""
    result = NOTHING
    for amount in amounts:
        result = result + amount
    return result


def _grant_names(allocation: Allocation) -> list[str]:
    """`<claim uid>-<request>-<first 8 of shareID>`; a number is added to what that leaves ambiguous."""
    names: list[str] = []
    for result in allocation.results:
        parts = [
            allocation.claim.uid,
            result.main_request,
            *([result.share_id[:8]] if result.share_id else []),
        ]
        name = "-".join(parts)
        again = 1
        while name in names:
            again += 1
            name = "-".join([*parts, str(again)])
        names.append(name)
    return names


def _grant(claim: ClaimRef, result: Result, card: Card, *, name: str, terms: Terms, scales: Scales) -> Grant:
    there = capacity_of(card, scales)
    consumed = result.consumed or there
    if consumed.memory <= 0 and not result.admin_access:
        raise PermanentError(
            f"ResourceClaim {claim}: request {result.main_request} was given no memory at all"
        )
    limits = None
    if not result.admin_access and _needs_library(consumed, card, terms, scales):
        limits = _limits(claim, consumed, card, terms, scales)
    return Grant(
        name=name,
        request=result.main_request,
        pool=result.pool,
        device=result.device,
        share_id=result.share_id,
        card=card,
        held=NOTHING if result.admin_access else consumed,
        limits=limits,
        interposition=terms.interposition,
        subrequest=result.request.partition("/")[2],
    )


def _needs_library(consumed: Amounts, card: Card, terms: Terms, scales: Scales) -> bool:
    if terms.enforcement is not None:
        return terms.enforcement is Enforcement.LIBRARY
    # All of the memory means alone on the card; but promised memory beyond the card's own needs the library,
    # and so does memory that is reserved, or belongs to another instance.
    there, own = capacity_of(card, scales), own_memory(card, scales)
    is_alone = consumed.memory >= there.memory and there.memory <= own and own == card.memory_bytes
    is_uncapped = consumed.cores == 0 or consumed.cores >= 100
    return not (is_alone and is_uncapped) or bool(terms.caps)


def _limits(claim: ClaimRef, consumed: Amounts, card: Card, terms: Terms, scales: Scales) -> Limits:
    cores = min(consumed.cores, 100)  # with coreScaling above 1 a claim may ask for more than a card has
    return Limits(
        uuid=card.uuid,
        claim=claim.uid,
        memory_bytes=consumed.memory,
        card_memory_bytes=card.memory_bytes,
        guaranteed_cores=cores,
        effective_cores=cores,
        policy=_POLICIES[terms.core_policy],
        priority=terms.priority,
        spill=scales.memory_scaling > 1 and terms.memory_overflow is MemoryOverflow.SPILL,
        caps=tuple(
            # A class may name more than this share has; the share's own limit holds then.
            Cap(cap.container, min(cap.memory or 0, consumed.memory), cap.cores or 0)
            for cap in terms.caps
        ),
    )
