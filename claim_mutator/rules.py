"""An administrator's choices, as far as they change what a Pod means."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from claim_mutator.names import (
    DEVICE_CLASS,
    HAMI_SCHEDULER,
    MIG_CLASS,
    PRIORITY_CLASS,
    TRUSTED_CLASS,
    ResourceNames,
)


class Policy(enum.Enum):
    """What becomes of a Pod that DRA alone can't serve as it is."""

    DENY = "deny"
    CONVERT = "convert"


class HighPriority(enum.Enum):
    """Who may go before others on a card."""

    ALLOW = "allow"
    TRUSTED = "trusted"


@dataclass(frozen=True)
class DeviceClasses:
    """The classes that requests name. Priority and trusted ones carry what a claim may not say itself."""

    shared: str = DEVICE_CLASS
    mig: str = MIG_CLASS
    priority: str = PRIORITY_CLASS
    trusted: str = TRUSTED_CLASS


@dataclass(frozen=True)
class Rules:
    """Defaults are HAMi's."""

    names: ResourceNames = field(default_factory=ResourceNames)
    default_count: int = 1
    """Cards of a container that names a share and no count; 0: such a container is refused."""
    default_memory: int = 0
    """MiB of a container that names neither memory nor percentage; 0: all of it."""
    default_cores: int = 0
    """Percent of a container that names none and shares its card; 0: no limit."""
    memory_factor: int = 1
    """MiB that one unit of memory means: 1024 where people write GiB."""
    privileged: Policy = Policy.DENY
    node_name: Policy = Policy.DENY
    high_priority: HighPriority = HighPriority.ALLOW
    runtime_class: str = ""
    """For Pods with GPUs that name none themselves; empty: it is left alone."""
    hide_cards: bool = False
    """NVIDIA_VISIBLE_DEVICES=none for containers without cards in Pods with some: HAMi's overwriteEnv."""
    placement: str = "binpack"
    """How the node agents order their cards; what a Pod asks for beside that can't be had."""
    schedulers: tuple[str, ...] = (HAMI_SCHEDULER,)
    """Names that nobody answers to any more; they become the default scheduler's."""
    classes: DeviceClasses = field(default_factory=DeviceClasses)
