"""The program's settings: flags `--kebab-case`, or the environment `TESSERA_…`; flags win.

msgspec converts and checks, argparse takes the command line apart: pydantic, which could do both, would cost
each replica eleven mebibytes.
"""

from __future__ import annotations

import argparse
import ipaddress
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta

from claim_mutator.names import (
    DEVICE_CLASS,
    HAMI_SCHEDULER,
    MIG_CLASS,
    MUTATOR,
    PRIORITY_CLASS,
    TRUSTED_CLASS,
    ResourceNames,
    Role,
)
from claim_mutator.rules import DeviceClasses, HighPriority, Policy, Rules

PREFIX = "TESSERA_"
_QUALIFIED = re.compile(
    r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
)
_TLS = "tessera-mutator-tls"
_SWITCHES = {"1": "true", "yes": "true", "on": "true", "0": "false", "no": "false", "off": "false"}


class SettingsError(Exception):
    """Settings that can't be used: `mistakes`, a sentence each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


Names = tuple[str, ...]
"""A comma list; the first name is the one that messages recommend."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Turns Pods written for HAMi into Pods with a ResourceClaim. Each flag is also a variable TESSERA_…."""

    listen: Annotated[str, Meta(description="where reviews are taken (TLS, POST /mutate)")] = "0.0.0.0:8443"
    http_address: Annotated[str, Meta(description="where /metrics, /healthz and /readyz are")] = (
        "0.0.0.0:9471"
    )
    service_name: Annotated[str, Meta(description="the Service that the API server calls")] = MUTATOR
    namespace: Annotated[str | None, Meta(description="ours; else POD_NAMESPACE, else the connection's")] = (
        None
    )
    webhook_name: Annotated[
        str, Meta(description="the MutatingWebhookConfiguration whose caBundle we fill")
    ] = MUTATOR
    tls_secret: Annotated[str, Meta(description="the Secret for CA and serving certificate")] = _TLS
    certificate_period: Annotated[
        float, Meta(gt=0, description="seconds between looks at Secret and caBundle")
    ] = 20.0
    tls_directory: Annotated[
        Path | None,
        Meta(
            description="where somebody else (cert-manager) puts tls.crt and tls.key; else they are our own"
        ),
    ] = None
    lease: Annotated[str, Meta(description="the Lease by which replicas agree who leads")] = "tessera-mutator"
    quota_period: Annotated[
        float, Meta(gt=0, description="seconds between two counts of what quotas come to")
    ] = 15.0
    device_class: Annotated[str, Meta(description="the DeviceClass of cards and their shares")] = DEVICE_CLASS
    mig_device_class: Annotated[str, Meta(description="the DeviceClass of MIG instances")] = MIG_CLASS
    priority_device_class: Annotated[str, Meta(description="the DeviceClass of shares that go first")] = (
        PRIORITY_CLASS
    )
    trusted_device_class: Annotated[str, Meta(description="the DeviceClass of shares without limits")] = (
        TRUSTED_CLASS
    )
    resource_count: Annotated[Names, Meta(description="how many cards; aliases after a comma")] = (
        "nvidia.com/gpu",
    )
    resource_memory: Annotated[Names, Meta(description="MiB of each card")] = ("nvidia.com/gpumem",)
    resource_memory_percentage: Annotated[Names, Meta(description="of each card")] = (
        "nvidia.com/gpumem-percentage",
    )
    resource_cores: Annotated[Names, Meta(description="percent of each card's compute")] = (
        "nvidia.com/gpucores",
    )
    resource_priority: Annotated[Names, Meta(description="0 or 1")] = ("nvidia.com/priority",)
    default_count: Annotated[
        int, Meta(ge=0, le=32, description="cards for a container that names only a share; 0: it is refused")
    ] = 1
    default_memory: Annotated[
        int, Meta(ge=0, description="MiB of a container that names no memory; 0: all of it")
    ] = 0
    default_cores: Annotated[
        int, Meta(ge=0, le=100, description="percent of one that names none; 0: no limit")
    ] = 0
    memory_factor: Annotated[int, Meta(ge=1, description="MiB that one unit of memory means; 1024: GiB")] = 1
    privileged: Annotated[
        Literal["deny", "allow"], Meta(description="Pods with GPUs and a privileged container")
    ] = "deny"
    node_name: Annotated[
        Literal["deny", "convert"], Meta(description="Pods with GPUs and a preset nodeName")
    ] = "deny"
    high_priority: Annotated[
        Literal["allow", "trusted"],
        Meta(description="whose Pods may have priority 0: everybody's, or those of trusted namespaces"),
    ] = "allow"
    runtime_class: Annotated[
        str, Meta(description="runtimeClassName of Pods with GPUs that have none; empty: none")
    ] = ""
    hide_cards: Annotated[
        bool, Meta(description="NVIDIA_VISIBLE_DEVICES=none for the other containers of Pods with GPUs")
    ] = False
    placement: Annotated[
        Literal["binpack", "spread"], Meta(description="how the nodes' cards are ordered")
    ] = "binpack"
    replaced_schedulers: Annotated[
        Names, Meta(description="schedulerNames that become the default scheduler's")
    ] = (HAMI_SCHEDULER,)
    keeper_period: Annotated[float, Meta(gt=0, description="seconds between looks for unused templates")] = (
        300.0
    )
    keep_seconds: Annotated[
        float, Meta(ge=0, description="how long a template stays unused before it goes")
    ] = 600.0
    drain_seconds: Annotated[
        float, Meta(ge=0, description="how long reviews are still taken after SIGTERM")
    ] = 5.0
    kubeconfig: Annotated[
        Path | None, Meta(description="outside a cluster; else the Pod's service account")
    ] = None
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="what is logged, and what is worse")
    ] = "info"

    @property
    def rules(self) -> Rules:
        names = ResourceNames(
            count=self.resource_count,
            memory=self.resource_memory,
            percentage=self.resource_memory_percentage,
            cores=self.resource_cores,
            priority=self.resource_priority,
        )
        classes = DeviceClasses(
            self.device_class, self.mig_device_class, self.priority_device_class, self.trusted_device_class
        )
        return Rules(
            names,
            self.default_count,
            self.default_memory,
            self.default_cores,
            self.memory_factor,
            Policy.DENY if self.privileged == "deny" else Policy.CONVERT,
            Policy(self.node_name),
            HighPriority(self.high_priority),
            self.runtime_class,
            self.hide_cards,
            self.placement,
            self.replaced_schedulers,
            classes,
        )


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """What the command line and the environment say; `--help` prints and exits. Raises SettingsError."""
    try:
        flags, unknown = _parser().parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SettingsError([str(error)]) from error
    if unknown:
        raise SettingsError([f"{unknown[0]} is no flag: --help lists them all"])
    values = {
        name: environment[PREFIX + name.upper()] for name in names() if PREFIX + name.upper() in environment
    }
    return made(values | vars(flags))


def _spelt(name: str) -> str:
    return f"{_flag(name)} ({PREFIX}{name.upper()})"


def made(values: Mapping[str, Any], spelt: Callable[[str], str] = _spelt) -> Settings:
    """Of text, or of what the text stands for. Raises SettingsError with all mistakes, not the first.

    spelt: a setting's name, as whoever gave it knows it.
    """
    mistakes: list[str] = []
    converted: dict[str, Any] = {}
    for field in msgspec.structs.fields(Settings):
        if field.name in values:
            try:
                converted[field.name] = _converted(field, values[field.name])
            except ValueError as error:
                reason = str(error).partition(" - at ")[0]
                mistakes.append(f"{spelt(field.name)}: {reason}, not {values[field.name]!r}")
    mistakes += _clashes(converted)
    if mistakes:
        raise SettingsError(mistakes)
    return Settings(**converted)


def names() -> list[str]:
    return [field.name for field in msgspec.structs.fields(Settings)]


def _converted(field: msgspec.structs.FieldInfo, value: Any) -> Any:
    """Raises ValueError (msgspec's ValidationError is one)."""
    if isinstance(value, str):
        if isinstance(field.default, tuple):
            value = tuple(part.strip() for part in value.split(",") if part.strip())
        elif isinstance(field.default, bool):
            value = _SWITCHES.get(value.lower(), value)
        elif field.name in ("tls_directory", "kubeconfig"):
            return Path(value)
    choices = get_args(field.type.__origin__) if hasattr(field.type, "__origin__") else ()
    if field.default in choices and value not in choices:
        raise ValueError(f"is not {' or '.join(map(repr, choices))}")
    found = msgspec.convert(value, field.type, strict=False)
    if field.name in ("listen", "http_address"):
        _check_address(found)
    if field.name.startswith("resource_"):
        _check_names(found)
    return found


def _check_address(text: str) -> None:
    host, _, port = text.rpartition(":")
    try:
        ipaddress.ip_address(host.strip("[]"))
        usable = 0 <= int(port) <= 65535
    except ValueError:
        usable = False
    if not usable:
        raise ValueError("is not ADDRESS:PORT, such as 0.0.0.0:8443 or [::]:8443")


def _check_names(found: Names) -> None:
    if not found:
        raise ValueError("needs at least one name, such as nvidia.com/gpu")
    for name in found:
        if not _QUALIFIED.fullmatch(name):
            raise ValueError(f"{name!r} is not a resource name, such as nvidia.com/gpu")


def _clashes(values: Mapping[str, Any]) -> Iterator[str]:
    """Names that would mean two things. values: those that could be read."""
    chosen = Settings(**values).rules.names
    seen: dict[str, Role] = {}
    for role in Role:
        for name in chosen.of(role):
            if name in seen:
                yield f"{name!r} can't mean both {seen[name].value} and {role.value}"
            seen[name] = role


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        MUTATOR,
        usage="%(prog)s [--name value]...",
        description=f"{Settings.__doc__} Flags go before variables.",
        formatter_class=partial(argparse.HelpFormatter, width=100),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for field in msgspec.structs.fields(Settings):
        is_switch = isinstance(field.default, bool)
        parser.add_argument(
            _flag(field.name),
            nargs="?" if is_switch else None,
            const="true" if is_switch else None,
            metavar="VALUE",
            help=f"{_description(field)} (default: {_shown(field.default)})",
        )
    return parser


def _description(field: msgspec.structs.FieldInfo) -> str:
    metas = getattr(field.type, "__metadata__", ())
    return next((meta.description.replace("%", "%%") for meta in metas if meta.description), "")


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return ",".join(default)
    return str(default).lower() if isinstance(default, bool) else str(default or "none")
