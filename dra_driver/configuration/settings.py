"""What can be set: by a flag `--like-this`, a variable `TESSERA_LIKE_THIS`, or a key `likeThis` of a file.

Everything is checked at start, together: each mistake is one sentence that names the setting and the value.
"""

# ruff: noqa: RUF009 - `_setting` makes a dataclass field

from __future__ import annotations

import argparse
import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

from dra_driver.cards.capacity import Scales
from dra_driver.configuration import readings, sources
from dra_driver.configuration.readings import Reading, absolute_path
from dra_driver.kubelet.sockets import MAX_PATH, Sockets
from dra_driver.names import DRIVER, SHARES_OF_A_CARD

PROGRAM = "tessera-driver"
# Of a card's 100 cores the least scaling leaves one, the step in which they are given.
_SCALING = readings.decimal("0.01", "100")


class SettingsError(Exception):
    """Settings that can't be used; a line for each mistake."""


def _setting(reading: Reading, description: str, default: Any = dataclasses.MISSING) -> Any:
    """A field of `Settings`; one without a default must be given."""
    return dataclasses.field(default=default, metadata={"reading": reading, "description": description})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The agent's settings. What differs from node to node is in the node configuration, not here."""

    node_name: str = _setting(
        readings.text(r"[a-z0-9.-]{1,253}", "the name of a Node object"), "name of the Node object we run on"
    )
    pod_uid: str | None = _setting(
        readings.text(r"[0-9A-Za-z-]{1,63}", "a Pod's UID, such as 0c8f1f2e-0000-4000-8000-000000000001"),
        "UID of the Pod we run in; it goes into the sockets' names, so that an update's two Pods don't take"
        " each other's",
        None,
    )
    kubelet_root: Path = _setting(absolute_path, "the kubelet's --root-dir", Path("/var/lib/kubelet"))
    cdi_root: Path = _setting(
        absolute_path, "where the container runtime looks for CDI documents", Path("/var/run/cdi")
    )
    cdi_static_root: Path = _setting(
        absolute_path,
        "the other directory of CDI documents, where it is mounted for us; only read",
        Path("/etc/cdi"),
    )
    cdi_mode: Literal["auto", "toolkit", "native"] = _setting(
        readings.one_of("auto", "toolkit", "native"),
        "where a container's driver files and device nodes come from: native is our own reading of the driver"
        " root, toolkit a CDI document of the NVIDIA container toolkit, auto the toolkit's where there is a"
        " good one",
        "auto",
    )
    state_dir: Path = _setting(
        absolute_path, "ledger and library; survives a reboot", Path("/var/lib/tessera")
    )
    run_dir: Path = _setting(absolute_path, "grants; a tmpfs", Path("/run/tessera"))
    driver_root: Path = _setting(
        absolute_path, "root of the NVIDIA driver's installation, as the host sees it", Path("/")
    )
    container_driver_root: Path = _setting(
        absolute_path, "the same directory, where it is mounted for us", Path("/driver-root")
    )
    sys_root: Path = _setting(absolute_path, "sysfs", Path("/sys"))
    split_count: int = _setting(
        readings.whole(1, SHARES_OF_A_CARD), "how many claims can share a card at most", 10
    )
    memory_scaling: Fraction = _setting(
        _SCALING, "how much memory a card promises, in times its own", Fraction(1)
    )
    core_scaling: Fraction = _setting(
        _SCALING, "how much compute a card promises, in times its own", Fraction(1)
    )
    node_configuration: Path | None = _setting(
        absolute_path,
        "YAML file of kind NodeConfiguration: what differs from node to node and may change while we run;"
        " split count and scalings are the defaults below it",
        None,
    )
    look_period: float = _setting(
        readings.seconds("0.1", "3600"), "seconds from one look at the node's cards to the next", 30.0
    )
    ignored_xids: frozenset[int] = _setting(
        readings.numbers(1, 9999),
        "numbers of errors (XIDs), with commas in between, that do not taint a card; those that programs"
        " cause never do",
        frozenset(),
    )
    http_address: str = _setting(readings.address, "serves /metrics, /healthz and /readyz", "0.0.0.0:9470")
    reconcile_period: float = _setting(
        readings.seconds("0.1", "3600"),
        "seconds between two comparisons of ledger, files and API server",
        60.0,
    )
    kubeconfig: Path | None = _setting(absolute_path, "instead of the Pod's service account", None)
    log_level: Literal["debug", "info", "warning", "error"] = _setting(
        readings.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error; what the API server is sent and sends is shown at debug alone",
        "info",
    )
    log_format: Literal["text", "json"] = _setting(
        readings.one_of("text", "json"), "text for people, json (an object per line) for machines", "text"
    )
    legacy_metrics: bool = _setting(
        readings.switch, "serves HAMi's names of metrics (hami_...) beside ours", False
    )
    claim_status: bool = _setting(
        readings.switch, "writes status.devices of prepared claims: card, limits, health", True
    )
    device_metadata: bool = _setting(
        readings.switch, "gives containers a file that describes their devices (KEP-5304)", True
    )
    boot_id_file: Path = _setting(
        absolute_path, "differs after each boot", Path("/proc/sys/kernel/random/boot_id")
    )

    @property
    def scales(self) -> Scales:
        return Scales(self.split_count, self.memory_scaling, self.core_scaling)

    @property
    def sockets(self) -> Sockets:
        return Sockets.below(self.kubelet_root, DRIVER, self.pod_uid)


def load(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Raises SettingsError with all mistakes of all sources; `--help` prints and exits."""
    try:
        found = sources.read(PROGRAM, fields(), arguments, environment)
    except argparse.ArgumentError as error:
        raise SettingsError(str(error)) from error
    mistakes = found.mistakes
    values: dict[str, Any] = {}
    for field in dataclasses.fields(Settings):
        if field.name in found.values:
            given, origin = found.values[field.name], found.origins[field.name]
            try:
                values[field.name] = field.metadata["reading"](given)
            except ValueError as error:
                mistakes.append(f"{origin} can't be {given!r}: {error}")
        elif field.default is dataclasses.MISSING:
            flag, variable, key = (spelt(field.name) for spelt in sources.SPELLINGS)
            mistakes.append(f"{flag} must be given (or {variable}, or {key})")
    if not mistakes:
        settings = Settings(**values)
        mistakes += _too_long(settings, found.origins)
    if mistakes:
        raise SettingsError("\n".join(mistakes))
    return settings


def fields() -> tuple[sources.Field, ...]:
    """Every setting, in the order of the class."""
    return tuple(
        sources.Field(
            field.name,
            field.metadata["description"],
            None if field.default in (dataclasses.MISSING, None, frozenset()) else _shown(field.default),
            is_switch=field.metadata["reading"] is readings.switch,
        )
        for field in dataclasses.fields(Settings)
    )


def _shown(default: Any) -> str:
    return str(default).lower() if isinstance(default, bool) else str(default).removesuffix(".0")


def _too_long(settings: Settings, origins: Mapping[str, str]) -> list[str]:
    """Sockets that Linux would refuse."""
    longest = max(len(bytes(path)) for path in (settings.sockets.dra, settings.sockets.registration))
    if longest <= MAX_PATH:
        return []
    origin = origins.get("kubelet_root", sources.flag("kubelet_root"))
    return [
        f"{origin} can't be {str(settings.kubelet_root)!r}: a socket's path below it has {longest} bytes;"
        f" Linux allows {MAX_PATH}"
    ]
