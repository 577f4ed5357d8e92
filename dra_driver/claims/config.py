"""ShareConfig, the opaque parameters of a DeviceClass or a claim → the terms of one grant. Pure.

Default < class < claim, but a claim can only tighten what default and class say: whoever may make claims must
not be able to switch the limits off. What loosens is refused with the field, the value and what to write
instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from dra_driver.cards.rules import Interposition, MemoryOverflow
from dra_driver.claims import share_config
from dra_driver.claims.allocation import OpaqueConfig, Result
from dra_driver.claims.share_config import MAX_CAPS, ContainerCap, CorePolicy, Enforcement, ShareConfig
from dra_driver.errors import ConfigError
from kube.quantity import format_bytes

_STRICTNESS: Mapping[CorePolicy | Interposition | MemoryOverflow, int] = {
    CorePolicy.DISABLE: 0,
    CorePolicy.DEFAULT: 1,
    CorePolicy.FORCE: 2,
    Interposition.PRELOAD: 0,
    Interposition.SHIM: 1,
    MemoryOverflow.SPILL: 0,
    MemoryOverflow.REFUSE: 1,
}
_Strict = TypeVar("_Strict", CorePolicy, Interposition, MemoryOverflow)
DEFAULT_PRIORITY = 1  # 0 goes before 1


@dataclass(frozen=True)
class Terms:
    """What holds for one grant. `enforcement` None: as the share needs it; caps: by container."""

    enforcement: Enforcement | None = None
    core_policy: CorePolicy = CorePolicy.DEFAULT
    priority: int = DEFAULT_PRIORITY
    caps: tuple[ContainerCap, ...] = ()
    interposition: Interposition = Interposition.PRELOAD
    memory_overflow: MemoryOverflow = MemoryOverflow.SPILL


def terms_of(
    result: Result,
    configs: Iterable[OpaqueConfig],
    interposition: Interposition = Interposition.PRELOAD,
    memory_overflow: MemoryOverflow = MemoryOverflow.SPILL,
) -> Terms:
    """Of each source the last config that applies counts. The defaults are the node's. Raises ConfigError."""
    from_class = from_claim = None
    for each in configs:
        if each.applies_to(result):
            if each.from_class:
                from_class = each
            else:
                from_claim = each
    terms = Terms(interposition=interposition, memory_overflow=memory_overflow)
    if from_class is not None:
        terms = _of_class(share_config.read(from_class.parameters, from_class.path), terms)
    if from_claim is not None:
        config = share_config.read(from_claim.parameters, from_claim.path)
        terms = _tightened(terms, config, from_claim.path, result)
    return terms


def _of_class(config: ShareConfig, default: Terms) -> Terms:
    return Terms(
        enforcement=config.enforcement,
        interposition=config.interposition or default.interposition,
        memory_overflow=config.memory_overflow or default.memory_overflow,
        core_policy=config.core_policy or CorePolicy.DEFAULT,
        priority=DEFAULT_PRIORITY if config.priority is None else config.priority,
        caps=config.caps,
    )


def _tightened(terms: Terms, config: ShareConfig, path: str, result: Result) -> Terms:
    if config.enforcement is Enforcement.NONE and terms.enforcement is not Enforcement.NONE:
        raise ConfigError(
            f"{path}.enforcement", "'none' takes effect from a DeviceClass alone: leave it out here"
        )
    policy = _stricter(config.core_policy, terms.core_policy, f"{path}.corePolicy")
    interposition = _stricter(config.interposition, terms.interposition, f"{path}.interposition")
    overflow = _stricter(config.memory_overflow, terms.memory_overflow, f"{path}.memoryOverflow")
    priority = terms.priority if config.priority is None else config.priority
    if priority < terms.priority:
        raise ConfigError(
            f"{path}.priority",
            f"{priority} goes before {terms.priority}, which holds here;"
            " it takes effect from a DeviceClass alone: leave it out",
        )
    return Terms(
        enforcement=config.enforcement or terms.enforcement,
        interposition=interposition,
        memory_overflow=overflow,
        core_policy=policy,
        priority=priority,
        caps=_tightened_caps(terms.caps, config.caps, f"{path}.caps", result),
    )


def _stricter(wanted: _Strict | None, held: _Strict, path: str) -> _Strict:
    if wanted is None or _STRICTNESS[wanted] >= _STRICTNESS[held]:
        return wanted or held
    raise ConfigError(
        path,
        f"{wanted.value!r} is looser than {held.value!r}, which holds here;"
        " it takes effect from a DeviceClass alone: leave it out",
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
