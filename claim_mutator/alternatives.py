"""One share → the forms in which the scheduler may serve it, best first. Pure.

More than one where it depends on the card how much memory a percentage is, where the Pod prefers cards that
are near each other, or where MIG instances of several sizes would do (the smallest first).
"""

from __future__ import annotations

from dataclasses import dataclass

from claim_mutator.cluster import Cluster
from claim_mutator.names import (
    CAPACITY_CORES,
    CAPACITY_MEMORY,
    CAPACITY_SHARES,
    DRIVER,
    MAX_ALTERNATIVES,
    MEBIBYTE,
    WHOLE_CARD_SHARES,
)
from claim_mutator.placement import Level
from claim_mutator.selection import cel_string
from claim_mutator.shape import Amount, Shape, Share
from kube.quantity import format_bytes, format_number

_GIBIBYTE = 1 << 30


@dataclass(frozen=True)
class Alternative:
    """size: bytes of the card that it is for, None where that does not matter. instance: of MIG."""

    name: str
    level: Level
    selectors: tuple[str, ...]
    capacity: dict[str, str]
    size: int | None = None
    instance: bool = False


def needs_sizes(share: Share) -> bool:
    """Whether the share can be told in bytes only for a card whose size is known."""
    return share.amount.fraction or any(cap.amount.fraction for cap in share.caps)


def alternatives(
    share: Share, shape: Shape, levels: tuple[Level, ...], cluster: Cluster
) -> list[Alternative]:
    """At least one. levels: those that this share is to have."""
    amount, found = share.amount, []
    if shape.cards:
        sizes = _sizes(share, cluster)
        kept = _fitting(levels, MAX_ALTERNATIVES // len(sizes))
        found = [_of_card(amount, shape, level, size, len(sizes)) for level in kept for size in sizes]
    room = MAX_ALTERNATIVES - len(found)
    # HAMi gives an instance as a whole; which one, only an amount in MiB can say.
    if shape.instances and room and amount.mebibytes and not amount.percent:
        sizes = _instance_sizes(amount, cluster, room)
        kept = _fitting(levels, room // len(sizes))
        found += [_of_instance(amount, shape, level, size) for level in kept for size in sizes]
    return found


def _fitting(levels: tuple[Level, ...], room: int) -> tuple[Level, ...]:
    """What binds stays; of what is preferred the last level, which takes any cards, stays."""
    if len(levels) <= room:
        return levels
    return levels[:room] if levels[-1].selector is not None else (*levels[: room - 1], levels[-1])


def _sizes(share: Share, cluster: Cluster) -> list[int | None]:
    if not needs_sizes(share) or not cluster.card_sizes:
        return [None]
    large_enough = [size for size in cluster.card_sizes if size >= share.amount.mebibytes * MEBIBYTE]
    return list(large_enough or cluster.card_sizes)


def _of_card(amount: Amount, shape: Shape, level: Level, size: int | None, sizes: int) -> Alternative:
    selectors = [level.selector] if level.selector is not None else []
    if size is not None and sizes > 1:
        selectors.append(_memory("== 0", size))
    elif amount.whole and amount.mebibytes:
        selectors.append(_memory(">= 0", amount.mebibytes * MEBIBYTE))
    names = [level.name, _size_name("s", size) if size is not None else ""]
    return Alternative(
        "-".join(filter(None, names)) or "any",
        level,
        (*selectors, *shape.selectors),
        _capacity(amount, size),
        size,
    )


def _capacity(amount: Amount, size: int | None) -> dict[str, str]:
    """What is not mentioned takes the slice's default: all memory, no cores, the smallest share."""
    requests: dict[str, str] = {}
    if not amount.whole:
        requests[CAPACITY_MEMORY] = format_bytes(amount.memory(size or 0) * MEBIBYTE)
    if amount.cores:
        requests[CAPACITY_CORES] = format_number(amount.cores)
    if amount.alone:  # needs an idle card, and nobody joins
        requests[CAPACITY_SHARES] = format_number(WHOLE_CARD_SHARES)
    return requests


def _instance_sizes(amount: Amount, cluster: Cluster, room: int) -> list[int | None]:
    """Those that are large enough, the smallest first; None: any of these."""
    wanted = amount.mebibytes * MEBIBYTE
    sizes: list[int | None] = [size for size in cluster.instance_sizes if size >= wanted]
    if len(sizes) < 2:
        return [None]
    return sizes if len(sizes) <= room else [*sizes[: room - 1], None]


def _of_instance(amount: Amount, shape: Shape, level: Level, size: int | None) -> Alternative:
    """All of it, whatever its memory."""
    comparison, memory = (">= 0", amount.mebibytes * MEBIBYTE) if size is None else ("== 0", size)
    selectors = [level.selector] if level.selector is not None else []
    names = [level.name, "m" if size is None else _size_name("m", size)]
    return Alternative(
        "-".join(filter(None, names)),
        level,
        (*selectors, _memory(comparison, memory), *shape.selectors),
        {CAPACITY_CORES: format_number(100), CAPACITY_SHARES: format_number(WHOLE_CARD_SHARES)},
        instance=True,
    )


def _memory(comparison: str, size: int) -> str:
    memory = f"device.capacity[{cel_string(DRIVER)}].{CAPACITY_MEMORY}"
    return f"has({memory}) && {memory}.compareTo(quantity({cel_string(format_bytes(size))})) {comparison}"


def _size_name(letter: str, size: int) -> str:
    """s80 for 80 GiB, s24564mi for what is no whole number of GiB."""
    return f"{letter}{size // _GIBIBYTE}" if size % _GIBIBYTE == 0 else f"{letter}{size // MEBIBYTE}mi"
