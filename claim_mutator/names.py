"""Names that others rely on: users' manifests, the driver, the scheduler."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from functools import cached_property

DRIVER = "gpu.tessera.dev"
DEVICE_CLASS = "gpu.tessera.dev"
MIG_CLASS = "mig.gpu.tessera.dev"
PRIORITY_CLASS = "priority.gpu.tessera.dev"
"""Goes before the others on a card; its config says priority 0."""
TRUSTED_CLASS = "trusted.gpu.tessera.dev"
"""Its config loosens all that can be loosened; only for namespaces with TRUSTED_LABEL: "true"."""
TRUSTED_LABEL = "tessera.dev/trusted"
CONFIG_API_VERSION = "gpu.tessera.dev/v1alpha1"
MANAGED_BY = "app.kubernetes.io/managed-by"
MUTATOR = "tessera-mutator"
CLAIM = "tessera"
"""Name of the claim inside a Pod."""

HAMI_SCHEDULER = "hami-scheduler"
IGNORE_LABELS = ("hami.io/webhook", "tessera.dev/webhook")
"""With the value `ignore`, on a Pod or its namespace: it is none of our business."""
IGNORE = "ignore"

CAPACITY_MEMORY = "memory"
CAPACITY_CORES = "cores"
CAPACITY_SHARES = "shares"
WHOLE_CARD_SHARES = 1000

MEBIBYTE = 1 << 20

MAX_DEVICES = 32
"""Results of one claim, its requests, too: limits of the API."""
MAX_ALTERNATIVES = 8
"""Entries of firstAvailable: a limit of the API."""
MAX_CAPS = 16
"""Containers with a limit of their own in one grant: a limit of the driver."""
MAX_UNLIKE = 4
"""Cards of a container that may be requests of several forms each: of several sizes, of no NUMA node."""
MAX_CONSTRAINTS = 32
MAX_CONFIGS = 32
"""Entries of a claim's constraints and config: limits of the API."""


class Role(enum.Enum):
    """What a resource name in a container's limits means."""

    COUNT = "count"
    MEMORY = "memory"
    PERCENTAGE = "percentage"
    CORES = "cores"
    PRIORITY = "priority"


@dataclass(frozen=True)
class ResourceNames:
    """The names that this cluster uses; each may have aliases, the first is what messages recommend."""

    count: tuple[str, ...] = ("nvidia.com/gpu",)
    memory: tuple[str, ...] = ("nvidia.com/gpumem",)
    percentage: tuple[str, ...] = ("nvidia.com/gpumem-percentage",)
    cores: tuple[str, ...] = ("nvidia.com/gpucores",)
    priority: tuple[str, ...] = ("nvidia.com/priority",)

    @cached_property
    def roles(self) -> dict[str, Role]:
        return {name: role for role in Role for name in self.of(role)}

    @cached_property
    def domains(self) -> frozenset[str]:
        """`nvidia.com`: where a key that is not one of ours may be a misspelt one of ours."""
        return frozenset(name.partition("/")[0] for name in self.roles if "/" in name)

    def of(self, role: Role) -> tuple[str, ...]:
        names: tuple[str, ...] = getattr(self, role.value)
        return names

    def preferred(self, role: Role) -> str:
        return self.of(role)[0]
