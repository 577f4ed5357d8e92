"""Names that others rely on: users, the scheduler, container runtimes, other parts of the project."""

from __future__ import annotations

from typing import NewType

DRIVER = "gpu.tessera.dev"
CDI_KIND = f"{DRIVER}/grant"
CDI_DRIVER_KIND = f"{DRIVER}/driver"  # the files of the NVIDIA driver, in one document for all claims
CDI_DRIVER_FILES = "files"
CONFIG_API_VERSION = f"{DRIVER}/v1alpha1"
CONFIG_KIND = "ShareConfig"

CAPACITY_MEMORY = "memory"
CAPACITY_CORES = "cores"
CAPACITY_SHARES = "shares"
SHARES_OF_A_CARD = 1000  # per mille: a thousand can be split 2, 4, 5, 8, 10 ways without a remainder

MEBIBYTE = 1 << 20

ClaimUID = NewType("ClaimUID", str)
DeviceName = NewType("DeviceName", str)


def device_name(uuid: str) -> DeviceName:
    """A DNS label that stays with the card through reboots and re-plugging, unlike an index or a minor."""
    return DeviceName(uuid.lower())
