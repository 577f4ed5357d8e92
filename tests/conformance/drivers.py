"""The DRA drivers that the suite knows how to start, and their processes. Nothing here speaks the protocol.

A `Driver` is a recipe: command and environment for a node. To try another driver, write another recipe; the
tests take what they need of it (devices, capacities) from the ResourceSlices that it publishes.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from tests.conformance.control_plane import ControlPlane, die_with_parent, free_port
from tests.conformance.host import Host, in_cluster
from tests.fakegpu import driver_root

PEER = "PEER_DRA_EXAMPLE"
ROOT = Path(__file__).resolve().parents[2]
CARDS = 8
BOOT_ID = "boot_id"
_CARD = """
[card]
name = NVIDIA A100-SXM4-80GB
uuid = GPU-{number:08x}-61c4-4f2e-9e3d-7a5508c9f1d2
serial = 156322103{number:04}
brand = nvidia
architecture = ampere
memory = 80Gi
sms = 108
compute_capability = 8.0
pci = 0000:{bus:02x}:00.0
pci_device_id = 0x20b210de
pci_subsystem_id = 0x147f10de
numa_node = 0
"""


@dataclass(frozen=True)
class Expected:
    """That a driver fails a test, always or now and then."""

    reason: str
    always: bool = True


class Driver(Protocol):
    """How to start a driver on a node."""

    @property
    def name(self) -> str:
        """In test ids."""

    @property
    def driver(self) -> str:
        """As in ResourceSlices."""

    @property
    def expected_failures(self) -> Mapping[str, Expected]:
        """Test → why this driver fails it."""

    def furnish(self, host: Host) -> None:
        """Lays out what the driver needs on the node, once."""

    def reboot(self, host: Host) -> None:
        """As a boot of the node, apart from the emptied directories."""

    def command(self, host: Host, pod_uid: str | None) -> list[str]:
        """argv."""

    def environment(self, host: Host, pod_uid: str | None) -> dict[str, str]:
        """Variables beside the process's own."""


@dataclass(frozen=True)
class Tessera:
    """Our own agent, on a node with fake cards of 80 GiB. `settings`: TESSERA_* variables."""

    cards: int = CARDS
    settings: Mapping[str, str] = field(default_factory=dict)
    name: str = "tessera"
    driver: str = "gpu.tessera.dev"
    expected_failures: Mapping[str, Expected] = field(default_factory=dict)

    def furnish(self, host: Host) -> None:
        inventory = host.root / "cards.ini"
        cards = (_CARD.format(number=number, bus=0x20 + number) for number in range(self.cards))
        inventory.write_text("[driver]\nversion = 570.124.06\ncuda = 12.8\n" + "".join(cards))
        driver_root.install(host.root / "driver", host.root / "fakegpu", inventory)
        (host.root / BOOT_ID).write_text("boot-1\n")

    def reboot(self, host: Host) -> None:
        file = host.root / BOOT_ID
        file.write_text(f"{file.read_text().strip()}+\n")

    def command(self, host: Host, pod_uid: str | None) -> list[str]:  # noqa: ARG002
        return [sys.executable, "-c", "from dra_driver.main import main; main()"]

    def environment(self, host: Host, pod_uid: str | None) -> dict[str, str]:
        variables = {
            "FAKEGPU_DIR": str(host.root / "fakegpu"),
            "FAKEGPU_DEV": str(host.root / "driver/dev"),
            "PYTHONPATH": str(ROOT),
            "TESSERA_BOOT_ID_FILE": str(host.root / BOOT_ID),
            "TESSERA_CDI_ROOT": str(host.cdi),
            "TESSERA_CONTAINER_DRIVER_ROOT": str(host.root / "driver"),
            "TESSERA_DRIVER_ROOT": str(host.root / "driver"),
            "TESSERA_HTTP_ADDRESS": f"127.0.0.1:{free_port()}",
            "TESSERA_KUBELET_ROOT": str(host.root / "kubelet"),
            "TESSERA_NODE_NAME": host.name,
            "TESSERA_RUN_DIR": str(host.run / "tessera"),
            "TESSERA_SPLIT_COUNT": "1000",
            "TESSERA_STATE_DIR": str(host.state / "tessera"),
            "TESSERA_SYS_ROOT": str(host.root / "driver/sys"),
        }
        return variables | ({"TESSERA_POD_UID": pod_uid} if pod_uid else {}) | dict(self.settings)


@dataclass(frozen=True)
class ExampleDriver:
    """kubernetes-sigs/dra-example-driver, a binary built elsewhere, with its client limits raised.

    `flags`: more of them.
    """

    binary: Path
    flags: tuple[str, ...] = ()
    name: str = "dra-example"
    driver: str = "gpu.example.com"
    expected_failures: Mapping[str, Expected] = field(default_factory=dict)

    def furnish(self, host: Host) -> None:
        """It makes up its devices."""

    def reboot(self, host: Host) -> None:
        """It asks for no boot id."""

    def command(self, host: Host, pod_uid: str | None) -> list[str]:
        return [
            str(self.binary),
            f"--node-name={host.name}",
            f"--cdi-root={host.cdi}",
            f"--kubelet-registrar-directory-path={host.registrations}",
            f"--kubelet-plugins-directory-path={host.plugins}",
            f"--num-devices={CARDS}",
            "--gpu-allow-multiple-allocations",
            "--kube-api-qps=10000",
            "--kube-api-burst=10000",
            *([f"--pod-uid={pod_uid}"] if pod_uid else []),
            *self.flags,
        ]

    def environment(self, host: Host, pod_uid: str | None) -> dict[str, str]:  # noqa: ARG002
        return {}


def peer(
    *flags: str, expected_failures: Mapping[str, Expected] = MappingProxyType({})
) -> ExampleDriver | None:
    """The peer that PEER_DRA_EXAMPLE names, if it does."""
    named = os.environ.get(PEER)
    if not named:
        return None
    binary = Path(named).absolute()
    if not os.access(binary, os.X_OK):
        raise FileNotFoundError(f"{PEER}={named} is no program")
    return ExampleDriver(binary, flags, expected_failures=expected_failures)


class Running:
    """A driver's process on a node."""

    def __init__(
        self,
        driver: Driver,
        host: Host,
        plane: ControlPlane,
        *,
        pod_uid: str | None = None,
        volatile: bool = False,
    ) -> None:
        self.driver = driver
        self.host = host
        self._plane = plane
        self._pod_uid = pod_uid
        self._volatile = volatile
        self.log = host.root / f"{driver.name}{f'-{pod_uid}' if pod_uid else ''}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def spawn(self) -> None:
        """Starts the process, in the main thread, and waits for nothing."""
        self._before = {path: _changed(path) for path in self.host.registrations.iterdir()}
        command = self.driver.command(self.host, self._pod_uid)
        argv, variables = in_cluster(self._plane, self.host, command, volatile=self._volatile)
        own = {key: value for key, value in os.environ.items() if not key.startswith("TESSERA_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                die_with_parent(*argv),
                env=own | variables | self.driver.environment(self.host, self._pod_uid),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def has_arrived(self) -> bool:
        """Whether it listens on its registration socket, `registration` from then on."""
        for path in self.host.registrations.iterdir():
            if self._before.get(path) != _changed(path) is not None and _is_served(path):
                self.registration = path
                return True
        return False

    def start(self, seconds: float = 60.0) -> Path:
        """`spawn`, and waits until it has arrived."""
        self.spawn()
        deadline = time.monotonic() + seconds
        while not self.has_arrived():
            if time.monotonic() > deadline or not self.is_running:
                raise AssertionError(f"no registration socket:\n{self.log.read_text()}")
            time.sleep(0.005)
        return self.registration

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 60.0) -> int:
        """Ends it by this signal; its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        status = self._process.wait(seconds)
        self._process = None
        return status

    def end(self) -> None:
        """Whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _is_served(path: Path) -> bool:
    """A socket's file is there a moment before somebody listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        return peer.connect_ex(str(path)) == 0


def _changed(path: Path) -> int | None:
    """When a file was changed, in nanoseconds; None where it is gone."""
    try:
        return path.stat().st_ctime_ns
    except FileNotFoundError:
        return None
