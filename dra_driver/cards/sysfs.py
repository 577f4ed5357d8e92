"""Where a card sits, as the kernel says it in sysfs. `root` is /sys, or a test's."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f]")


@dataclass(frozen=True)
class Location:
    """`pcie_root`: such as pci0000:00. `numa_node`: None where the kernel has none for the card (-1)."""

    pcie_root: str | None
    numa_node: int | None


def locate(root: Path, pci_bus_id: str) -> Location:
    """What is known of a PCI device; an unknown one has an empty location."""
    device = root / "bus" / "pci" / "devices" / pci_bus_id
    return Location(_pcie_root(device), _numa_node(device))


def driven(root: Path) -> int:
    """How many cards the NVIDIA kernel driver has; 0 where it is not loaded, or none is on a PCI bus.

    Virtual functions, of which a card that is split for virtual machines has many, are no cards of their own.
    """
    try:
        paths = list((root / "bus" / "pci" / "drivers" / "nvidia").iterdir())
    except OSError:
        return 0
    return sum(
        _PCI_ADDRESS.fullmatch(path.name) is not None and not (path / "physfn").exists() for path in paths
    )


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
