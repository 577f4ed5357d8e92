"""ShareConfig as a whole: the table that the chart's policy is tested with, and what holds for any input."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.cards.capacity import Amounts
from dra_driver.claims.allocation import OpaqueConfig, Result
from dra_driver.claims.config import Terms, terms_of
from dra_driver.claims.share_config import CorePolicy, Enforcement
from dra_driver.errors import ConfigError
from dra_driver.names import DeviceName
from tests.unit.dra_driver.cards import GIB
from tests.unit.dra_driver.share_configs import CASES, HEADER, Case

PATH = "status.allocation.devices.config[0].opaque.parameters"
RESULT = Result("g0", "node-a", DeviceName("gpu-a"), "share", Amounts(8 * GIB, 30, 100))
STRICTNESS = [CorePolicy.DISABLE, CorePolicy.DEFAULT, CorePolicy.FORCE]


def of_class(parameters: Any) -> OpaqueConfig:
    return OpaqueConfig(True, (), parameters, PATH)


def of_claim(parameters: Any) -> OpaqueConfig:
    return OpaqueConfig(False, (), parameters, PATH)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_table(case: Case) -> None:
    if case.refused is None:
        terms_of(RESULT, [of_claim(case.parameters)])
        return
    with pytest.raises(ConfigError) as refused:
        terms_of(RESULT, [of_claim(case.parameters)])
    assert str(refused.value).startswith(PATH)
    assert case.refused in str(refused.value)


caps = st.lists(
    st.fixed_dictionaries(
        {"container": st.sampled_from(["a", "b", "c", "d"])},
        optional={"memory": st.integers(1, 16 * GIB), "cores": st.integers(1, 100)},
    ).filter(lambda cap: len(cap) > 1),
    max_size=4,
    unique_by=lambda cap: str(cap["container"]),
)
valid = st.fixed_dictionaries(
    {},
    optional={
        "enforcement": st.sampled_from(["library", "none"]),
        "corePolicy": st.sampled_from(["default", "force", "disable"]),
        "priority": st.integers(0, 1),
        "caps": caps,
    },
).map(lambda found: HEADER | found)


def memory_of(terms: Terms, container: str) -> int:
    """What a container may use at most."""
    own = [cap.memory for cap in terms.caps if cap.container == container and cap.memory]
    return min([*own, 8 * GIB])


def cores_of(terms: Terms, container: str) -> int:
    own = [cap.cores for cap in terms.caps if cap.container == container and cap.cores]
    return min([*own, 30])


@given(given_by_class=valid, given_by_claim=valid)
def test_a_claim_never_loosens(given_by_class: dict[str, Any], given_by_claim: dict[str, Any]) -> None:
    """Whatever class and claim say: what comes out is as strict as the class, or it is refused."""
    before = terms_of(RESULT, [of_class(given_by_class)])
    try:
        after = terms_of(RESULT, [of_claim(given_by_claim), of_class(given_by_class)])
    except ConfigError as error:
        assert str(error).startswith(PATH)
        return
    assert STRICTNESS.index(after.core_policy) >= STRICTNESS.index(before.core_policy)
    assert after.priority >= before.priority
    assert before.enforcement is Enforcement.NONE or after.enforcement is not Enforcement.NONE
    for container in ("a", "b", "c", "d", "any-other"):
        assert memory_of(after, container) <= memory_of(before, container)
        assert cores_of(after, container) <= cores_of(before, container)


@given(parameters=valid)
def test_a_claim_without_a_word_changes_nothing(parameters: dict[str, Any]) -> None:
    assert terms_of(RESULT, [of_class(parameters), of_claim(HEADER)]) == terms_of(
        RESULT, [of_class(parameters)]
    )


@given(parameters=valid)
def test_what_a_class_says_of_policy_a_claim_may_say_again(parameters: dict[str, Any]) -> None:
    repeated = {key: value for key, value in parameters.items() if key != "caps"}
    assert terms_of(RESULT, [of_class(parameters), of_claim(repeated)]) == terms_of(
        RESULT, [of_class(parameters)]
    )


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 200) | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["enforcement", "corePolicy", "priority", "caps", "other"])


@given(parameters=json_like | st.dictionaries(fields, json_like).map(lambda found: HEADER | found))
def test_anything_is_understood_or_refused_by_its_path(parameters: Any) -> None:
    """Never another exception, and never something that was not asked."""
    try:
        terms = terms_of(RESULT, [of_claim(parameters)])
    except ConfigError as error:
        assert error.path.startswith(PATH)
        assert error.reason
        return
    known = {"apiVersion", "kind", "enforcement", "corePolicy", "priority", "caps"}
    assert parameters.keys() <= known
    said = json.dumps(parameters)
    assert terms.enforcement is not Enforcement.NONE
    assert (terms.core_policy is CorePolicy.FORCE) == ('"force"' in said)
    assert len(terms.caps) == len(parameters.get("caps") or ())
