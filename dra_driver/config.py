"""ShareConfig, the opaque parameters of a DeviceClass or a claim → the terms of one grant. Pure.

Default < class < claim, but a claim can only tighten what default and class say: whoever may make claims must
not be able to switch the limits off. What loosens is refused with the field, the value and what to write
instead.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from dra_driver.claims import OpaqueConfig, Result
from dra_driver.errors import ConfigError
from dra_driver.names import CONFIG_API_VERSION, CONFIG_KIND
from kube.quantity import format_bytes, parse_quantity

MAX_CAPS = 16  # TESSERA_CAPS of the library's ABI


class Enforcement(enum.Enum):
    """Who keeps a container within its share."""

    LIBRARY = "library"
    NONE = "none"


class CorePolicy(enum.Enum):
    """When compute is limited; in HAMi's words."""

    DEFAULT = "default"
    FORCE = "force"
    DISABLE = "disable"


_STRICTNESS = {CorePolicy.DISABLE: 0, CorePolicy.DEFAULT: 1, CorePolicy.FORCE: 2}
DEFAULT_PRIORITY = 1  # 0 goes before 1


def _bytes(value: Any) -> int:
    if not isinstance(value, str | int):
        raise ValueError(f"{value!r} is not a quantity: write a number such as 3000Mi")  # noqa: TRY004 - pydantic
    amount = parse_quantity(value)
    if amount <= 0 or amount.denominator != 1:
        raise ValueError(f"{value!r} is not a whole number of bytes above 0: write a quantity such as 3000Mi")
    return int(amount)


def _distinct(caps: tuple[ContainerCap, ...]) -> tuple[ContainerCap, ...]:
    names = [cap.container for cap in caps]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"container {name!r} is there twice")
    return caps


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=False)


class ContainerCap(_Parameters):
    """A container's own limit, smaller than the grant that it shares with others."""

    container: str = Field(min_length=1, max_length=63)
    memory: Annotated[int, BeforeValidator(_bytes)] | None = None
    cores: int | None = Field(default=None, ge=1, le=100, strict=True)


class ShareConfig(_Parameters):
    """`gpu.tessera.dev/v1alpha1, kind: ShareConfig`. What is left out is the class's, or the default."""

    api_version: Literal["gpu.tessera.dev/v1alpha1"]
    kind: Literal["ShareConfig"]
    enforcement: Enforcement | None = None
    core_policy: CorePolicy | None = None
    priority: int | None = Field(default=None, ge=0, le=1, strict=True)
    caps: Annotated[tuple[ContainerCap, ...], Field(max_length=MAX_CAPS), AfterValidator(_distinct)] = ()


@dataclass(frozen=True)
class Terms:
    """What holds for one grant. `enforcement` None: as the share needs it; caps: by container."""

    enforcement: Enforcement | None = None
    core_policy: CorePolicy = CorePolicy.DEFAULT
    priority: int = DEFAULT_PRIORITY
    caps: tuple[ContainerCap, ...] = ()


def terms_of(result: Result, configs: Iterable[OpaqueConfig]) -> Terms:
    """Of each source the last config that applies counts. Raises ConfigError."""
    from_class = from_claim = None
    for config in configs:
        if config.applies_to(result):
            if config.from_class:
                from_class = config
            else:
                from_claim = config
    terms = _of_class(_decode(from_class)) if from_class is not None else Terms()
    if from_claim is not None:
        terms = _tightened(terms, _decode(from_claim), from_claim.path, result)
    return terms


def _decode(config: OpaqueConfig) -> ShareConfig:
    parameters = config.parameters
    if isinstance(parameters, dict):
        kind = (parameters.get("apiVersion"), parameters.get("kind"))
        if kind != (CONFIG_API_VERSION, CONFIG_KIND):
            raise ConfigError(
                config.path,
                f"apiVersion {kind[0]!r}, kind {kind[1]!r} is not known here: "
                f"write apiVersion: {CONFIG_API_VERSION}, kind: {CONFIG_KIND}",
            )
    try:
        return ShareConfig.model_validate(parameters)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(_path(config.path, first["loc"]), _reason(first)) from error


def _path(base: str, location: tuple[int | str, ...]) -> str:
    return base + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in location)


def _reason(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "there is no such field: leave it out"
    if error["type"] == "missing":
        return "is missing"
    given = error.get("input")
    return (
        f"{error['msg']}, not {given!r}" if isinstance(given, str | int | float | bool) else str(error["msg"])
    )


def _of_class(config: ShareConfig) -> Terms:
    return Terms(
        enforcement=config.enforcement,
        core_policy=config.core_policy or CorePolicy.DEFAULT,
        priority=DEFAULT_PRIORITY if config.priority is None else config.priority,
        caps=config.caps,
    )


def _tightened(terms: Terms, config: ShareConfig, path: str, result: Result) -> Terms:
    if config.enforcement is Enforcement.NONE and terms.enforcement is not Enforcement.NONE:
        raise ConfigError(
            f"{path}.enforcement", "'none' takes effect from a DeviceClass alone: leave it out here"
        )
    policy = config.core_policy or terms.core_policy
    if _STRICTNESS[policy] < _STRICTNESS[terms.core_policy]:
        raise ConfigError(
            f"{path}.corePolicy",
            f"{policy.value!r} is looser than {terms.core_policy.value!r}, which holds here;"
            " it takes effect from a DeviceClass alone: leave it out",
        )
    priority = terms.priority if config.priority is None else config.priority
    if priority < terms.priority:
        raise ConfigError(
            f"{path}.priority",
            f"{priority} goes before {terms.priority}, which holds here;"
            " it takes effect from a DeviceClass alone: leave it out",
        )
    return Terms(
        enforcement=config.enforcement or terms.enforcement,
        core_policy=policy,
        priority=priority,
        caps=_tightened_caps(terms.caps, config.caps, f"{path}.caps", result),
    )


def _tightened_caps(
    held: tuple[ContainerCap, ...], wanted: tuple[ContainerCap, ...], path: str, result: Result
) -> tuple[ContainerCap, ...]:
    caps = {cap.container: cap for cap in held}
    for index, cap in enumerate(wanted):
        base = caps.get(cap.container)
        memory_limits = [base.memory] if base and base.memory else []
        core_limits = [base.cores] if base and base.cores else []
        if result.consumed is not None:
            memory_limits.append(result.consumed.memory)
            core_limits += [result.consumed.cores] if result.consumed.cores else []
        if cap.memory and memory_limits and cap.memory > min(memory_limits):
            limit = format_bytes(min(memory_limits))
            raise ConfigError(
                f"{path}[{index}].memory",
                f"{format_bytes(cap.memory)} is more than the {limit} that holds here: write at most that",
            )
        if cap.cores and core_limits and cap.cores > min(core_limits):
            raise ConfigError(
                f"{path}[{index}].cores",
                f"{cap.cores} is more than the {min(core_limits)} that holds here: write at most that",
            )
        caps[cap.container] = ContainerCap.model_construct(
            container=cap.container,
            memory=cap.memory or (base.memory if base else None),
            cores=cap.cores or (base.cores if base else None),
        )
    if len(caps) > MAX_CAPS:
        raise ConfigError(
            path, f"class and claim together cap {len(caps)} containers; {MAX_CAPS} is the most"
        )
    return tuple(caps.values())
