"""The part of a Pod that a conversion reads. Everything else stays raw and is never touched.

UNSET and None are kept apart from empty: a JSON Patch has to know what is there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

Quantities = dict[str, str | int | float]


class ContainerClaim(msgspec.Struct):
    name: str = ""
    request: str = ""


class Resources(msgspec.Struct):
    limits: Quantities | UnsetType | None = UNSET
    requests: Quantities | UnsetType | None = UNSET
    claims: list[ContainerClaim] | UnsetType | None = UNSET


class Variable(msgspec.Struct):
    name: str = ""
    value: str | None = None


class SecurityContext(msgspec.Struct):
    privileged: bool | None = None


class Container(msgspec.Struct, rename="camel"):
    name: str = ""
    resources: Resources | UnsetType | None = UNSET
    env: list[Variable] | UnsetType | None = UNSET
    security_context: SecurityContext | None = None
    restart_policy: str | None = None

    @property
    def has_claims(self) -> bool:
        return isinstance(self.resources, Resources) and bool(self.resources.claims)


class PodClaim(msgspec.Struct):
    name: str = ""


class Metadata(msgspec.Struct, rename="camel"):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class SchedulingGroup(msgspec.Struct, rename="camel"):
    pod_group_name: str | None = None


class NodeSelectorTerm(msgspec.Struct, rename="camel"):
    match_fields: list[Any] | UnsetType | None = UNSET


class NodeSelector(msgspec.Struct, rename="camel"):
    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(msgspec.Struct):
    required: NodeSelector | UnsetType | None = msgspec.field(
        default=UNSET, name="requiredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(msgspec.Struct, rename="camel"):
    node_affinity: NodeAffinity | UnsetType | None = UNSET


class Spec(msgspec.Struct, rename="camel"):
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resource_claims: list[PodClaim] | UnsetType | None = UNSET
    node_name: str | None = None
    scheduler_name: str | None = None
    runtime_class_name: str | None = None
    scheduling_group: SchedulingGroup | None = None
    affinity: Affinity | UnsetType | None = UNSET


class Pod(msgspec.Struct):
    spec: Spec
    metadata: Metadata | None = None

    @property
    def annotations(self) -> dict[str, str]:
        return (self.metadata and self.metadata.annotations) or {}

    @property
    def labels(self) -> dict[str, str]:
        return (self.metadata and self.metadata.labels) or {}

    @property
    def display_name(self) -> str:
        """The name, or what is known of it while the server has not completed it."""
        if self.metadata is None:
            return "…"
        return self.metadata.name or f"{self.metadata.generate_name or ''}…"

    def all_containers(self) -> Iterator[tuple[Literal["initContainers", "containers"], int, Container]]:
        """Init containers first, as they run."""
        for index, container in enumerate(self.spec.init_containers or ()):
            yield "initContainers", index, container
        for index, container in enumerate(self.spec.containers or ()):
            yield "containers", index, container

    def container(self, pointer: tuple[str | int, ...]) -> Container:
        """The one at ("spec", group, index)."""
        return next(each for group, index, each in self.all_containers() if pointer == ("spec", group, index))


_decoder = msgspec.json.Decoder(Pod)


def decode(raw: bytes | msgspec.Raw) -> Pod:
    """Raises msgspec.ValidationError, which has the path, and msgspec.DecodeError for what is not JSON."""
    return _decoder.decode(raw)


def from_manifest(document: Any) -> Pod:
    """The same from a parsed manifest. Raises msgspec.ValidationError."""
    return msgspec.convert(document, Pod)
