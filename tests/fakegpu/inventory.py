# SPDX-License-Identifier: Apache-2.0
"""Reads an inventory of fake cards, as far as files outside the state need it; fakegpu-ctl reads it whole.

Raises InventoryError with file and line for what is neither a section nor `key = value`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class InventoryError(ValueError):
    """The inventory can't be read; the message names file, line and what is wrong."""


# Places that capability nodes are numbered for: instances per card, compute instances per instance.
GPU_INSTANCES = 15
COMPUTE_INSTANCES = 8
FIRST_CAPABILITY = 3  # 1 and 2 are the rights to configure and to monitor MIG


@dataclass(frozen=True)
class Instance:
    """A MIG instance: a compute instance of a GPU instance."""

    uuid: str
    profile: str  # 1g.10gb
    gpu_instance: int
    compute_instance: int


def gpu_instance_capability(minor: int, gpu_instance: int) -> int:
    """Number of the node /dev/nvidia-caps/nvidia-cap<N> that opens a GPU instance of card `minor`."""
    return FIRST_CAPABILITY + (minor * GPU_INSTANCES + gpu_instance) * (COMPUTE_INSTANCES + 1)


def compute_instance_capability(minor: int, gpu_instance: int, compute_instance: int) -> int:
    return gpu_instance_capability(minor, gpu_instance) + 1 + compute_instance


@dataclass(frozen=True)
class Card:
    name: str
    uuid: str
    minor: int
    pci: str  # 0000:41:00.0
    pci_device_id: int  # device << 16 | vendor
    numa_node: int
    mig: bool = False
    instances: tuple[Instance, ...] = ()

    @property
    def pci_root(self) -> str:
        """The root complex that the card hangs under: cards of one quarter of the buses share one."""
        domain, bus, _ = self.pci.split(":")
        return f"pci{domain}:{int(bus, 16) & 0xC0:02x}"


@dataclass(frozen=True)
class Inventory:
    driver_version: str
    cards: tuple[Card, ...]


Keys = dict[str, str]


def _sections(path: Path) -> tuple[Keys, list[tuple[Keys, list[Keys]]]]:
    """The keys of [driver], and of each [card] with those of its [mig] sections."""
    driver: Keys = {}
    cards: list[tuple[Keys, list[Keys]]] = []
    current: Keys | None = None
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line == "[driver]":
            current = driver
        elif line == "[card]":
            current = {}
            cards.append((current, []))
        elif line == "[mig]" and cards:
            current = {}
            cards[-1][1].append(current)
        elif current is not None and "=" in line:
            key, value = line.split("=", 1)
            current[key.strip()] = value.strip()
        else:
            raise InventoryError(
                f"{path}:{number}: neither [driver], [card], [mig] nor key = value: {line!r}"
            )
    return driver, cards


def _instance(keys: Mapping[str, str]) -> Instance:
    return Instance(keys["uuid"], keys["profile"], int(keys.get("gi", 0)), int(keys.get("ci", 0)))


def _card(keys: Mapping[str, str], instances: list[Keys], index: int) -> Card:
    return Card(
        name=keys["name"],
        uuid=keys["uuid"],
        minor=int(keys.get("minor", index)),
        pci=keys["pci"].lower(),
        pci_device_id=int(keys.get("pci_device_id", "0x10de"), 0),
        numa_node=int(keys.get("numa_node", -1)),
        mig=keys.get("mig", "0") != "0",
        instances=tuple(_instance(keys) for keys in instances),
    )


def read_inventory(path: Path) -> Inventory:
    driver, cards = _sections(path)
    try:
        return Inventory(driver["version"], tuple(_card(*card, index) for index, card in enumerate(cards)))
    except KeyError as missing:
        raise InventoryError(f"{path}: no {missing.args[0]}") from None
    except ValueError as wrong:
        raise InventoryError(f"{path}: {wrong}") from None
