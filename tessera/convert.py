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

from claim_mutator import patch, pod, settings, workload
from claim_mutator.cluster import OLDEST, Cluster, parse_version
from claim_mutator.conversion import Conversion, convert
from claim_mutator.names import IGNORE, IGNORE_LABELS, TRUSTED_LABEL
from claim_mutator.refusal import Pointer, Refused
from claim_mutator.rules import Rules
from kube.quantity import QuantityError, parse_quantity
from kube.settings import SettingsError, fields
from kube.settings.sources import Found
from tessera import manifests
from tessera.explain import explain
from tessera.manifests import Document, Unreadable

REFUSED, UNREADABLE = 1, 2
_QUEUE = "kueue.x-k8s.io/queue-name"


class Manifests:
    """The documents of one file, converted one after the other."""

    def __init__(self, cluster: Cluster, rules: Rules) -> None:
        self._cluster = cluster
        self._rules = rules
        self._ignored: set[str] = set()
        self._templates: set[tuple[str, str]] = set()
        self.converted: list[Document | dict[str, Any]] = []
        self.warnings: list[str] = []
        self.refusals: list[str] = []
        self.explanations: list[str] = []
        self.changed = False

    def add_namespaces(self, documents: list[Document]) -> None:
        """Labels of the Namespaces in the file hold for what is in it."""
        trusted = set()
        for _, item in (found for document in documents for found in _items(document)):
            labels = _metadata(item).get("labels")
            if item.get("kind") == "Namespace" and isinstance(labels, dict):
                name = str(_metadata(item).get("name"))
                if any(labels.get(label) == IGNORE for label in IGNORE_LABELS):
                    self._ignored.add(name)
                if labels.get(TRUSTED_LABEL) == "true":
                    trusted.add(name)
        self._cluster = _with_trusted(self._cluster, frozenset(trusted))

    def add(self, document: Document) -> None:
        """Appends the document to `converted`, behind the templates that it needs first."""
        changed: Any = document.value
        for path, item in _items(document):
            if str(_metadata(item).get("namespace") or "") in self._ignored:
                continue
            missing = workload.missing_template(item)
            if missing is not None:
                place = document.place((*path, *missing))
                raise Unreadable(f"{place}: {_name(item)}: {'.'.join(map(str, missing))} is missing")
            for pointer in workload.templates(item):
                changed = self._convert(document, changed, path, item, pointer)
            self._judge_other_specs(document, path, item)
        self.converted.append(document if changed is document.value else changed)

    def _convert(
        self, document: Document, changed: Any, path: Pointer, item: dict[str, Any], pointer: Pointer
    ) -> Any:
        """`changed` with the Pod template at `pointer` of `item` converted."""
        name, where = _name(item), (*path, *pointer)
        try:
            found = self._read(document, where, name)
            conversion = convert(found, self._rules, self._cluster, _metadata(item).get("namespace") or "")
        except Refused as refused:
            self._refuse(document, where, name, refused)
            return changed
        for notice in conversion.notices:
            self._warn(document, (*where, *notice.pointer), f"{name}: {notice.text}")
        for place, sentence in explain(found, conversion):
            self.explanations.append(f"{document.place((*where, *place))}: {name}: {sentence}")
        if conversion.template is not None:
            self._note_around(document, path, item, pointer, found)
            self._add_template(conversion, item)
        if not conversion.operations:
            return changed
        self.changed = True
        return _replaced(
            changed, where, patch.apply(workload.at(document.value, where), conversion.operations)
        )

    def _refuse(self, document: Document, where: Pointer, name: str, refused: Refused) -> None:
        for notice in refused.notices:
            self._warn(document, (*where, *notice.pointer), f"{name}: {notice.text}")
        self.refusals += [
            f"{document.place((*where, *problem.pointer))}: {name}: {problem.text}"
            for problem in refused.problems
        ]

    def _note_around(
        self, document: Document, path: Pointer, item: dict[str, Any], pointer: Pointer, found: pod.Pod
    ) -> None:
        name = _name(item)
        for notice in workload.misplaced(item, pointer, found):
            self._warn(document, (*path, *notice.pointer), f"{name}: {notice.text}")
        if workload.is_custom(item):
            text = (
                f"{'.'.join(map(str, pointer))} is converted; where {item.get('kind')} does not know"
                " resourceClaims, leave it as it was: its Pods are converted when they are admitted"
            )
            self._warn(document, (*path, *pointer), f"{name}: {text}")
        if pointer and _QUEUE in (_metadata(item).get("labels") or {}):
            text = "Kueue counts what the file says, before there is a Pod: let it count this one unconverted"
            self._warn(document, (*path, "metadata", "labels", _QUEUE), f"{name}: {text}")

    def _add_template(self, conversion: Conversion, item: dict[str, Any]) -> None:
        namespace = str(_metadata(item).get("namespace") or "")
        template = conversion.template
        if template is not None and (namespace, template.name) not in self._templates:
            self._templates.add((namespace, template.name))
            self.converted.append(template.document(namespace, managed=False))

    def _judge_other_specs(self, document: Document, path: Pointer, item: dict[str, Any]) -> None:
        """Containers of which an operator makes Pods, and copies that only count: these stay as they are."""
        name = _name(item)
        for pointer in workload.pod_specs(item):
            where = (*path, *pointer)
            template = {"spec": workload.at(item, pointer)}
            try:
                found = convert(pod.from_manifest(template), self._rules, self._cluster)
            except msgspec.ValidationError:
                continue
            except Refused as refused:
                if not workload.is_accounting(item):
                    inner = Refused(
                        type(problem)(problem.pointer[1:], problem.text) for problem in refused.problems
                    )
                    self._refuse(document, where, name, inner)
                continue
            if found.template is not None:
                why = "the Pods made from it are converted when they are admitted"
                if workload.is_accounting(item):
                    why = "it counts, and no Pods are made from it"
                self._warn(document, where, f"{name}: {'.'.join(map(str, pointer))} is left as it is: {why}")

    def _read(self, document: Document, where: Pointer, name: str) -> pod.Pod:
        try:
            return pod.from_manifest(workload.at(document.value, where))
        except msgspec.ValidationError as error:
            place = document.place((*where, *_path_of(str(error))))
            raise Unreadable(f"{place}: {name}: {error}") from error

    def _warn(self, document: Document, pointer: Pointer, text: str) -> None:
        self.warnings.append(f"{document.place(pointer)}: {text}")


def convert_command(
    *,
    file: Annotated[Path, typer.Option("-f", "--filename", help="a manifest; - for standard input")],
    cards: Annotated[
        str, typer.Option(help="memory sizes of the cluster's cards, such as 24Gi,80Gi, for percentages")
    ] = "",
    instances: Annotated[str, typer.Option(help="memory sizes of its MIG instances, such as 10Gi")] = "",
    kubernetes: Annotated[
        str, typer.Option(help="release of the cluster; it decides the claims' form")
    ] = "1.37",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="a flag of tessera-mutator, such as resource-count=nvidia.com/vgpu"),
    ] = None,
    explained: Annotated[
        bool, typer.Option("--explain", help="say on stderr what each container means, and gets")
    ] = False,
) -> None:
    """Convert Pods and workloads written for HAMi, as the webhook would."""
    name = "standard input" if str(file) == "-" else str(file)
    try:
        cluster = Cluster(_sizes("--cards", cards), _version(kubernetes), _sizes("--instances", instances))
        found = Manifests(cluster, _rules(settings or []))
        text = sys.stdin.read() if name == "standard input" else file.read_text()
        documents = manifests.read(text, name)
        found.add_namespaces(documents)
        for document in documents:
            found.add(document)
    except (Unreadable, OSError, UnicodeDecodeError) as error:
        print(f"Error: {error}", file=sys.stderr)
        raise typer.Exit(UNREADABLE) from error
    for prefix, lines in (
        ("Explained", found.explanations if explained else []),
        ("Warning", found.warnings),
        ("Refused", found.refusals),
    ):
        for line in dict.fromkeys(lines):
            print(f"{prefix}: {line}", file=sys.stderr)
    if found.refusals:
        raise typer.Exit(REFUSED)
    if not found.changed:
        sys.stdout.write(text)
        return
    manifests.write(found.converted, sys.stdout)


def _items(document: Document) -> Iterator[tuple[Pointer, dict[str, Any]]]:
    """The objects of a document: it, or those of a List."""
    value = document.value
    if value.get("kind") != "List" or not isinstance(value.get("items"), list):
        yield (), value
        return
    for index, item in enumerate(value["items"]):
        if not isinstance(item, dict):
            raise Unreadable(f"{document.place(('items', index))}: an item of the List is not an object")
        yield ("items", index), item


def _rules(given: list[str]) -> Rules:
    known = {field.name for field in fields(settings.Settings)}
    found = Found()
    for each in reversed(given):  # of one given twice, the last holds
        flag, separator, value = each.partition("=")
        field = flag.strip().replace("-", "_")
        if not separator or field not in known:
            raise Unreadable(f"--set: {each} is no flag of tessera-mutator: write NAME=VALUE")
        found.add(field, value, flag.strip())
    try:
        return settings.made(found).rules
    except SettingsError as error:
        raise Unreadable(f"--set: {error.mistakes[0]}") from error


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.strip().removeprefix("v").partition(".")
    version = parse_version({"major": major, "minor": minor})
    if version < OLDEST:
        raise Unreadable(
            f"--kubernetes: {text} is no release that works: write {OLDEST[0]}.{OLDEST[1]} or later"
        )
    return version


def _sizes(option: str, text: str) -> tuple[int, ...]:
    sizes = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        try:
            size = parse_quantity(part)
        except QuantityError as error:
            raise Unreadable(f"{option}: {error}") from error
        if size < 1 << 20 or size.denominator != 1:
            raise Unreadable(f"{option}: {part} is no card's memory: write a size such as 24Gi")
        sizes.add(int(size))
    return tuple(sorted(sizes))


def _with_trusted(cluster: Cluster, trusted: frozenset[str]) -> Cluster:
    return Cluster(cluster.card_sizes, cluster.version, cluster.instance_sizes, trusted_namespaces=trusted)


def _replaced(document: Any, steps: Pointer, value: Any) -> Any:
    """A copy along the way to the value."""
    if not steps:
        return value
    changed = copy.copy(document)
    changed[steps[0]] = _replaced(document[steps[0]], steps[1:], value)
    return changed


def _path_of(message: str) -> Pointer:
    """msgspec's "… - at `$.spec.containers[0].name`" → a pointer."""
    match = re.search(r"at `\$([^`]*)`", message)
    steps = re.findall(r"\.([^.\[]+)|\[(\d+)\]", match[1]) if match else []
    return tuple(int(index) if index else name for name, index in steps)


def _metadata(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _name(document: dict[str, Any]) -> str:
    metadata = _metadata(document)
    name = metadata.get("name") or metadata.get("generateName") or "(no name)"
    namespace = metadata.get("namespace")
    return f"{document.get('kind', '(no kind)')} {f'{namespace}/' if namespace else ''}{name}"
