"""What the containers of a Pod ask for, together → the requests of one claim. Pure.

Application containers and sidecars run at the same time: each has a request of its own. Init containers run
before the application containers and one after the other, so they use the requests of those (raised where
they need more), or one among themselves: the peak, not the sum. A container that is to have less than its
request has the smaller numbers as a cap. A sidecar's request is never lent: the sidecar is running.

Where an init container could use several requests, the one that has to grow least is taken; never two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from claim_mutator.container import Kind, Percent, Reading, Request
from claim_mutator.names import MAX_CAPS


@dataclass(frozen=True)
class Cap:
    """A container's limit where it is smaller than its request's. None: as the request."""

    container: str
    memory: int | None
    """MiB."""
    cores: int | None


@dataclass(frozen=True)
class Share:
    """One request of the claim, and the caps of those who use it."""

    request: Request
    caps: tuple[Cap, ...] = ()


@dataclass(frozen=True)
class Shape:
    """Equal shapes share a template. `shares` are in the order of their first container, init first."""

    shares: tuple[Share, ...]
    selectors: tuple[str, ...] = ()
    same_numa_node: bool = False

    @property
    def devices(self) -> int:
        return sum(share.request.count for share in self.shares)


@dataclass(frozen=True)
class Assignment:
    """The shape, and for each reading that asks for cards the index of its share."""

    shape: Shape
    users: tuple[tuple[Reading, int], ...]


class _Slot:
    def __init__(self, request: Request, lendable: bool) -> None:
        self.request = request
        self.lendable = lendable
        self.users: list[Reading] = []

    def share(self) -> Share:
        return Share(self.request, tuple(filter(None, (_cap(user, self.request) for user in self.users))))


def assign(
    readings: Iterable[Reading], *, selectors: tuple[str, ...] = (), same_numa_node: bool = False
) -> Assignment:
    """Readings in the order of the Pod, init containers first; those without a request are left out."""
    asking = [reading for reading in readings if reading.request is not None]
    slots: list[_Slot] = []
    by_reading: dict[int, _Slot] = {}
    # Longest-lived first, so that init containers find what they can use.
    for reading in sorted(asking, key=lambda reading: reading.kind is Kind.INIT):
        request = _request(reading)
        slot = _lent(slots, request) if reading.kind is Kind.INIT else None
        if slot is None:
            slot = _Slot(request, lendable=reading.kind is not Kind.SIDECAR)
            slots.append(slot)
        slot.request = _peak(slot.request, request) or slot.request
        slot.users.append(reading)
        by_reading[id(reading)] = slot
    ordered = list(dict.fromkeys(by_reading[id(reading)] for reading in asking))
    for slot in ordered:
        slot.users.sort(key=asking.index)
    shape = Shape(tuple(slot.share() for slot in ordered), selectors, same_numa_node)
    return Assignment(shape, tuple((reading, ordered.index(by_reading[id(reading)])) for reading in asking))


def _lent(slots: list[_Slot], request: Request) -> _Slot | None:
    """The slot that has to grow least to hold the request; of those the smallest."""
    best: tuple[tuple[float, int, float], _Slot] | None = None
    for slot in slots:
        if not slot.lendable or len(slot.users) >= MAX_CAPS:
            continue
        peak = _peak(slot.request, request)
        if peak is None:
            continue
        held, needed = _amount(slot.request), _amount(peak)
        growth = 0.0 if held == needed else needed - held
        cost = (growth, peak.cores - slot.request.cores, held)
        if best is None or cost < best[0]:
            best = (cost, slot)
    return best[1] if best else None


def _peak(one: Request, other: Request) -> Request | None:
    """The smallest request that holds either; None where that can't be said (percentages)."""
    if one.count != other.count:
        return None
    cores = max(one.cores, other.cores)
    if one.memory == other.memory:
        return replace(one, cores=cores)
    if isinstance(one.memory, Percent) or isinstance(other.memory, Percent):
        return None
    if one.memory is None or other.memory is None:
        return replace(one, memory=None, cores=cores)
    return replace(one, memory=max(one.memory, other.memory), cores=cores)


def _amount(request: Request) -> float:
    return float(request.memory) if isinstance(request.memory, int) else float("inf")


def _cap(user: Reading, held: Request) -> Cap | None:
    own = _request(user)
    memory = own.memory if isinstance(own.memory, int) and own.memory != held.memory else None
    cores = own.cores if own.cores and own.cores < held.cores else None
    return Cap(user.name, memory, cores) if memory is not None or cores is not None else None


def _request(reading: Reading) -> Request:
    if reading.request is None:
        raise ValueError("a container that asks for nothing has no request")
    return reading.request
