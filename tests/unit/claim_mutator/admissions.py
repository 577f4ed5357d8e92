"""An Admission without a cluster: templates are all there, quotas let in whom a test wants."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from claim_mutator.admission import Admission
from claim_mutator.metrics import Metrics
from claim_mutator.quota.gate import Exceeded, Gate
from claim_mutator.rules import Rules
from claim_mutator.template import Template
from claim_mutator.templates import TemplateStore
from kube.events import ObjectRef, Recorder
from tests.unit.claim_mutator.pods import TWO_SIZES

METRICS = Metrics()


class Templates(TemplateStore):
    def __init__(self) -> None:
        self.wanted: list[str] = []

    async def ensure(self, namespace: str, template: Template) -> None:
        self.wanted.append(f"{namespace}/{template.name}")


class Quotas(Gate):
    """In namespace `full` nobody is let in, in `limited` everybody."""

    def __init__(self) -> None:
        pass

    def concerns(self, namespace: str) -> bool:
        return namespace in ("full", "limited")

    async def ask(
        self,
        namespace: str,
        mark: str,  # noqa: ARG002
        spec: Mapping[str, Any],  # noqa: ARG002
        pod: Mapping[str, Any],  # noqa: ARG002
        *,
        is_trial: bool = False,  # noqa: ARG002
    ) -> None:
        if namespace == "full":
            raise Exceeded("exceeded quota: gpus")


class Said(Recorder):
    def __init__(self) -> None:
        self.warnings: list[tuple[ObjectRef, str, str]] = []

    def warn(self, about: ObjectRef, reason: str, message: str, *, part: str = "") -> None:  # noqa: ARG002
        self.warnings.append((about, reason, message))


def admission(
    templates: Templates | None = None, said: Said | None = None, rules: Rules | None = None
) -> Admission:
    return Admission(
        rules or Rules(),
        lambda: TWO_SIZES,
        templates=templates or Templates(),
        gate=Quotas(),
        metrics=METRICS,
        recorder=said or Said(),
    )
