"""Where a setting comes from: a flag, else the environment, else a file, else its default.

One name in three spellings: `--split-count`, `TESSERA_SPLIT_COUNT`, and `splitCount` in the YAML file that
`--settings` (or TESSERA_SETTINGS) names. This module knows the spellings and reads; what the values must be,
the model says. Mistakes are sentences, collected and never raised one by one. argparse takes the command line
apart (pydantic-settings, which knows all three sources, would cost each node nine mebibytes).
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from kube import strict_yaml

PREFIX = "TESSERA_"
FILE = "settings"
# What Kubernetes puts into the environment for a Service named tessera-something.
_SERVICE_LINK = re.compile(
    r".*_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)"
)


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    return PREFIX + name.upper()


def key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


SPELLINGS = (flag, variable, key)


@dataclass(frozen=True)
class Field:
    """A setting as the sources need to know it. `is_switch`: its flag may stand alone, for true."""

    name: str
    description: str
    default: str | None
    is_switch: bool = False


_FILE = Field(FILE, "a YAML file of settings", None)


@dataclass
class Found:
    """Setting → its value, as given; and setting → the words for where it was given."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)

    def add(self, name: str, value: Any, origin: str) -> None:
        if name not in self.values:
            self.values[name] = value
            self.origins[name] = origin


def read(
    program: str, fields: Sequence[Field], arguments: Sequence[str], environment: Mapping[str, str]
) -> Found:
    """What is set, the stronger source first; `--help` prints and exits.

    Raises ArgumentError for a flag without its value: what a command line goes on with then, nobody knows.
    """
    found = Found()
    flags = _flags(program, fields, arguments, found.mistakes)
    for name, value in flags.items():
        if name != FILE:
            found.add(name, value, flag(name))
    for known in fields:
        if variable(known.name) in environment:
            found.add(known.name, environment[variable(known.name)], variable(known.name))
    file = flags.get(FILE, environment.get(variable(FILE)))
    if file is not None:
        _read_file(Path(file), fields, found)
    return found


def unknown_variables(names: Iterable[str], fields: Sequence[Field]) -> list[str]:
    """A sentence for each variable that looks like one of ours and is none; they do no harm."""
    known = {variable(field.name) for field in fields} | {variable(FILE)}
    return [
        f"environment variable {name} is ignored: it is no setting{_did_you_mean(name, known)}"
        for name in sorted(names)
        if name.startswith(PREFIX) and name not in known and _SERVICE_LINK.fullmatch(name) is None
    ]


def _parser(program: str, fields: Sequence[Field]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        program,
        usage="%(prog)s [--name value]...",
        description="Each flag is also an environment variable TESSERA_LIKE_THIS and a key likeThis of the"
        " settings file. A flag goes before the environment, the environment before the file.",
        formatter_class=partial(argparse.HelpFormatter, width=100),
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
    )
    for known in (_FILE, *fields):
        default = "" if known.default is None else f" (default: {known.default})"
        parser.add_argument(
            flag(known.name),
            nargs="?" if known.is_switch else None,
            const="true" if known.is_switch else None,
            metavar="true|false" if known.is_switch else "VALUE",
            help=known.description + default,
        )
    return parser


def _flags(
    program: str, fields: Sequence[Field], arguments: Sequence[str], mistakes: list[str]
) -> dict[str, str]:
    """Setting → value; of one given twice, the last. Raises ArgumentError."""
    given, strays = _parser(program, fields).parse_known_args(arguments)
    known = [flag(field.name) for field in (_FILE, *fields)]
    for stray in strays:
        name = stray.partition("=")[0]
        what = "flag" if name.startswith("-") else "argument"
        mistakes.append(f"there is no {what} {name}{_did_you_mean(name, known)}")
    return vars(given)


def _read_file(path: Path, fields: Sequence[Field], found: Found) -> None:
    try:
        content = strict_yaml.load(path.read_bytes())
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        found.mistakes.append(f"settings file {path} can't be read: {error}")
        return
    except strict_yaml.YamlError as error:
        found.mistakes.append(f"settings file {path} is not YAML: {error}")
        return
    if content is None:
        return
    if not isinstance(content, dict):
        found.mistakes.append(f"settings file {path} must be a mapping, such as `splitCount: 10`")
        return
    names = {key(known.name): known.name for known in fields}
    for given, value in content.items():
        if given not in names:
            found.mistakes.append(
                f"settings file {path}: there is no key {given}{_did_you_mean(str(given), names)}"
            )
        elif value is not None:  # as if the line weren't there
            found.add(names[given], value, f"settings file {path}: {given}")


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; is {near[0]} meant?" if near else ""
