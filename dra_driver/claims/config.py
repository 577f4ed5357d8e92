"""ShareConfig, the opaque parameters of a DeviceClass or a claim → the terms of one grant. Pure.

Default < class < claim, but a claim can only tighten what default and class say: whoever may make claims must
not be able to switch the limits off. What loosens is refused with the field, the value and what to write
instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dra_driver.claims import share_config
from dra_driver.claims.allocation import OpaqueConfig, Result
from dra_driver.claims.share_config import MAX_CAPS, ContainerCap, CorePolicy, Enforcement, ShareConfig
from dra_driver.errors import ConfigError
from kube.quantity import format_bytes

_STRICTNESS = {CorePolicy.DISABLE: 0, CorePolicy.DEFAULT: 1, CorePolicy.FORCE: 2}
DEFAULT_PRIORITY = 1  # 0 goes before 1


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
    for each in configs:
        if each.applies_to(result):
            if each.from_class:
                from_class = each
            else:
                from_claim = each
    terms = (
        _of_class(share_config.read(from_class.parameters, from_class.path))
        if from_class is not None
        else Terms()
    )
    if from_claim is not None:
        config = share_config.read(from_claim.parameters, from_claim.path)
        terms = _tightened(terms, config, from_claim.path, result)
    return terms


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
        caps[cap.container] = ContainerCap(
            container=cap.container,
            memory=cap.memory or (base.memory if base else None),
            cores=cap.cores or (base.cores if base else None),
        )
    if len(caps) > MAX_CAPS:
        raise ConfigError(
            path, f"class and claim together cap {len(caps)} containers; {MAX_CAPS} is the most"
        )
    return tuple(caps.values())
