from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest

from claim_mutator import pod, remembered
from claim_mutator.conversion import convert
from claim_mutator.remembered import Conversions
from claim_mutator.rules import Rules
from tests.unit.claim_mutator.pods import TWO_SIZES, container, manifest

POD = manifest(container(gpu="1", gpumem="3000"), annotations={"a": "b"})


class Counted(Conversions):
    """Says how often it had to convert."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(Rules())
        self.number = 0

        def counting(*arguments: Any) -> Any:
            self.number += 1
            return convert(*arguments)

        monkeypatch.setattr(remembered, "convert", counting)

    def of(self, document: dict[str, Any], cluster: Any = TWO_SIZES, namespace: str = "n") -> str:
        return self.convert(pod.decode(json.dumps(document).encode()), cluster, namespace)[1]


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> Counted:
    return Counted(monkeypatch)


def changed(*steps: Any, value: Any) -> dict[str, Any]:
    document = copy.deepcopy(POD)
    held: Any = document
    for step in steps[:-1]:
        held = held[step]
    held[steps[-1]] = value
    return document


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(changed("metadata", "name", value="q"), id="name"),
        pytest.param(changed("metadata", "uid", value="u"), id="what nobody reads"),
        pytest.param(changed("spec", "volumes", value=[{"name": "kube-api-access-x"}]), id="volumes"),
    ],
)
def test_pods_that_are_alike_are_converted_once(conversions: Counted, other: dict[str, Any]) -> None:
    assert conversions.of(POD) == conversions.of(other)
    assert conversions.number == 1


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(changed("metadata", "annotations", value={"nvidia.com/numa-bind": "1"}), id="note"),
        pytest.param(changed("metadata", "labels", value={"hami.io/webhook": "ignore"}), id="label"),
        pytest.param(changed("spec", "containers", 0, "name", value="x"), id="container"),
        pytest.param(changed("spec", "schedulerName", value="hami-scheduler"), id="scheduler"),
    ],
)  # fmt: skip
def test_others_are_not(conversions: Counted, other: dict[str, Any]) -> None:
    conversions.of(POD)
    conversions.of(other)
    assert conversions.number == 2


def test_cluster_and_namespace_count(conversions: Counted) -> None:
    conversions.of(POD)
    conversions.of(POD, namespace="m")
    conversions.of(POD, replace(TWO_SIZES, version=(1, 35)))
    assert conversions.number == 3


def test_names_are_there_again(conversions: Counted) -> None:
    found = pod.decode(json.dumps(POD).encode())
    conversions.convert(found, TWO_SIZES, "n")
    assert found.display_name == "p"


def test_the_oldest_is_forgotten(conversions: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered, "_MOST", 2)
    for name in ("a", "b", "a", "c", "a", "b"):
        conversions.of(changed("spec", "containers", 0, "name", value=name))
    assert conversions.number == 4
