"""What can be set: by a flag `--like-this`, a variable `TESSERA_LIKE_THIS`, or a key `likeThis` of a file."""

# ruff: noqa: RUF009 - `setting` makes a dataclass field

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
from kube import settings
from kube.settings import readings, setting
from kube.settings.readings import absolute_path
from kube.settings.sources import Found

Names = tuple[str, ...]
"""A comma list; the first name is the one that messages recommend."""

_OBJECT = r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?"
_RESOURCE = rf"({_OBJECT}/)?[A-Za-z0-9]([A-Za-z0-9._-]{{0,61}}[A-Za-z0-9])?"
_name = readings.text(_OBJECT, "the name of a Kubernetes object, such as tessera-mutator")
_resources = readings.words(_RESOURCE, "names of resources, such as nvidia.com/gpu, with commas in between")
_LEAST = "0.1"  # seconds of what is done again and again


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The webhook's settings: how it serves, and what it makes of Pods."""

    listen: str = setting(readings.address, "where reviews are taken (TLS, POST /mutate)", "[::]:8443")
    http_address: str = setting(readings.address, "where /metrics, /healthz and /readyz are", "[::]:9471")
    service_name: str = setting(_name, "the Service that the API server calls", MUTATOR)
    namespace: str | None = setting(_name, "ours; else POD_NAMESPACE, else the connection's", None)
    webhook_name: str = setting(_name, "the MutatingWebhookConfiguration whose caBundle we fill", MUTATOR)
    tls_secret: str = setting(_name, "the Secret for CA and serving certificate", "tessera-mutator-tls")
    certificate_period: float = setting(
        readings.seconds(_LEAST, "86400"), "seconds between looks at Secret and caBundle", 20.0
    )
    tls_directory: Path | None = setting(
        absolute_path,
        "where somebody else (cert-manager) puts tls.crt and tls.key; else they are our own",
        None,
    )
    lease: str = setting(_name, "the Lease by which replicas agree who leads", "tessera-mutator")
    quota_period: float = setting(
        readings.seconds(_LEAST, "86400"), "seconds between two counts of what quotas come to", 15.0
    )
    device_class: str = setting(_name, "the DeviceClass of cards and their shares", DEVICE_CLASS)
    mig_device_class: str = setting(_name, "the DeviceClass of MIG instances", MIG_CLASS)
    priority_device_class: str = setting(_name, "the DeviceClass of shares that go first", PRIORITY_CLASS)
    trusted_device_class: str = setting(_name, "the DeviceClass of shares without limits", TRUSTED_CLASS)
    resource_count: Names = setting(_resources, "how many cards; aliases after a comma", ("nvidia.com/gpu",))
    resource_memory: Names = setting(_resources, "MiB of each card", ("nvidia.com/gpumem",))
    resource_memory_percentage: Names = setting(
        _resources, "percent of each card's memory", ("nvidia.com/gpumem-percentage",)
    )
    resource_cores: Names = setting(_resources, "percent of each card's compute", ("nvidia.com/gpucores",))
    resource_priority: Names = setting(_resources, "0 or 1", ("nvidia.com/priority",))
    default_count: int = setting(
        readings.whole(0, 32), "cards for a container that names only a share; 0: it is refused", 1
    )
    default_memory: int = setting(
        readings.whole(0, 1 << 31), "MiB of a container that names no memory; 0: all of it", 0
    )
    default_cores: int = setting(readings.whole(0, 100), "percent of one that names none; 0: no limit", 0)
    memory_factor: int = setting(
        readings.whole(1, 1 << 20), "MiB that one unit of memory means; 1024: GiB", 1
    )
    privileged: Literal["deny", "allow"] = setting(
        readings.one_of("deny", "allow"), "deny or allow: Pods with GPUs and a privileged container", "deny"
    )
    preset_node_name: Literal["deny", "convert"] = setting(
        readings.one_of("deny", "convert"),
        "deny, or convert to an affinity: Pods with GPUs and a preset nodeName",
        "deny",
    )
    high_priority: Literal["allow", "trusted"] = setting(
        readings.one_of("allow", "trusted"),
        "allow or trusted: whose Pods may have priority 0, everybody's or those of trusted namespaces",
        "allow",
    )
    runtime_class: str = setting(
        readings.text(rf"({_OBJECT})?", "the name of a RuntimeClass, such as nvidia"),
        "runtimeClassName of Pods with GPUs that have none; empty: none",
        "",
    )
    hide_cards: bool = setting(
        readings.switch, "NVIDIA_VISIBLE_DEVICES=none for the other containers of Pods with GPUs", False
    )
    placement: Literal["binpack", "spread"] = setting(
        readings.one_of("binpack", "spread"), "binpack or spread: how the nodes' cards are ordered", "binpack"
    )
    replaced_schedulers: Names = setting(
        readings.words(_OBJECT, "names of schedulers with commas in between, or nothing", least=0),
        "schedulerNames that become the default scheduler's",
        (HAMI_SCHEDULER,),
    )
    keeper_period: float = setting(
        readings.seconds(_LEAST, "86400"), "seconds between looks for unused templates", 300.0
    )
    keep_seconds: float = setting(
        readings.seconds("0", "86400"), "how long a template stays unused before it goes", 600.0
    )
    drain_seconds: float = setting(
        readings.seconds("0", "86400"), "how long reviews are still taken after SIGTERM", 5.0
    )
    kubeconfig: Path | None = setting(
        absolute_path, "outside a cluster; else the Pod's service account", None
    )
    legacy_metrics: bool = setting(
        readings.switch, "serves HAMi's names of quotas' metrics (hami_...) beside ours", False
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        readings.one_of("debug", "info", "warning", "error"),
        "debug, info, warning or error: what is logged, and what is worse",
        "info",
    )

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
            Policy(self.preset_node_name),
            HighPriority(self.high_priority),
            self.runtime_class,
            self.hide_cards,
            self.placement,
            self.replaced_schedulers,
            classes,
        )


def load(arguments: Sequence[str], environment: Mapping[str, str]) -> Settings:
    """What flags, the environment and a file say; `--help` prints and exits. Raises SettingsError."""
    return settings.load(Settings, MUTATOR, arguments, environment, _clashes)


def made(found: Found) -> Settings:
    """Of what was given elsewhere than at the program's start. Raises SettingsError."""
    return settings.made(Settings, found, _clashes)


def _clashes(chosen: Settings, origins: Mapping[str, str]) -> Iterator[str]:
    """Names that would mean two things."""
    names = chosen.rules.names
    seen: dict[str, Role] = {}
    for role in Role:
        for name in names.of(role):
            if name in seen:
                yield f"{name!r} can't mean both {seen[name].value} and {role.value}: {_given(origins)}"
            seen[name] = role


def _given(origins: Mapping[str, str]) -> str:
    return "see " + ", ".join(origin for name, origin in origins.items() if name.startswith("resource_"))
