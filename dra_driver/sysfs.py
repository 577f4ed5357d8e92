"""Where a card sits, as the kernel says it in sysfs. `root` is /sys, or a test's."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Location:
    """`pcie_root`: such as pci0000:00. `numa_node`: None where the kernel has none for the card (-1)."""

    pcie_root: str | None
    numa_node: int | None


def locate(root: Path, pci_bus_id: str) -> Location:
    """What is known of a PCI device; an unknown one has an empty location."""
    device = root / "bus" / "pci" / "devices" / pci_bus_id
    return Location(_pcie_root(device), _numa_node(device))


def _pcie_root(device: Path) -> str | None:
    try:
        target = os.readlink(device)  # noqa: PTH115 - a Path would drop nothing, but str has the parts as they are
    except OSError:
        return None
    parts = target.split("/")
    # ../../../devices/pci0000:00/0000:00:01.0/0000:01:00.0; the root is the first part below devices.
    if "devices" not in parts[:-1]:
        return None
    found = parts[parts.index("devices") + 1]
    return found if found.startswith("pci") else None


def _numa_node(device: Path) -> int | None:
    try:
        node = int((device / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None
