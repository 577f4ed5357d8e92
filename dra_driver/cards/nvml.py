"""NVML → Inventory. The only module that touches pynvml, and it blocks: call it from a thread of its own.

The library is loaded by its absolute path below the driver root, which makes the dynamic linker answer
pynvml's own look-up of the soname with it. What a card does not support leaves its field empty; what a card
must have and does not makes it a fault; only a driver that answers nothing at all is an error. A card in MIG
mode gives its instances instead of itself (mig.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pynvml

from cdi.driver_root import stamp
from dra_driver.cards import mig, sysfs
from dra_driver.cards.inventory import Card, CardFault, Inventory, inventory, normalise_pci_bus_id
from dra_driver.cards.mig import Instances, InstanceSource
from dra_driver.cards.nvml_answers import NO_ANSWER, optional
from dra_driver.cards.versions import cuda_version
from dra_driver.names import MEBIBYTE

SONAME = "libnvidia-ml.so.1"
NVML_CALLS = ("init", "inventory", "shutdown")

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


class DriverReplacedError(Exception):
    """The kernel has another driver than the one whose library this process has loaded, and can't unload."""


class Nvml:
    """`library`: finds libnvidia-ml.so.1 below the driver root, None where it is not there (yet).

    `instances`: where the instances of a card in MIG mode come from. `took`: is told the seconds of each of
    NVML_CALLS.
    """

    def __init__(
        self,
        *,
        library: Callable[[], Path | None],
        sys_root: Path,
        instances: InstanceSource = mig.existing,
        took: Callable[[str, float], None] = lambda _call, _seconds: None,
    ) -> None:
        self._library = library
        self._sys_root = sys_root
        self._instances = instances
        self._took = took
        self._loaded: ctypes.CDLL | None = None
        self._loaded_from: object = None
        self._initialised = False
        self._lock = threading.Lock()

    def read(self) -> Inventory:
        """Asks for everything anew. Raises NvmlError, or DriverReplacedError: only a new process can ask."""
        with self._lock:
            self._initialise()
            try:
                with self._timed("inventory"):
                    return self._read()
            except NO_ANSWER as error:
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
            self._load()
        try:
            with self._timed("init"):
                pynvml.nvmlInit()
        except pynvml.NVMLError_LibraryNotFound as error:
            raise NvmlError(
                f"{SONAME} was not found: is the NVIDIA driver installed on this node?"
            ) from error
        except pynvml.NVMLError_LibRmVersionMismatch as error:
            self._refuse_the_old_library()
            raise NvmlError(f"the NVIDIA driver can't be used: {error}") from error
        except pynvml.NVMLError as error:
            raise NvmlError(f"the NVIDIA driver can't be used: {error}") from error
        self._initialised = True

    def _load(self) -> None:
        path = self._find()
        if path is None:
            return
        try:
            self._loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise NvmlError(f"{path} can't be loaded: {error}") from error
        self._loaded_from = (path, stamp(str(path)))

    def _find(self) -> Path | None:
        try:
            return self._library()
        except OSError as error:  # a driver that is being installed, or taken away, this very moment
            raise NvmlError(f"{SONAME} can't be looked for: {error}") from error

    def _refuse_the_old_library(self) -> None:
        """Unless what is installed is what is loaded: a driver that is installed by half, which stays so."""
        path = self._find()
        if path is not None and self._loaded_from not in (None, (path, stamp(str(path)))):
            raise DriverReplacedError(
                f"the NVIDIA driver was replaced, {path} is installed now: the agent starts anew to load it"
            )

    def _shut_down(self) -> None:
        if self._initialised:
            self._initialised = False
            with contextlib.suppress(pynvml.NVMLError), self._timed("shutdown"):
                pynvml.nvmlShutdown()

    @contextlib.contextmanager
    def _timed(self, call: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._took(call, time.monotonic() - began)

    def _read(self) -> Inventory:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        cuda = cuda_version(int(pynvml.nvmlSystemGetCudaDriverVersion_v2()))
        cards: list[Card] = []
        faults: list[CardFault] = []
        gpus: dict[str, int | None] = {}
        for index in range(pynvml.nvmlDeviceGetCount()):
            found = self._devices(index, gpus)
            cards += found.cards
            faults += found.faults
        if faults and not gpus:
            # Not one card can even say its UUID. A session that was begun anew may hear more next time.
            self._shut_down()
        actions = {uuid: action for uuid, action in gpus.items() if action is not None}
        return replace(inventory(driver, cuda, cards, faults, gpus), actions=actions)

    def _devices(self, index: int, gpus: dict[str, int | None]) -> Instances:
        """What one GPU gives: itself, its instances, or why neither. Adds it and what it needs to `gpus`."""
        label = f"GPU {index}"
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            label = str(pynvml.nvmlDeviceGetUUID(handle))
            gpus[label] = _recovery_action(handle)
            found = self._card(handle, label, index)
            if isinstance(found, CardFault):
                return Instances(faults=(found,))
            if _is_split(handle):
                return self._instances(handle, found)
            return Instances((replace(found, nvlink_peers=tuple(_nvlink_peers(handle))),))
        except NO_ANSWER as error:
            reason = f"can't be described, the driver says: {error}"
            return Instances(faults=(CardFault(label, reason, unanswered=True),))

    def _card(self, handle: Any, uuid: str, index: int) -> Card | CardFault:
        """As a whole, without its links. Raises NVMLError."""
        pci_text = pynvml.nvmlDeviceGetPciInfo(handle).busId
        pci_bus_id = normalise_pci_bus_id(pci_text)
        if pci_bus_id is None:
            return CardFault(uuid, f"has the PCI bus id {pci_text!r}, which Kubernetes can't express")
        memory = _memory(handle)
        if 0 < memory < MEBIBYTE:
            return CardFault(uuid, f"has {memory} bytes of memory, the driver says")
        capability = optional(partial(pynvml.nvmlDeviceGetCudaComputeCapability, handle))
        location = sysfs.locate(self._sys_root, pci_bus_id)
        return Card(
            uuid=uuid,
            minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
            memory_bytes=memory,
            pci_bus_id=pci_bus_id,
            product_name=str(optional(partial(pynvml.nvmlDeviceGetName, handle)) or "NVIDIA GPU"),
            brand=_BRAND_NAMES.get(optional(partial(pynvml.nvmlDeviceGetBrand, handle))),
            architecture=_ARCHITECTURES.get(optional(partial(pynvml.nvmlDeviceGetArchitecture, handle))),
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            pcie_root=location.pcie_root,
            numa_node=location.numa_node,
            index=index,
        )


def _memory(handle: Any) -> int:
    """Bytes; 0 where memory is the host's, of which the driver has no figure. Raises NVMLError."""
    try:
        return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    except pynvml.NVMLError_NotSupported:
        return 0


def _is_split(handle: Any) -> bool:
    """Raises NVMLError: a card that might be split is not handed out as a whole."""
    try:
        current, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _recovery_action(handle: Any) -> int | None:
    """NVML's number for what must be done before the card is well; 0: nothing; None: it can't tell."""
    answers = optional(
        partial(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    )
    if answers is None or answers[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return int(answers[0].value.uiVal)


def _nvlink_peers(handle: Any) -> list[str]:
    peers = set()
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        state = optional(partial(pynvml.nvmlDeviceGetNvLinkState, handle, link))
        if state is None:
            break  # no NVLink at all, or no further links
        if state == pynvml.NVML_FEATURE_ENABLED:
            remote = optional(partial(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link))
            peer = normalise_pci_bus_id(remote.busId) if remote is not None else None
            if peer is not None:
                peers.add(peer)
    return sorted(peers)
