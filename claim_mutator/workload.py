"""Objects that hold Pod templates: where these are, and what their authors should know. Pure.

The object is never changed: its Pods are converted when they are made. But a template whose Pods would be
refused, or an annotation where nothing reads it, is told to the person who applies it; later there is nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from claim_mutator import metadata as metadata_keys
from claim_mutator import pod
from claim_mutator.cluster import Cluster
from claim_mutator.conversion import convert
from claim_mutator.refusal import Notice, Pointer, Refused
from claim_mutator.rules import Rules

_TEMPLATES: Mapping[tuple[str, str], Pointer] = {
    ("", "Pod"): (),
    ("", "PodTemplate"): ("template",),
    ("", "ReplicationController"): ("spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
    ("apps", "DaemonSet"): ("spec", "template"),
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
}
_ACCOUNTING = {("kueue.x-k8s.io", "Workload")}
"""Copies of others' templates, of which no Pods are made."""
_CHOOSY = {"serving.knative.dev"}
"""Groups whose templates look like a Pod's and refuse a Pod's claims."""
_DEEPEST = 24


def templates(document: Mapping[str, Any]) -> list[Pointer]:
    """Where a manifest holds Pod templates; in kinds that are not Kubernetes' own a `spec` with `containers`.

    A Pod is its own template. Lists of containers that are part of something else (KServe's, for one) are not
    found: whether that has room for claims only its operator knows.
    """
    if is_accounting(document) or _kind(document)[0] in _CHOOSY:
        return []
    known = _TEMPLATES.get(_kind(document))
    if known is None:
        return list(_search(document, (), 0))
    return [] if missing_template(document) else [known]


def missing_template(document: Mapping[str, Any]) -> Pointer | None:
    """Where a kind of Kubernetes' own should have its template, and has none."""
    known = _TEMPLATES.get(_kind(document))
    held: Any = document
    for step in known or ():
        held = held.get(step) if isinstance(held, Mapping) else None
    return None if isinstance(held, Mapping) else known


def pod_specs(document: Mapping[str, Any]) -> list[Pointer]:
    """Where something that is no Pod template holds containers as a Pod does."""
    found = templates(document)
    return [
        pointer
        for pointer in _containers(document, (), 0)
        if not any(pointer[: len(template)] == template for template in found)
    ]


def is_custom(document: Mapping[str, Any]) -> bool:
    """Not one of Kubernetes' own kinds: whether it has room for claims only its operator knows."""
    return _kind(document) not in _TEMPLATES


def is_accounting(document: Mapping[str, Any]) -> bool:
    return _kind(document) in _ACCOUNTING


def at(document: Any, pointer: Pointer) -> Any:
    for step in pointer:
        document = document[step]
    return document


def misplaced(document: Mapping[str, Any], pointer: Pointer, template: pod.Pod) -> Iterator[Notice]:
    """Keys of the object's own metadata that its Pods do not inherit."""
    metadata = document.get("metadata")
    if not pointer or not isinstance(metadata, Mapping):
        return
    held = {where: metadata.get(where) for where in ("annotations", "labels")}
    texts = {where: value if isinstance(value, Mapping) else {} for where, value in held.items()}
    for where, key in metadata_keys.misplaced(texts["annotations"], texts["labels"], template):
        place = ".".join(map(str, pointer))
        text = f"{where[:-1]} {key} has no effect here: write it into {place}.metadata.{where}"
        yield Notice(("metadata", where, key), text)


def review(document: Mapping[str, Any], rules: Rules, cluster: Cluster, namespace: str) -> list[Notice]:
    """What the author of a workload should know. Never raises."""
    notices: list[Notice] = []
    for pointer in templates(document):
        try:
            template = pod.from_manifest(at(document, pointer))
        except msgspec.ValidationError:
            continue  # the server says it better
        place = ".".join(map(str, pointer))
        try:
            found = convert(template, rules, cluster, namespace)
        except Refused as refused:
            notices += [
                Notice((*pointer, *problem.pointer), f"{place}: its Pods will be refused: {problem.text}")
                for problem in refused.problems
            ]
            notices += misplaced(document, pointer, template)
            continue
        notices += [
            Notice((*pointer, *notice.pointer), f"{place}: {notice.text}") for notice in found.notices
        ]
        if found.template is not None:
            notices += misplaced(document, pointer, template)
    return notices


def _kind(document: Mapping[str, Any]) -> tuple[str, str]:
    """Group and kind."""
    return str(document.get("apiVersion", "v1")).rpartition("/")[0], str(document.get("kind"))


def _search(value: Any, pointer: Pointer, depth: int) -> Iterator[Pointer]:
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        if pointer and _is_template(value):
            yield pointer
            return
        for key, held in value.items():
            yield from _search(held, (*pointer, key), depth + 1)
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _search(held, (*pointer, index), depth + 1)


def _is_template(value: Mapping[str, Any]) -> bool:
    spec = value.get("spec")
    return isinstance(spec, Mapping) and _holds_containers(spec) and value.get("kind", "Pod") == "Pod"


def _containers(value: Any, pointer: Pointer, depth: int) -> Iterator[Pointer]:
    if depth > _DEEPEST:
        return
    if isinstance(value, Mapping):
        if _holds_containers(value):
            yield pointer
            return
        for key, held in value.items():
            yield from _containers(held, (*pointer, key), depth + 1)
    elif isinstance(value, list):
        for index, held in enumerate(value):
            yield from _containers(held, (*pointer, index), depth + 1)


def _holds_containers(spec: Mapping[str, Any]) -> bool:
    containers = spec.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(each, Mapping) and ("name" in each or "image" in each) for each in containers)
    )
