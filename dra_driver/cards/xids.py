"""Errors that cards report, by NVIDIA's numbers (XIDs): which count, and when one is over. Pure.

An error is remembered, over restarts of the agent too, until one of these is seen:

1. the node boots, or the NVIDIA kernel driver is loaded anew (`life` is another one);
2. the card did not answer after the error, and answers again: it was reset or plugged in anew;
3. the driver itself says that the card needs nothing (`nvidia-smi -q`: GPU Recovery Action: None): at once
   if it had said before that the card needs something, else `SETTLED` seconds after the last error, which is
   how long the driver is given to make up its mind;
4. an administrator removes its file (xid_files.py).

Drivers before about 550, and some cards, know nothing of recovery actions: there 1, 2 and 4 remain.

A card that needs something, without an error of which we know (the agent was away when it happened), has the
number by which the driver announces just that: 154.

Errors that a program causes in its own context say nothing of the card; they are counted and forgotten. A
double-bit ECC event is the error 48. Single-bit errors are corrected and no fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

RECOVERY_ACTION_CHANGED = 154
DOUBLE_BIT_ECC = 48
APPLICATION = frozenset({13, 31, 43, 45, 68, 109})
"""Graphics engine exception, page fault, stopped processing, preemptive cleanup, video processor exception,
context switch timeout."""
SETTLED = 300.0
_NONE = 0  # the recovery action; every other one is something that somebody must do
_ACTIONS = {
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer traffic",
    4: "drain the GPU and reset it",
    5: "recover the IMEX domain",
    6: "reset the GPU's bus",
    7: "reboot the system",
}
# Numbers that have a series of their own in the metrics, besides the applications'.
NOTABLE = frozenset({46, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 123, 140, 143, 154})


class Xid(msgspec.Struct, frozen=True, kw_only=True):
    """An error that stands. Times are seconds since the epoch.

    `uuid`: of the GPU, or of the instance that alone is meant; `gpu_uuid`: of the GPU in both cases.
    `life`: boot and driver in which it was reported. `gone`: the card did not answer since. `asked`: the
    driver has said since that the card needs something.
    """

    uuid: str
    gpu_uuid: str
    number: int
    first: float
    last: float
    life: str
    gone: bool = False
    asked: bool = False


@dataclass(frozen=True)
class Sight:
    """What a look at the driver has shown of a GPU. `action`: what it says the GPU needs; None: it can't."""

    answers: bool
    action: int | None = None

    @property
    def needs_something(self) -> bool:
        return self.action is not None and self.action != _NONE


def is_fault(number: int, ignored: frozenset[int]) -> bool:
    """Whether an error is the card's own. `ignored`: further ones that an administrator doesn't mind."""
    return number not in APPLICATION and number not in ignored and number != RECOVERY_ACTION_CHANGED


def reported(known: Xid | None, new: Xid) -> Xid:
    """The first of several is the cause: it stays until it is over."""
    if known is None or known.life != new.life:
        return new
    return msgspec.structs.replace(known, last=max(known.last, new.last))


def seen(known: Xid, sight: Sight, now: float) -> Xid | None:
    """What becomes of a known error when its card is looked at; None: it is over."""
    if known.last > now:  # the clock was set back, so this is counted from here on
        known = msgspec.structs.replace(known, first=min(known.first, now), last=now)
    if not sight.answers:
        return msgspec.structs.replace(known, gone=True)
    if sight.needs_something:
        return msgspec.structs.replace(known, gone=False, asked=True)
    if known.gone:
        return None
    if sight.action == _NONE and (known.asked or now - known.last >= SETTLED):
        return None
    return known


def looked(
    known: Mapping[str, Xid], sights: Mapping[str, Sight], instances: frozenset[str], life: str, now: float
) -> dict[str, Xid]:
    """All errors after a look: those known that are not over, and the needs of cards that have none.

    `known`: by UUID. `sights`: by GPU. `instances`: UUIDs of the MIG instances that there are: an error of
    one that is no more is over.
    """
    found: dict[str, Xid] = {}
    for uuid, xid in known.items():
        sight = sights.get(xid.gpu_uuid, Sight(answers=False))
        is_no_more = sight.answers and uuid != xid.gpu_uuid and uuid not in instances
        after = None if is_no_more or xid.life != life else seen(xid, sight, now)
        if after is not None:
            found[uuid] = after
    for uuid, sight in sights.items():
        if sight.needs_something and all(xid.gpu_uuid != uuid for xid in found.values()):
            found[uuid] = Xid(
                uuid=uuid,
                gpu_uuid=uuid,
                number=RECOVERY_ACTION_CHANGED,
                first=now,
                last=now,
                life=life,
                asked=True,
            )
    return found


def describe(xid: Xid, action: int | None = None) -> str:
    """For people: what happened and what is to be done."""
    what = (
        "the NVIDIA driver says that the card needs attention"
        if xid.number == RECOVERY_ACTION_CHANGED
        else f"XID {xid.number} reported by the card"
    )
    if action == _NONE:
        return f"{what}; the driver wants nothing done, so the taint goes {SETTLED:g} s after the last error"
    advice = "reset the card or reboot the node"
    if action is not None:
        advice = _ACTIONS.get(action, f"recovery action {action}")
    return f"{what}; {advice}, and the taint goes"


def label(number: int) -> str:
    """Of the metrics: a closed set."""
    return str(number) if number in NOTABLE or number in APPLICATION else "other"


LABELS = (*(str(number) for number in sorted(NOTABLE | APPLICATION)), "other")
