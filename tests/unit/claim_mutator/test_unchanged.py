"""Whole Pods, at random: what is converted stays converted, and all the rest stays what it was."""

from __future__ import annotations

import copy
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from claim_mutator import patch
from claim_mutator.refusal import Refused
from tests.unit.claim_mutator.pods import container, converted, manifest
from tests.unit.claim_mutator.test_conversion import patched

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = ["gpu", "gpumem", "gpumem_percentage", "gpucores", "priority", "cpu", "memory"]
quantities = st.one_of(
    st.integers(0, 120), st.sampled_from(["1k", "3Gi", "0", "50", "1", "2", "-1", "x", "1500m"])
)
resources = st.dictionaries(st.sampled_from(KEYS), quantities, max_size=5)


@st.composite
def pods(draw: st.DrawFn) -> dict[str, Any]:
    """Pods with unknown fields everywhere."""

    def one(name: str) -> dict[str, Any]:
        found = container(name, **draw(resources)) | {"future": draw(json_values)}
        if draw(st.booleans()):
            found["resources"]["claims"] = [{"name": "own", "later": draw(json_values)}]
        if draw(st.booleans()):
            found["env"] = [{"name": "A", "valueFrom": draw(json_values)}]
        found["resources"]["future"] = draw(json_values)
        return found

    document = manifest(*(one(f"c{number}") for number in range(draw(st.integers(1, 3)))))
    document["spec"]["initContainers"] = [one(f"i{number}") for number in range(draw(st.integers(0, 3)))]
    document["spec"]["future"] = document["later"] = draw(json_values)
    document["spec"]["resourceClaims"] = [{"name": "own", "x": draw(json_values)}]
    return document


def _without_ours(document: dict[str, Any]) -> str:
    """What must not change, as text: everything but our keys, our claims, our variable."""
    found = copy.deepcopy(document)
    spec = found["spec"]
    spec["resourceClaims"] = [each for each in spec["resourceClaims"] if each["name"] != "tessera"]
    for each in (*spec["containers"], *spec["initContainers"]):
        held = each["resources"]
        for where in ("limits", "requests"):
            kept = {key: value for key, value in held.get(where, {}).items() if "nvidia.com/" not in key}
            held.pop(where, None)
            if kept:
                held[where] = kept
        held["claims"] = [claim for claim in held.get("claims", []) if claim["name"] != "tessera"]
        each["env"] = [variable for variable in each.get("env", []) if variable["name"] == "A"]
    return json.dumps(found, sort_keys=True)


@given(pods())
def test_converting_twice_is_converting_once_and_the_rest_stays(document: dict[str, Any]) -> None:
    try:
        once = patched(document)
    except Refused as refused:
        assert refused.problems
        return
    assert converted(once).operations == ()
    assert "nvidia.com/" not in json.dumps(once)
    assert _without_ours(once) == _without_ours(document)


@given(pods())
def test_every_container_that_asks_gets_a_request_that_exists(document: dict[str, Any]) -> None:
    try:
        conversion = converted(document)
    except Refused:
        return
    after = patch.apply(document, conversion.operations)
    names = set()
    if conversion.template is not None:
        names = {each["name"] for each in conversion.template.spec["spec"]["devices"]["requests"]}
    used = {
        claim["request"]
        for each in (*after["spec"]["containers"], *after["spec"]["initContainers"])
        for claim in each["resources"].get("claims", ())
        if claim["name"] == "tessera"
    }
    assert used == names
