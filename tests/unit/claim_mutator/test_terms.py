"""HAMi's variables in a container's environment."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator import pod, terms
from claim_mutator.rules import HighPriority, Rules
from claim_mutator.terms import CorePolicy, Terms

PLAIN = Terms()
LABEL = 'label the namespace tessera.dev/trusted: "true"'


def read(
    *env: dict[str, Any], priority: int | None = None, trusted: bool = False, rules: Rules | None = None
) -> tuple[Terms, list[str]]:
    document = {"spec": {"containers": [{"name": "work", "env": list(env)}]}}
    (_, _, each), *_ = pod.from_manifest(document).all_containers()
    pointer = ("spec", "containers", 0)
    found, notices = terms.read(pointer, each, priority, rules or Rules(), trusted=trusted)
    for notice in notices:
        assert notice.pointer[:4] == (*pointer, "env")
    return found, [notice.text for notice in notices]


def variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


@pytest.mark.parametrize(
    ("env", "priority", "high"),
    [
        pytest.param([], None, False, id="nothing"),
        pytest.param([], 0, True, id="the resource: high"),
        pytest.param([], 1, False, id="the resource: low"),
        pytest.param([variable(terms.PRIORITY, "0")], None, True, id="the variable"),
        pytest.param([variable(terms.PRIORITY, "0")], 1, False, id="the resource goes before the variable"),
        pytest.param(
            [variable(terms.PRIORITY, "0"), variable(terms.PRIORITY, "1")], None, False, id="the last counts"
        ),
        pytest.param(
            [{"name": terms.PRIORITY, "valueFrom": {"fieldRef": {}}}], None, False, id="not known here"
        ),
    ],
)
def test_priority(env: list[dict[str, Any]], priority: int | None, high: bool) -> None:
    assert read(*env, priority=priority) == (Terms(high=high), [])


def test_priority_for_trusted_namespaces_only() -> None:
    rules = Rules(high_priority=HighPriority.TRUSTED)
    found, notices = read(priority=0, rules=rules)
    assert found == PLAIN
    assert LABEL in notices[0]
    assert read(priority=0, rules=rules, trusted=True) == (Terms(high=True), [])


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_control_is_disabled_in_trusted_namespaces_only(value: str) -> None:
    env = variable(terms.DISABLE, value)
    assert read(env, trusted=True) == (Terms(unlimited=True), [])
    found, notices = read(env)
    assert found == PLAIN
    assert f"CUDA_DISABLE_CONTROL={value} has no effect here, the limits hold" in notices[0]
    assert LABEL in notices[0]


@pytest.mark.parametrize("value", ["false", "0", "F", ""])
def test_control_that_is_not_disabled(value: str) -> None:
    assert read(variable(terms.DISABLE, value), trusted=True) == (PLAIN, [])


@pytest.mark.parametrize(
    ("value", "trusted", "policy"),
    [
        ("force", False, CorePolicy.FORCE),
        ("FORCE", False, CorePolicy.FORCE),
        ("default", False, CorePolicy.DEFAULT),
        ("disable", True, CorePolicy.DISABLE),
    ],
)
def test_core_policy(value: str, trusted: bool, policy: CorePolicy) -> None:
    found = read(variable(terms.CORE_POLICY, value), trusted=trusted)
    assert found == (Terms(core_policy=policy), [])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (terms.CORE_POLICY, "disable", LABEL),
        (terms.CORE_POLICY, "sometimes", "write default, force or disable"),
        (terms.DISABLE, "yes", "write true or false"),
        (terms.PRIORITY, "7", "write 0 (high) or 1 (low)"),
    ],
)
def test_without_effect(name: str, value: str, message: str) -> None:
    found, (notice,) = read(variable(name, value))
    assert found == PLAIN
    assert notice.startswith(f"container 'work': {name}={value} has no effect")
    assert message in notice
