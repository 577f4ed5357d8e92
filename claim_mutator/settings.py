"""The program's settings: flags `--kebab-case`, or the environment `TESSERA_…`; flags win."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from claim_mutator.container import Rules
from claim_mutator.names import DEVICE_CLASS, MUTATOR, ResourceNames, Role

_QUALIFIED = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        usable = 0 <= int(port) <= 65535
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("is not ADDRESS:PORT, such as 0.0.0.0:8443 or [::]:8443")
    return text


def _listed(value: Any) -> Any:
    """A comma list; the first name is the one that messages recommend."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _resource_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if not _QUALIFIED.fullmatch(name):
            raise ValueError(f"{name!r} is not a resource name, such as nvidia.com/gpu")
    return names


Address = Annotated[str, AfterValidator(_address)]
Names = Annotated[
    tuple[str, ...], NoDecode, BeforeValidator(_listed), Field(min_length=1), AfterValidator(_resource_names)
]


class Settings(BaseSettings):
    """Turns Pods written for HAMi into Pods with a ResourceClaim. Each flag is also a variable TESSERA_…."""

    model_config = SettingsConfigDict(
        env_prefix="TESSERA_",
        cli_parse_args=True,
        cli_prog_name=MUTATOR,
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_hide_none_type=True,
        cli_avoid_json=True,
        frozen=True,
    )

    listen: Address = Field("0.0.0.0:8443", description="where reviews are taken (TLS, POST /mutate)")
    http_address: Address = Field("0.0.0.0:9471", description="where /metrics, /healthz and /readyz are")
    service_name: str = Field(MUTATOR, description="the Service that the API server calls")
    namespace: str | None = Field(None, description="ours; else POD_NAMESPACE, else the connection's")
    webhook_name: str = Field(MUTATOR, description="the MutatingWebhookConfiguration whose caBundle we fill")
    tls_secret: str = Field("tessera-mutator-tls", description="the Secret for CA and serving certificate")
    certificate_period: float = Field(20.0, gt=0, description="seconds between looks at Secret and caBundle")
    device_class: str = Field(DEVICE_CLASS, description="the DeviceClass that templates name")
    resource_count: Names = Field(("nvidia.com/gpu",), description="how many cards; aliases after a comma")
    resource_memory: Names = Field(("nvidia.com/gpumem",), description="MiB of each card")
    resource_memory_percentage: Names = Field(("nvidia.com/gpumem-percentage",), description="of each card")
    resource_cores: Names = Field(("nvidia.com/gpucores",), description="percent of each card's compute")
    resource_priority: Names = Field(("nvidia.com/priority",), description="0 or 1")
    default_count: int = Field(1, ge=1, le=32, description="cards for a container that names only a share")
    keeper_period: float = Field(300.0, gt=0, description="seconds between looks for unused templates")
    keep_seconds: float = Field(600.0, ge=0, description="how long a template stays unused before it goes")
    drain_seconds: float = Field(5.0, ge=0, description="how long reviews are still taken after SIGTERM")
    kubeconfig: Path | None = Field(None, description="outside a cluster; else the Pod's service account")
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        seen: dict[str, Role] = {}
        names = self.rules.names
        for role in Role:
            for name in names.of(role):
                if name in seen:
                    raise ValueError(f"{name!r} can't mean both {seen[name].value} and {role.value}")
                seen[name] = role
        return self

    @property
    def rules(self) -> Rules:
        names = ResourceNames(
            count=self.resource_count,
            memory=self.resource_memory,
            percentage=self.resource_memory_percentage,
            cores=self.resource_cores,
            priority=self.resource_priority,
        )
        return Rules(names, self.default_count)
