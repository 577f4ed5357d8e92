"""Whole Pods: the patch against independent judges, refusals, warnings, properties."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from claim_mutator import patch
from claim_mutator.refusal import Refused
from claim_mutator.template import Cluster
from tests.unit.claim_mutator.pods import GI, ONE_SIZE, container, converted, manifest


def patched(document: dict[str, Any]) -> dict[str, Any]:
    """By the independent judge; our own `apply` has to agree."""
    changes = converted(document).operations
    found: dict[str, Any] = jsonpatch.apply_patch(copy.deepcopy(document), list(changes))
    assert patch.apply(document, changes) == found
    return found


def test_a_pod() -> None:
    found = patched(manifest(container(gpu=1, gpumem=3000, gpucores=30, cpu="1")))
    assert found["spec"] == {
        "containers": [
            {
                "name": "work",
                "image": "i",
                "resources": {
                    "limits": {"cpu": "1"},
                    "requests": {"cpu": "1"},
                    "claims": [{"name": "tessera", "request": "g0"}],
                },
            }
        ],
        "resourceClaims": [{"name": "tessera", "resourceClaimTemplateName": "tessera-54d657f72a0d6db5"}],
    }


def test_emptied_maps_go() -> None:
    found = patched(manifest(container(gpu=1)))
    assert found["spec"]["containers"][0]["resources"] == {"claims": [{"name": "tessera", "request": "g0"}]}


def test_count_zero_leaves_no_claim() -> None:
    conversion = converted(manifest(container(gpu=0)))
    assert conversion.template is None
    assert patched(manifest(container(gpu=0)))["spec"] == {
        "containers": [{"name": "work", "image": "i", "resources": {}}]
    }


def test_existing_claims_are_kept() -> None:
    own = container("b", gpumem=2000)
    own["resources"]["claims"] = [{"name": "net"}]
    document = manifest(
        {"name": "a", "image": "i", "resources": {"claims": [{"name": "gpu", "request": "r"}]}},
        own,
        resourceClaims=[{"name": "gpu", "resourceClaimName": "x"}, {"name": "net", "resourceClaimName": "y"}],
    )
    found = patched(document)["spec"]
    assert found["containers"][0] == document["spec"]["containers"][0]
    assert found["containers"][1]["resources"] == {
        "claims": [{"name": "net"}, {"name": "tessera", "request": "g0"}]
    }
    assert [each["name"] for each in found["resourceClaims"]] == ["gpu", "net", "tessera"]


def test_a_claim_called_like_ours_is_not_touched() -> None:
    document = manifest(container(gpu=1), resourceClaims=[{"name": "tessera", "resourceClaimName": "x"}])
    assert [each["name"] for each in patched(document)["spec"]["resourceClaims"]] == ["tessera", "tessera-2"]


def test_priority_becomes_a_variable_and_a_warning() -> None:
    document = manifest(container(gpu=1, priority=0))
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    assert patched(document)["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "CUDA_TASK_PRIORITY", "value": "0"},
    ]
    assert any("DeviceClass" in warning for warning in converted(document).warnings)
    assert not converted(manifest(container(gpu=1, priority=1))).warnings


def test_priority_replaces_a_variable_that_is_there() -> None:
    document = manifest(container(gpu=1, priority=1))
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_TASK_PRIORITY", "value": "7"}]
    assert patched(document)["spec"]["containers"][0]["env"] == [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]


@pytest.mark.parametrize(
    ("scheduler", "after"),
    [
        ("hami-scheduler", "default-scheduler"),
        ("default-scheduler", "default-scheduler"),
        ("volcano", "volcano"),
    ],
)
def test_scheduler(scheduler: str, after: str) -> None:
    document = manifest(container(gpu=1), schedulerName=scheduler)
    assert patched(document)["spec"]["schedulerName"] == after
    without = manifest(container(cpu=1), schedulerName=scheduler)
    assert patched(without) == without


@pytest.mark.parametrize(
    ("document", "message"),
    [
        pytest.param(
            manifest(container(gpu=1) | {"securityContext": {"privileged": True}}),
            "container 'work' is privileged",
            id="privileged",
        ),
        pytest.param(
            manifest(container(gpu=1), {"name": "tuner", "securityContext": {"privileged": True}}),
            "container 'tuner' is privileged",
            id="privileged neighbour",
        ),
        pytest.param(
            manifest(
                container(gpu=1), initContainers=[{"name": "i", "securityContext": {"privileged": True}}]
            ),
            "container 'i' is privileged",
            id="privileged init",
        ),
        pytest.param(
            manifest(container(gpu=1), nodeName="a"),
            "write nodeSelector: {kubernetes.io/hostname: a}",
            id="nodeName",
        ),
        pytest.param(
            manifest(container("a", gpu=1), container("b", gpumem="1Gi"), nodeName="a"),
            "container 'b', limits: nvidia.com/gpumem: 1Gi",
            id="a valid container does not save the Pod",
        ),
        pytest.param(
            manifest(container("a", gpu=20), container("b", gpu=20)), "40 cards together", id="40 cards"
        ),
    ],
)
def test_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message.replace("{", r"\{")):
        converted(document)


@pytest.mark.parametrize(
    "document",
    [
        manifest({"name": "work", "securityContext": {"privileged": True}}),
        manifest(container(gpu=0), nodeName="a"),
        manifest(container(cpu=1), annotations={"nvidia.com/vgpu-mode": "mig"}),
    ],
    ids=["privileged", "nodeName", "annotation"],
)
def test_what_asks_for_no_card_is_not_refused(document: dict[str, Any]) -> None:
    assert converted(document).template is None


@pytest.mark.parametrize(
    ("sizes", "outcome"),
    [
        pytest.param((), "no card of the cluster is known yet", id="no card known"),
        pytest.param(tuple(range(1 << 30, 9 * GI + 1, GI)), "9 different sizes", id="nine sizes"),
    ],
)
def test_percentages_that_cannot_be_resolved(sizes: tuple[int, ...], outcome: str) -> None:
    with pytest.raises(Refused, match=f"gpumem-percentage: 50 can't.*{outcome}.*write nvidia.com/gpumem"):
        converted(manifest(container(gpu=1, gpumem_percentage=50)), Cluster(card_sizes=sizes))
    assert converted(manifest(container(gpu=1, gpumem_percentage=100)), Cluster(card_sizes=sizes)).template


def test_percentage_of_the_only_size_is_exact() -> None:
    template = converted(manifest(container(gpu=1, gpumem_percentage=30)), ONE_SIZE).template
    assert template is not None
    (request,) = template.spec["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"memory": "12Gi"}


def test_more_than_any_card_has_is_told() -> None:
    (warning,) = converted(manifest(container(gpumem=90000)), ONE_SIZE).warnings
    assert "more than any card of the cluster has now (40960)" in warning


# --- properties -------------------------------------------------------------------------------------------

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
