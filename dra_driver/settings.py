"""What can be set: a flag `--like-this`, or an environment variable `TESSERA_LIKE_THIS`; the flag wins.

Everything is checked at start, together: each mistake is one sentence that names the setting and the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo
from pydantic_settings import BaseSettings, CliSettingsSource, SettingsConfigDict

from dra_driver.capacity import Scales
from dra_driver.names import DRIVER, SHARES_OF_A_CARD
from dra_driver.sockets import MAX_PATH, Sockets

PROGRAM = "tessera-driver"
_PREFIX = "TESSERA_"
_LEAST_SCALING = Decimal("0.01")  # of a card's 100 cores that leaves one, the step in which they are given


class SettingsError(Exception):
    """Settings that can't be used; a line for each mistake."""


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("the path must be absolute, since others use it too")
    return path


def _uid(text: str) -> str:
    if re.fullmatch(r"[0-9A-Za-z-]{1,63}", text) is None:
        raise ValueError("it must be a Pod's UID, such as 0c8f1f2e-0000-4000-8000-000000000001")
    return text


def _short_enough(path: Path, others: ValidationInfo) -> Path:
    sockets = Sockets.below(path, DRIVER, others.data.get("pod_uid"))
    longest = max(len(bytes(socket)) for socket in (sockets.dra, sockets.registration))
    if longest > MAX_PATH:
        raise ValueError(f"a socket's path below it has {longest} bytes; Linux allows {MAX_PATH}")
    return path


def _address(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise ValueError("it must be HOST:PORT, such as 0.0.0.0:9470 or [::]:9470")
    return text


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]


class Settings(BaseSettings):
    """The agent's settings."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        extra="ignore",
        frozen=True,
        cli_prog_name=PROGRAM,
        cli_kebab_case=True,
        cli_hide_none_type=True,
    )

    node_name: str = Field(min_length=1, description="name of the Node object we run on")
    pod_uid: Annotated[str, AfterValidator(_uid)] | None = Field(
        default=None,
        description="UID of the Pod we run in; it goes into the sockets' names, so that an update's two Pods"
        " don't take each other's",
    )
    kubelet_root: Annotated[AbsolutePath, AfterValidator(_short_enough)] = Field(
        default=Path("/var/lib/kubelet"), description="the kubelet's --root-dir"
    )
    cdi_root: AbsolutePath = Field(
        default=Path("/var/run/cdi"), description="where the container runtime looks for CDI documents"
    )
    state_dir: AbsolutePath = Field(
        default=Path("/var/lib/tessera"), description="ledger and library; survives a reboot"
    )
    run_dir: AbsolutePath = Field(default=Path("/run/tessera"), description="grants; a tmpfs")
    driver_root: AbsolutePath = Field(
        default=Path("/"), description="root of the NVIDIA driver's installation, as the host sees it"
    )
    container_driver_root: AbsolutePath = Field(
        default=Path("/driver-root"), description="the same directory, where it is mounted for us"
    )
    sys_root: AbsolutePath = Field(default=Path("/sys"), description="sysfs")
    split_count: int = Field(
        default=10, ge=1, le=SHARES_OF_A_CARD, description="how many claims can share a card at most"
    )
    memory_scaling: Decimal = Field(
        default=Decimal(1),
        ge=_LEAST_SCALING,
        le=100,
        description="how much memory a card promises, in times its own",
    )
    core_scaling: Decimal = Field(
        default=Decimal(1),
        ge=_LEAST_SCALING,
        le=100,
        description="how much compute a card promises, in times its own",
    )
    look_period: float = Field(
        default=30,
        ge=0.1,
        le=3600,
        allow_inf_nan=False,
        description="seconds from one look at the node's cards to the next",
    )
    http_address: Annotated[str, AfterValidator(_address)] = Field(
        default="0.0.0.0:9470", description="serves /metrics, /healthz and /readyz"
    )
    reconcile_period: float = Field(
        default=60.0,
        ge=0.1,
        le=3600,
        description="seconds between two comparisons of ledger, files and API server",
    )
    kubeconfig: AbsolutePath | None = Field(default=None, description="instead of the Pod's service account")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    boot_id_file: AbsolutePath = Field(
        default=Path("/proc/sys/kernel/random/boot_id"), description="differs after each boot"
    )

    @property
    def scales(self) -> Scales:
        return Scales(self.split_count, Fraction(self.memory_scaling), Fraction(self.core_scaling))

    @property
    def sockets(self) -> Sockets:
        return Sockets.below(self.kubelet_root, DRIVER, self.pod_uid)

    @property
    def http_host_and_port(self) -> tuple[str, int]:
        host, _, port = self.http_address.rpartition(":")
        return host.strip("[]"), int(port)


def load(arguments: Sequence[str]) -> Settings:
    """From flags and environment. Raises SettingsError; `--help` and unknown flags exit as argparse does."""
    source: CliSettingsSource[object] = CliSettingsSource(Settings, cli_parse_args=list(arguments))
    try:
        return Settings(_cli_settings_source=source)
    except ValidationError as error:
        raise SettingsError("\n".join(_sentence(mistake) for mistake in error.errors())) from error


def _sentence(mistake: object) -> str:
    assert isinstance(mistake, dict)  # noqa: S101 - pydantic's ErrorDetails
    name = str(mistake["loc"][0]) if mistake["loc"] else "settings"
    where = f"--{name.replace('_', '-')} ({_PREFIX}{name.upper()})"
    if mistake["type"] == "missing":
        return f"{where} must be given"
    reason = str(mistake["msg"]).removeprefix("Value error, ")
    return f"{where} can't be {str(mistake['input'])!r}: {reason[:1].lower()}{reason[1:]}"
