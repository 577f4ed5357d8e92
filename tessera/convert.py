"""`tessera convert`: what the webhook would make of a manifest, without a cluster.

Exit status 0: converted, or nothing to convert; 1: refused, with the reasons; 2: not readable. Nothing is
written to stdout unless everything was converted; what needs no conversion comes out as it went in.
"""

from __future__ import annotations

import copy
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from claim_mutator import patch, pod
from claim_mutator.container import Rules
from claim_mutator.conversion import Conversion, convert
from claim_mutator.refusal import Refused
from claim_mutator.selection import NO_USE_TYPE, NO_USE_UUID, NUMA_BIND, USE_TYPE, USE_UUID
from claim_mutator.template import Cluster
from kube.quantity import QuantityError, parse_quantity

REFUSED, UNREADABLE = 1, 2

_POD_TEMPLATES = {
    "Pod": (),
    "PodTemplate": ("template",),
    "ReplicationController": ("spec", "template"),
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
"""Of other kinds an operator makes Pods, which are converted when they are admitted."""
_GROUPS = ("v1", "apps/", "batch/v1")
_SELECTING = (USE_UUID, NO_USE_UUID, USE_TYPE, NO_USE_TYPE, NUMA_BIND)


class _Unreadable(Exception):  # noqa: N818 - what it is
    """The file, or the option, can't be understood."""


class _Loader(yaml.SafeLoader):
    """Dates stay the strings that Kubernetes sees."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own form
        first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class _Dumper(yaml.SafeDumper):
    """Quotes strings that other YAML readers than PyYAML take for numbers or truth values."""


_AMBIGUOUS = re.compile(r"[-+.]?[0-9][0-9a-fA-FxXoO_.:+-]*|[yYnN]")


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "'" if _AMBIGUOUS.fullmatch(text) else "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _string)


class Manifests:
    """The documents of one file, converted one after the other."""

    def __init__(self, cluster: Cluster, rules: Rules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._templates: set[tuple[str, str]] = set()
        self.converted: list[Any] = []
        self.warnings: list[str] = []
        self.refusals: list[str] = []
        self.changed = False

    def add(self, document: dict[str, Any]) -> None:
        """Appends the document to `converted`, behind the templates that it needs first."""
        if document.get("kind") == "List" and isinstance(document.get("items"), list):
            for item in document["items"]:
                if not isinstance(item, dict):
                    raise _Unreadable("an item of the List is not an object")
                self.add(item)
            return
        steps = self._steps(document)
        if steps is None:
            self._note_foreign(document)
            self.converted.append(document)
            return
        template = _at(document, steps)
        try:
            found = convert(pod.from_manifest(template), self._rules, self._cluster)
        except msgspec.ValidationError as error:
            raise _Unreadable(f"{_name(document)}: {error}") from error
        except Refused as refused:
            self.refusals += [f"{_name(document)}: {problem.text}" for problem in refused.problems]
            return
        self.warnings += [f"{_name(document)}: {warning}" for warning in found.warnings]
        self._note_misplaced(document, steps, found)
        self._append(document, steps, template, found)

    def _append(
        self, document: dict[str, Any], steps: tuple[str, ...], template: Any, found: Conversion
    ) -> None:
        if found.template is not None:
            namespace = (document.get("metadata") or {}).get("namespace") or ""
            if (namespace, found.template.name) not in self._templates:
                self._templates.add((namespace, found.template.name))
                self.converted.append(found.template.document(namespace, managed=False))
        self.changed = self.changed or bool(found.operations)
        self.converted.append(_replaced(document, steps, patch.apply(template, found.operations)))

    @staticmethod
    def _steps(document: dict[str, Any]) -> tuple[str, ...] | None:
        if not str(document.get("apiVersion", "v1")).startswith(_GROUPS):
            return None
        return _POD_TEMPLATES.get(str(document.get("kind")))

    def _note_foreign(self, document: dict[str, Any]) -> None:
        names = [name for name in _keys(document) if name in self._rules.names.roles]
        if names and "containers" in _keys(document):
            self.warnings.append(
                f"{_name(document)}: {names[0]} is left as it is: the Pods made from it are converted when"
                " they are admitted"
            )

    def _note_misplaced(self, document: dict[str, Any], steps: tuple[str, ...], found: Conversion) -> None:
        annotations = (document.get("metadata") or {}).get("annotations") or {}
        if steps and found.template is not None:
            self.warnings += [
                f"{_name(document)}: annotation {key} has no effect here: write it into"
                f" {'.'.join(steps)}.metadata.annotations"
                for key in _SELECTING
                if key in annotations
            ]


def convert_command(
    file: Annotated[Path, typer.Option("-f", "--filename", help="a manifest; - for standard input")],
    cards: Annotated[
        str, typer.Option(help="memory sizes of the cluster's cards, such as 24Gi,80Gi, for percentages")
    ] = "",
) -> None:
    """Convert Pods and workloads written for HAMi, as the webhook would."""
    try:
        cluster = Cluster(card_sizes=_card_sizes(cards))
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
        manifests = Manifests(cluster, Rules())
        for document in _documents(text, "standard input" if str(file) == "-" else str(file)):
            manifests.add(document)
    except (_Unreadable, OSError, UnicodeDecodeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from error
    for warning in manifests.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if manifests.refusals:
        for refusal in manifests.refusals:
            print(f"Refused: {refusal}", file=sys.stderr)
        raise typer.Exit(REFUSED)
    if not manifests.changed:
        sys.stdout.write(text)
        return
    yaml.dump_all(
        manifests.converted,
        sys.stdout,
        _Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=1000,
        explicit_start=True,
    )


def _documents(text: str, name: str) -> Iterator[dict[str, Any]]:
    try:
        for document in yaml.load_all(text, _Loader):
            if document is None:
                continue
            if not isinstance(document, dict):
                raise _Unreadable(f"{name}: a document is not an object, but {type(document).__name__}")
            yield document
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise _Unreadable(f"{place}: {error.problem or error.context}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise _Unreadable(f"{name}: {error}") from error


def _card_sizes(text: str) -> tuple[int, ...]:
    sizes = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            size = parse_quantity(part)
        except QuantityError as error:
            raise _Unreadable(f"--cards: {error}") from error
        if size < 1 << 20 or size.denominator != 1:
            raise _Unreadable(f"--cards: {part} is no card's memory: write a size such as 24Gi")
        sizes.add(int(size))
    return tuple(sorted(sizes))


def _at(document: dict[str, Any], steps: tuple[str, ...]) -> Any:
    found: Any = document
    for step in steps:
        found = found.get(step) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        raise _Unreadable(f"{_name(document)}: {'.'.join(steps)} is missing")
    return found


def _replaced(document: dict[str, Any], steps: tuple[str, ...], value: Any) -> Any:
    if not steps:
        return value
    changed = copy.copy(document)
    changed[steps[0]] = _replaced(document[steps[0]], steps[1:], value)
    return changed


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, held in value.items():
            yield str(key)
            yield from _keys(held)
    elif isinstance(value, list):
        for held in value:
            yield from _keys(held)


def _name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = metadata.get("name") or metadata.get("generateName") or "(no name)"
    namespace = metadata.get("namespace")
    return f"{document.get('kind', '(no kind)')} {f'{namespace}/' if namespace else ''}{name}"
