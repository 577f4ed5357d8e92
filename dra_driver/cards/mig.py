"""A card in MIG mode → its instances, as cards of their own. Blocks, as all of NVML does.

This is the one place that instances come from. Today an administrator makes them (`nvidia-smi mig -cgi`), and
what exists is what there is; instances that are made when a claim asks for one would be another
`InstanceSource` beside `existing`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import pynvml

from dra_driver.cards.inventory import Card, CardFault, Mig
from dra_driver.cards.nvml_answers import NO_ANSWER, optional
from dra_driver.names import MEBIBYTE

_UUID = re.compile(r"MIG-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PROFILE = re.compile(r"\bMIG (\S+)$")


@dataclass(frozen=True)
class Instances:
    """What became of one card: an instance that can't be described takes no other down with it."""

    cards: tuple[Card, ...] = ()
    faults: tuple[CardFault, ...] = ()


InstanceSource: TypeAlias = Callable[[Any, Card], Instances]
"""Handle and description of a card in MIG mode → its instances. Raises NVMLError where it can't be asked."""


def existing(handle: Any, parent: Card) -> Instances:
    """The instances that are there. A card that has none is a fault: nobody can use it."""
    cards, faults = [], []
    for index in range(int(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle))):
        try:
            instance = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError_NotFound:
            continue
        except NO_ANSWER as error:
            label = f"MIG instance {index} of {parent.uuid}"
            faults.append(_unanswered(label, error, parent))
            continue
        found = _instance(instance, index, parent)
        if isinstance(found, Card):
            cards.append(found)
        else:
            faults.append(found)
    if not cards and not faults:
        reason = (
            "is in MIG mode and has no instances: make some (nvidia-smi mig -cgi 1g.10gb -C, for one), or"
            " switch MIG mode off"
        )
        faults.append(CardFault(parent.uuid, reason))
    return Instances(_with_sharers(cards), tuple(faults))


def _instance(instance: Any, index: int, parent: Card) -> Card | CardFault:
    label = f"MIG instance {index} of {parent.uuid}"
    try:
        uuid = str(pynvml.nvmlDeviceGetUUID(instance))
        if _UUID.fullmatch(uuid) is None:
            return CardFault(
                label, f"is called {uuid!r}; drivers from 470 on give a UUID of its own: update the driver"
            )
        label = uuid
        memory = int(pynvml.nvmlDeviceGetMemoryInfo(instance).total)
        if memory < MEBIBYTE:
            return CardFault(label, f"has {memory} bytes of memory, the driver says")
        mig = Mig(
            parent_uuid=parent.uuid,
            gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(instance)),
            compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(instance)),
            profile=_profile(instance, parent),
        )
    except NO_ANSWER as error:
        return _unanswered(label, error, parent)
    return replace(parent, uuid=uuid, memory_bytes=memory, mig=mig, nvlink_peers=())


def _with_sharers(cards: list[Card]) -> tuple[Card, ...]:
    sharers = Counter(card.mig.gpu_instance for card in cards if card.mig is not None)
    return tuple(
        replace(card, mig=replace(card.mig, sharers=sharers[card.mig.gpu_instance]))
        for card in cards
        if card.mig is not None
    )


def _profile(instance: Any, parent: Card) -> str | None:
    """As its name ends ("NVIDIA A100-SXM4-80GB MIG 1g.10gb"), or put together from its slices."""
    name = _PROFILE.search(str(optional(partial(pynvml.nvmlDeviceGetName, instance)) or ""))
    if name is not None:
        return name[1]
    attributes = optional(partial(pynvml.nvmlDeviceGetAttributes_v2, instance))
    if attributes is None or not parent.memory_bytes:
        return None
    return profile_name(
        attributes.gpuInstanceSliceCount,
        attributes.computeInstanceSliceCount,
        attributes.memorySizeMB,
        parent.memory_bytes,
    )


def profile_name(gpu_slices: int, compute_slices: int, memory_mib: int, card_bytes: int) -> str:
    """NVIDIA's name: `1g.10gb`; `1c.2g.20gb` for a compute instance that is a part of its GPU instance.

    The gigabytes are those of the card in eighths, rounded up to the eighth that holds the memory.
    """
    card_gib = -(-card_bytes // (1 << 30))
    eighths = -(-memory_mib * MEBIBYTE * 8 // card_bytes)
    size = f"{gpu_slices}g.{round(eighths * card_gib / 8)}gb"
    return size if compute_slices == gpu_slices else f"{compute_slices}c.{size}"


def _unanswered(label: str, error: Exception, parent: Card) -> CardFault:
    reason = f"can't be described, the driver says: {error}"
    nameless = _UUID.fullmatch(label) is None
    return CardFault(label, reason, unanswered=True, instance_of=parent.uuid if nameless else None)
