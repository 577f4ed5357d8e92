"""What can be set: by a flag `--like-this`, a variable `TESSERA_LIKE_THIS`, or a key `likeThis` of a file.

Everything is checked at start, together: each mistake is one sentence that names the setting and the value.
"""

# ruff: noqa: RUF009 - `setting` makes a dataclass field

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Literal

from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Interposition, Rules
from dra_driver.kubelet.sockets import MAX_PATH, Sockets
from dra_driver.names import DRIVER, SHARES_OF_A_CARD
from kube import settings
from kube.settings import readings, setting, sources
from kube.settings.readings import absolute_path

PROGRAM = "tessera-driver"
# Of a card's 100 cores the least scaling leaves one, the step in which they are given.
_SCALING = readings.decimal("0.01", "100")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The agent's settings. What differs from node to node is in the node configuration, not here."""

    node_name: str = setting(
        readings.text(r"[a-z0-9.-]{1,253}", "the name of a Node object"), "name of the Node object we run on"
    )
    pod_uid: str | None = setting(
        readings.text(r"[0-9A-Za-z-]{1,63}", "a Pod's UID, such as 0c8f1f2e-0000-4000-8000-000000000001"),
        "UID of the Pod we run in; it goes into the sockets' names, so that an update's two Pods don't take"
        " each other's",
        None,
    )
    kubelet_root: Path = setting(absolute_path, "the kubelet's --root-dir", Path("/var/lib/kubelet"))
    cdi_root: Path = setting(
        absolute_path, "where the container runtime looks for CDI documents", Path("/var/run/cdi")
    )
    cdi_static_root: Path = setting(
        absolute_path,
        "the other directory of CDI documents, where it is mounted for us; only read",
        Path("/etc/cdi"),
    )
    cdi_mode: Literal["auto", "toolkit", "native"] = setting(
        readings.one_of("auto", "toolkit", "native"),
        "where a container's driver files and device nodes come from: native is our own reading of the driver"
        " root, toolkit a CDI document of the NVIDIA container toolkit, auto the toolkit's where there is a"
        " good one",
        "auto",
    )
    state_dir: Path = setting(
        absolute_path, "ledger and library; survives a reboot", Path("/var/lib/tessera")
    )
    run_dir: Path = setting(absolute_path, "grants; a tmpfs", Path("/run/tessera"))
    driver_root: Path = setting(
        absolute_path, "root of the NVIDIA driver's installation, as the host sees it", Path("/")
    )
    container_driver_root: Path = setting(
        absolute_path, "the same directory, where it is mounted for us", Path("/driver-root")
    )
    sys_root: Path = setting(absolute_path, "sysfs", Path("/sys"))
    split_count: int = setting(
        readings.whole(1, SHARES_OF_A_CARD), "how many claims can share a card at most", 10
    )
    memory_scaling: Fraction = setting(
        _SCALING, "how much memory a card promises, in times its own", Fraction(1)
    )
    core_scaling: Fraction = setting(
        _SCALING, "how much compute a card promises, in times its own", Fraction(1)
    )
    interposition: Literal["preload", "shim"] = setting(
        readings.one_of(*(kind.value for kind in Interposition)),
        "how the library gets between programs and the driver: preload is /etc/ld.so.preload alone; shim also"
        " takes the place of the driver's libraries",
        "preload",
    )
    node_configuration: Path | None = setting(
        absolute_path,
        "YAML file of kind NodeConfiguration: what differs from node to node and may change while we run;"
        " split count and scalings are the defaults below it",
        None,
    )
    look_period: float = setting(
        readings.seconds("0.1", "3600"), "seconds from one look at the node's cards to the next", 30.0
    )
    ignored_xids: frozenset[int] = setting(
        readings.numbers(1, 9999),
        "numbers of errors (XIDs), with commas in between, that do not taint a card; those that programs"
        " cause never do",
        frozenset(),
    )
    http_address: str = setting(readings.address, "serves /metrics, /healthz and /readyz", "[::]:9470")
    reconcile_period: float = setting(
        readings.seconds("0.1", "3600"),
        "seconds between two comparisons of ledger, files and API server",
        60.0,
    )
    kubeconfig: Path | None = setting(absolute_path, "instead of the Pod's service account", None)
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        readings.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error; what the API server is sent and sends is shown at debug alone",
        "info",
    )
    log_format: Literal["text", "json"] = setting(
        readings.one_of("text", "json"), "text for people, json (an object per line) for machines", "text"
    )
    legacy_metrics: bool = setting(
        readings.switch, "serves HAMi's names of metrics (hami_...) beside ours", False
    )
    claim_status: bool = setting(
        readings.switch, "writes status.devices of prepared claims: card, limits, health", True
    )
    device_metadata: bool = setting(
        readings.switch, "gives containers a file that describes their devices (KEP-5304)", True
    )
    boot_id_file: Path = setting(
        absolute_path, "differs after each boot", Path("/proc/sys/kernel/random/boot_id")
    )

    @property
    def rules(self) -> Rules:
        """What holds where the node configuration says nothing."""
        return Rules(
            Scales(self.split_count, self.memory_scaling, self.core_scaling),
            interposition=Interposition(self.interposition),
        )

    @property
    def sockets(self) -> Sockets:
        return Sockets.below(self.kubelet_root, DRIVER, self.pod_uid)


def load(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises SettingsError with all mistakes of all sources; `--help` prints and exits."""
    return settings.load(Settings, PROGRAM, arguments, environment, _too_long)


def _too_long(chosen: Settings, origins: Mapping[str, str]) -> list[str]:
    """Sockets that Linux would refuse."""
    longest = max(len(bytes(path)) for path in (chosen.sockets.dra, chosen.sockets.registration))
    if longest <= MAX_PATH:
        return []
    origin = origins.get("kubelet_root", sources.flag("kubelet_root"))
    return [
        f"{origin} can't be {str(chosen.kubelet_root)!r}: a socket's path below it has {longest} bytes;"
        f" Linux allows {MAX_PATH}"
    ]
