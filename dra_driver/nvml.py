"""NVML → Inventory. The only module that touches pynvml, and it blocks: call it from a thread of its own.

The library is loaded by its absolute path below the driver root, which makes the dynamic linker answer
pynvml's own look-up of the soname with it. What a card does not support leaves its field empty; what a card
must have and does not makes it a fault; only a driver that answers nothing at all is an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from dra_driver import sysfs
from dra_driver.inventory import Card, CardFault, Inventory, inventory, normalise_pci_bus_id
from dra_driver.names import MEBIBYTE
from dra_driver.versions import cuda_version

SONAME = "libnvidia-ml.so.1"

_BRANDS = {
    "QUADRO": "Quadro",
    "TESLA": "Tesla",
    "NVS": "NVS",
    "GRID": "Grid",
    "GEFORCE": "GeForce",
    "TITAN": "Titan",
    "NVIDIA_VAPPS": "NvidiaVApps",
    "NVIDIA_VPC": "NvidiaVPC",
    "NVIDIA_VCS": "NvidiaVCS",
    "NVIDIA_VWS": "NvidiaVWS",
    "NVIDIA_CLOUD_GAMING": "NvidiaCloudGaming",
    "QUADRO_RTX": "QuadroRTX",
    "NVIDIA_RTX": "NvidiaRTX",
    "NVIDIA": "Nvidia",
    "GEFORCE_RTX": "GeForceRTX",
    "TITAN_RTX": "TitanRTX",
}
_BRAND_NAMES = {getattr(pynvml, f"NVML_BRAND_{key}"): name for key, name in _BRANDS.items()}
_ARCHITECTURES = {
    2: "Kepler",
    3: "Maxwell",
    4: "Pascal",
    5: "Volta",
    6: "Turing",
    7: "Ampere",
    8: "Ada Lovelace",
    9: "Hopper",
    10: "Blackwell",
    13: "Rubin",
}


class NvmlError(Exception):
    """The NVIDIA driver can't be asked at all; the message says why and what to look at."""


class Nvml:
    """`library`: finds libnvidia-ml.so.1 below the driver root, None where it is not there (yet)."""

    def __init__(self, *, library: Callable[[], Path | None], sys_root: Path) -> None:
        self._library = library
        self._sys_root = sys_root
        self._loaded: ctypes.CDLL | None = None
        self._initialised = False
        self._lock = threading.Lock()

    def read(self) -> Inventory:
        """Asks for everything anew. Raises NvmlError."""
        with self._lock:
            self._initialise()
            try:
                return self._read()
            except pynvml.NVMLError as error:
                # Initialised again next time: a driver that was replaced answers only after that.
                self._shut_down()
                raise NvmlError(f"the NVIDIA driver stopped answering: {error}") from error

    def close(self) -> None:
        """Ends the session with the driver; `read` may be called again."""
        with self._lock:
            self._shut_down()

    def _initialise(self) -> None:
        if self._initialised:
            return
        if self._loaded is None:
            path = self._library()
            if path is not None:
                try:
                    self._loaded = ctypes.CDLL(str(path))
                except OSError as error:
                    raise NvmlError(f"{path} can't be loaded: {error}") from error
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound as error:
            raise NvmlError(
                f"{SONAME} was not found: is the NVIDIA driver installed on this node?"
            ) from error
        except pynvml.NVMLError as error:
            raise NvmlError(f"the NVIDIA driver can't be used: {error}") from error
        self._initialised = True

    def _shut_down(self) -> None:
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _read(self) -> Inventory:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        cuda = cuda_version(int(pynvml.nvmlSystemGetCudaDriverVersion_v2()))
        cards, faults = [], []
        for index in range(pynvml.nvmlDeviceGetCount()):
            found = self._card(index)
            if isinstance(found, Card):
                cards.append(found)
            else:
                faults.append(found)
        return inventory(driver, cuda, cards, faults)

    def _card(self, index: int) -> Card | CardFault:
        label = f"GPU {index}"
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            label = str(pynvml.nvmlDeviceGetUUID(handle))
            pci_text = pynvml.nvmlDeviceGetPciInfo(handle).busId
            pci_bus_id = normalise_pci_bus_id(pci_text)
            if pci_bus_id is None:
                return CardFault(label, f"has the PCI bus id {pci_text!r}, which Kubernetes can't express")
            mig = _optional(partial(pynvml.nvmlDeviceGetMigMode, handle))
            if mig is not None and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
                return CardFault(
                    label, "is in MIG mode; a card that is split is not published as a whole one"
                )
            memory = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
            if memory < MEBIBYTE:
                return CardFault(label, f"has {memory} bytes of memory, the driver says")
            minor = int(pynvml.nvmlDeviceGetMinorNumber(handle))
        except pynvml.NVMLError as error:
            return CardFault(label, f"can't be described, the driver says: {error}")
        capability = _optional(partial(pynvml.nvmlDeviceGetCudaComputeCapability, handle))
        location = sysfs.locate(self._sys_root, pci_bus_id)
        return Card(
            uuid=label,
            minor=minor,
            memory_bytes=memory,
            pci_bus_id=pci_bus_id,
            product_name=str(_optional(partial(pynvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"),
            brand=_BRAND_NAMES.get(_optional(partial(pynvml.nvmlDeviceGetBrand, handle))),
            architecture=_ARCHITECTURES.get(_optional(partial(pynvml.nvmlDeviceGetArchitecture, handle))),
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            pcie_root=location.pcie_root,
            numa_node=location.numa_node,
            nvlink_peers=tuple(_nvlink_peers(handle)),
        )


def _nvlink_peers(handle: Any) -> list[str]:
    peers = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = _optional(partial(pynvml.nvmlDeviceGetNvLinkState, handle, link))
        if state is None:
            break  # no NVLink at all, or no further links
        if state == pynvml.NVML_FEATURE_ENABLED:
            remote = _optional(partial(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
            peer = normalise_pci_bus_id(remote.busId) if remote is not None else None
            if peer is not None:
                peers.add(peer)
    return sorted(peers)


def _optional(ask: Callable[[], Any]) -> Any:
    """The answer, or None from a card or a driver that has none."""
    try:
        return ask()
    except pynvml.NVMLError:
        return None
