"""What a program's people can set, by flags, environment and a file: the fields of a frozen dataclass.

`setting` makes such a field, `load` reads all of them together: each mistake is one sentence that names the
setting, the value and what to write instead.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from kube.settings import readings, sources
from kube.settings.readings import Reading
from kube.settings.sources import Found

if TYPE_CHECKING:
    from dataclasses import Field


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


_Model = TypeVar("_Model", bound=_Dataclass)
Check = Callable[[_Model, Mapping[str, str]], Iterable[str]]
"""Settings that are right one by one, and the words for where each was given → mistakes of them together."""


class SettingsError(Exception):
    """Settings that can't be used: `mistakes`, a sentence each; as text, a line each."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


def setting(reading: Reading, description: str, default: Any = dataclasses.MISSING) -> Any:
    """A field; one without a default must be given."""
    return dataclasses.field(default=default, metadata={"reading": reading, "description": description})


def load(
    model: type[_Model],
    program: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    check: Check[_Model] = lambda _settings, _origins: (),
) -> _Model:
    """What all sources say; `--help` prints and exits. Raises SettingsError with all mistakes."""
    try:
        found = sources.read(program, fields(model), arguments, environment)
    except argparse.ArgumentError as error:
        raise SettingsError([str(error)]) from error
    return made(model, found, check)


def made(model: type[_Model], found: Found, check: Check[_Model] = lambda _settings, _origins: ()) -> _Model:
    """The settings that were found, the rest by default. Raises SettingsError with all mistakes."""
    mistakes = list(found.mistakes)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(model):
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
        settings = model(**values)
        mistakes += check(settings, found.origins)
        if not mistakes:
            return settings
    raise SettingsError(mistakes)


def fields(model: type[_Model]) -> tuple[sources.Field, ...]:
    """Every setting, in the order of the class."""
    return tuple(
        sources.Field(
            field.name,
            field.metadata["description"],
            _shown(field.default),
            is_switch=field.metadata["reading"] is readings.switch,
        )
        for field in dataclasses.fields(model)
    )


def _shown(default: Any) -> str | None:
    """As one would write it; None where nothing is meant."""
    if default in (dataclasses.MISSING, None, "", frozenset(), ()):
        return None
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(default) if isinstance(default, tuple) else str(default).removesuffix(".0")
