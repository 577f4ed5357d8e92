"""ShareConfig, as it stands in a DeviceClass or a claim → values. Pure; refuses all that it doesn't know.

apiVersion: gpu.tessera.dev/v1alpha1
kind: ShareConfig
enforcement: library        # or none
interposition: preload      # or shim
memoryOverflow: spill       # or refuse
corePolicy: default         # or force, disable
priority: 1                 # 0 goes before 1
caps: [{container: trainer, memory: 3000Mi, cores: 30}]
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from dra_driver.cards.rules import Interposition, MemoryOverflow
from dra_driver.errors import ConfigError
from dra_driver.names import CONFIG_API_VERSION, CONFIG_KIND
from kube.quantity import QuantityError, parse_quantity

FIELDS = ("enforcement", "interposition", "memoryOverflow", "corePolicy", "priority", "caps")
MAX_CAPS = 16  # TESSERA_CAPS of the library's ABI
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # what Kubernetes allows for a container
_T = TypeVar("_T")


class Enforcement(enum.Enum):
    """Who keeps a container within its share."""

    LIBRARY = "library"
    NONE = "none"


class CorePolicy(enum.Enum):
    """When compute is limited; in HAMi's words."""

    DEFAULT = "default"
    FORCE = "force"
    DISABLE = "disable"


@dataclass(frozen=True)
class ContainerCap:
    """A container's own limit, smaller than the grant that it shares with others. Bytes, percent."""

    container: str
    memory: int | None = None
    cores: int | None = None


@dataclass(frozen=True)
class ShareConfig:
    """What is None, or empty, was left out: the class's, or the default, holds."""

    enforcement: Enforcement | None = None
    core_policy: CorePolicy | None = None
    priority: int | None = None
    caps: tuple[ContainerCap, ...] = ()
    interposition: Interposition | None = None
    memory_overflow: MemoryOverflow | None = None


def read(parameters: Any, path: str) -> ShareConfig:
    """`path`: what the parameters are called in messages. Raises ConfigError with the field's path."""
    found = _mapping(parameters, path)
    kind = (found.get("apiVersion"), found.get("kind"))
    if kind != (CONFIG_API_VERSION, CONFIG_KIND):
        raise ConfigError(
            path,
            f"apiVersion {kind[0]!r}, kind {kind[1]!r} is not known here: "
            f"write apiVersion: {CONFIG_API_VERSION}, kind: {CONFIG_KIND}",
        )
    fields = _Fields(found, path, ("apiVersion", "kind", *FIELDS))
    return ShareConfig(
        enforcement=fields.read("enforcement", _one_of(Enforcement)),
        interposition=fields.read("interposition", _one_of(Interposition)),
        memory_overflow=fields.read("memoryOverflow", _one_of(MemoryOverflow)),
        core_policy=fields.read("corePolicy", _one_of(CorePolicy)),
        priority=fields.read("priority", _whole(0, 1)),
        caps=fields.read("caps", _caps) or (),
    )


class _Fields:
    """The fields of one mapping, each read once; unknown ones are refused at once."""

    def __init__(self, given: Mapping[Any, Any], path: str, known: tuple[str, ...]) -> None:
        self._given = given
        self._path = path
        for name in given:
            if name not in known:
                raise ConfigError(f"{path}.{name}", f"there is no such field, only {', '.join(known)}")

    def read(self, name: str, reading: Callable[[Any, str], _T]) -> _T | None:
        """None where the field is left out, or null, which is the same to Kubernetes."""
        value = self._given.get(name)
        return None if value is None else reading(value, f"{self._path}.{name}")


def _mapping(value: Any, path: str) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(path, f"must be an object, not {value!r}")
    return value


_Kind = TypeVar("_Kind", bound=enum.Enum)


def _one_of(kinds: type[_Kind]) -> Callable[[Any, str], _Kind]:
    def reading(value: Any, path: str) -> _Kind:
        for kind in kinds:
            if kind.value == value:
                return kind
        *words, last = (repr(kind.value) for kind in kinds)
        raise ConfigError(path, f"must be {', '.join(words)} or {last}, not {value!r}")

    return reading


def _whole(least: int, most: int) -> Callable[[Any, str], int]:
    def reading(value: Any, path: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ConfigError(path, f"must be a whole number from {least} to {most}, not {value!r}")
        return value

    return reading


def _caps(value: Any, path: str) -> tuple[ContainerCap, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(path, f"must be a list, not {value!r}")
    if len(value) > MAX_CAPS:
        raise ConfigError(path, f"has {len(value)} entries: write at most {MAX_CAPS}")
    caps = tuple(_cap(each, f"{path}[{index}]") for index, each in enumerate(value))
    names = [cap.container for cap in caps]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(path, f"container {name!r} is there twice")
    return caps


def _cap(value: Any, path: str) -> ContainerCap:
    fields = _Fields(_mapping(value, path), path, ("container", "memory", "cores"))
    container = fields.read("container", _name)
    if container is None:
        raise ConfigError(f"{path}.container", "is missing")
    cap = ContainerCap(container, fields.read("memory", _bytes), fields.read("cores", _whole(1, 100)))
    if cap.memory is None and cap.cores is None:
        raise ConfigError(path, f"caps nothing of container {container!r}: write memory, cores, or both")
    return cap


def _name(value: Any, path: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigError(path, f"must be a container's name, as the Pod has it, not {value!r}")
    return value


def _bytes(value: Any, path: str) -> int:
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise ConfigError(path, f"{value!r} is not a quantity: write a number such as 3000Mi")
    try:
        amount = parse_quantity(value)
    except QuantityError as error:
        raise ConfigError(path, str(error)) from error
    if amount <= 0 or amount.denominator != 1:
        raise ConfigError(
            path, f"{value!r} is not a whole number of bytes above 0: write a quantity such as 3000Mi"
        )
    return int(amount)
