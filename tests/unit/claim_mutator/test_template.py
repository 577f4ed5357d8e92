"""Templates: the documents, their names, what the API's own models say to them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.client import models as kubernetes_models

from claim_mutator.cluster import Cluster
from claim_mutator.placement import NUMA_BOUND, TOPOLOGY
from claim_mutator.shape import Amount, Cap, Shape, Share
from claim_mutator.template import canonical, template_of
from claim_mutator.terms import CorePolicy, Terms
from dra_driver.claims.allocation import OpaqueConfig, Result
from dra_driver.claims.config import terms_of
from dra_driver.names import DeviceName
from tests.unit.claim_mutator.pods import GI, TWO_SIZES

ALONE = Amount(0, 100, 100, alone=True)
PERCENT = Shape((Share(2, Amount(0, 50, 30)),), ((0,),))
MANY = Shape((Share(3, Amount(1000)), Share(1, ALONE)), ((0,),), ("true",), NUMA_BOUND)
CAPPED = Shape(
    (Share(1, Amount(5000, cores=30), caps=(Cap("app", Amount(4000)), Cap("init", Amount(5000, cores=20)))),)
)
MIXED = Shape((Share(1, Amount(4000, 50), caps=(Cap("init", Amount(4000)), Cap("app", Amount(0, 50)))),))
APART = Shape((Share(1, Amount(4000)), Share(2, Amount(1000))), ((0, 1),))
NEAR = replace(PERCENT, levels=TOPOLOGY)
INSTANCE = Shape((Share(2, Amount(8000, cores=30)),), ((0,),), cards=False, instances=True)
SHAPES = {
    "percentage": PERCENT,
    "many": MANY,
    "caps": CAPPED,
    "mixed": MIXED,
    "apart": APART,
    "near": NEAR,
    "instance": INSTANCE,
}
DISTINCT = {"requests": ["g0"], "distinctAttribute": "gpu.tessera.dev/uuid"}


def devices(shape: Shape, cluster: Cluster = TWO_SIZES) -> dict[str, Any]:
    found: dict[str, Any] = template_of(shape, cluster).spec["spec"]["devices"]
    return found


def test_the_documents_form() -> None:
    template = template_of(Shape((Share(1, Amount(3000, cores=30)),)), TWO_SIZES)
    assert template.document("team") == {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": "tessera-54d657f72a0d6db5",
            "namespace": "team",
            "labels": {"app.kubernetes.io/managed-by": "tessera-mutator"},
        },
        "spec": {
            "spec": {
                "devices": {
                    "requests": [
                        {
                            "name": "g0",
                            "exactly": {
                                "deviceClassName": "gpu.tessera.dev",
                                "allocationMode": "ExactCount",
                                "count": 1,
                                "capacity": {"requests": {"memory": "3000Mi", "cores": "30"}},
                            },
                        }
                    ]
                }
            }
        },
    }
    assert template.request_names == (("g0",),)


@pytest.mark.parametrize(
    ("amount", "capacity"),
    [
        pytest.param(ALONE, {"cores": "100", "shares": "1000"}, id="the card alone"),
        pytest.param(Amount(1024), {"memory": "1Gi"}, id="memory only: cores are the slice's default"),
        pytest.param(
            Amount(5, 0, 100, alone=True), {"memory": "5Mi", "cores": "100", "shares": "1000"}, id="cores 100"
        ),
        pytest.param(Amount(5, 0, 100), {"memory": "5Mi", "cores": "100"}, id="cores 100 of more"),
        pytest.param(Amount(5, alone=True), {"memory": "5Mi", "shares": "1000"}, id="mutex"),
        pytest.param(Amount(0, 100, 30), {"cores": "30"}, id="cores only: memory is the slice's default"),
        pytest.param(Amount(0, 100), None, id="whole memory, no limit of cores"),
    ],
)
def test_capacity(amount: Amount, capacity: dict[str, str] | None) -> None:
    (request,) = devices(Shape((Share(1, amount),)))["requests"]
    assert request["exactly"].get("capacity") == ({"requests": capacity} if capacity else None)


def test_all_of_a_card_that_has_so_much() -> None:
    (request,) = devices(Shape((Share(1, Amount(2000, 100)),)))["requests"]
    memory = 'device.capacity["gpu.tessera.dev"].memory'
    assert request["exactly"]["selectors"] == [
        {"cel": {"expression": f'has({memory}) && {memory}.compareTo(quantity("2000Mi")) >= 0'}}
    ]


def test_equal_cards_are_one_request() -> None:
    found = devices(replace(MANY, levels=(NUMA_BOUND[0],)))
    assert [(each["name"], each["exactly"]["count"]) for each in found["requests"]] == [("g0", 3), ("g1", 1)]
    assert found["constraints"] == [
        DISTINCT,
        {"requests": ["g0"], "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]


def test_one_numa_node_or_none_that_is_known() -> None:
    found = devices(MANY)
    bound, unknown = found["requests"][0]["firstAvailable"]
    assert (bound["name"], unknown["name"]) == ("numa", "nonuma")
    assert unknown["selectors"][0] == {
        "cel": {"expression": '!has(device.attributes["gpu.tessera.dev"].numaNode)'}
    }
    assert found["constraints"] == [
        DISTINCT,
        {"requests": ["g0/numa"], "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]


def test_near_cards_are_preferred() -> None:
    found = devices(NEAR, Cluster((40 * GI,)))
    assert [each["name"] for each in found["requests"][0]["firstAvailable"]] == [
        "nvlink-s40",
        "pcie-s40",
        "numa-s40",
        "any-s40",
    ]
    assert found["constraints"] == [
        DISTINCT,
        {"requests": ["g0/nvlink-s40"], "matchAttribute": "gpu.tessera.dev/nvlinkDomain"},
        {"requests": ["g0/pcie-s40"], "matchAttribute": "resource.kubernetes.io/pcieRoot"},
        {"requests": ["g0/numa-s40"], "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]


def test_sizes_go_before_preferences_where_there_is_no_room_for_all() -> None:
    three = Cluster((24 * GI, 40 * GI, 80 * GI))
    names = [each["name"] for each in devices(NEAR, three)["requests"][0]["firstAvailable"]]
    assert names == ["nvlink-s24", "nvlink-s40", "nvlink-s80", "any-s24", "any-s40", "any-s80"]
    eight = Cluster(tuple(size * GI for size in range(1, 9)))
    names = [each["name"] for each in devices(NEAR, eight)["requests"][0]["firstAvailable"]]
    assert names == [f"any-s{size}" for size in range(1, 9)]
    bound = replace(PERCENT, levels=NUMA_BOUND)
    names = [each["name"] for each in devices(bound, eight)["requests"][0]["firstAvailable"]]
    assert names == [f"numa-s{size}" for size in range(1, 9)]


def test_equal_cards_are_many_requests_where_counts_are_not_distinct() -> None:
    many = replace(MANY, shares=(Share(5, Amount(1000)), Share(1, ALONE)))
    template = template_of(many, replace(TWO_SIZES, version=(1, 35)))
    found = template.devices
    names = [f"g0-{card}" for card in range(5)]
    assert [each["name"] for each in found["requests"]] == [*names, "g1"]
    assert {each["exactly"]["count"] for each in found["requests"]} == {1}
    assert found["constraints"] == [
        DISTINCT | {"requests": names},
        {"requests": names, "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]
    assert template.request_names == (tuple(names), ("g1",))


def test_few_cards_may_tell_no_numa_node_there_either() -> None:
    found = devices(MANY, replace(TWO_SIZES, version=(1, 35)))
    names = ["g0-0", "g0-1", "g0-2"]
    for name, request in zip(names, found["requests"], strict=False):
        assert request["name"] == name
        assert [form["name"] for form in request["firstAvailable"]] == ["numa", "nonuma"]
    assert found["constraints"] == [
        DISTINCT | {"requests": names},
        {"requests": [f"{name}/numa" for name in names], "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]


@pytest.mark.parametrize(
    ("version", "names"),
    [((1, 37), ["g0", "g1"]), ((1, 36), ["g0", "g1-0", "g1-1"])],
    ids=["1.37", "1.36: distinct across counts is wrong there"],
)
def test_cards_of_two_requests(version: tuple[int, int], names: list[str]) -> None:
    found = devices(APART, replace(TWO_SIZES, version=version))
    assert [each["name"] for each in found["requests"]] == names
    assert found["constraints"] == [DISTINCT | {"requests": names}]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param((), ["8000Mi or more"], id="none known"),
        pytest.param((10 * GI,), ["8000Mi or more"], id="one"),
        pytest.param((5 * GI, 10 * GI, 20 * GI), ["m10", "m20"], id="the smallest first"),
        pytest.param(
            tuple(range(10 * GI, 20 * GI, GI)), [*(f"m{size}" for size in range(10, 17)), "m"], id="many"
        ),
    ],
)
def test_instances(sizes: tuple[int, ...], expected: list[str]) -> None:
    found = devices(INSTANCE, replace(TWO_SIZES, instance_sizes=sizes))
    (request,) = found["requests"]
    forms = request.get("firstAvailable") or [request["exactly"]]
    assert [form.get("name", "8000Mi or more") for form in forms] == expected
    for form in forms:
        assert form["deviceClassName"] == "mig.gpu.tessera.dev"
        assert form["capacity"] == {"requests": {"cores": "100", "shares": "1000"}}
    assert found["constraints"] == [DISTINCT]


def test_cards_or_instances() -> None:
    both = replace(INSTANCE, cards=True)
    (request,) = devices(both, replace(TWO_SIZES, instance_sizes=(10 * GI, 20 * GI)))["requests"]
    assert [(form["name"], form["deviceClassName"]) for form in request["firstAvailable"]] == [
        ("any", "gpu.tessera.dev"),
        ("m10", "mig.gpu.tessera.dev"),
        ("m20", "mig.gpu.tessera.dev"),
    ]


LOOSE = Terms(core_policy=CorePolicy.DISABLE)
SHARED = Amount(1000, cores=30)


@pytest.mark.parametrize(
    ("terms", "amount", "device_class", "parameters"),
    [
        pytest.param(Terms(), SHARED, "gpu", None, id="plain"),
        pytest.param(Terms(high=True), SHARED, "priority.gpu", None, id="priority"),
        pytest.param(Terms(core_policy=CorePolicy.FORCE), SHARED, "gpu", {"corePolicy": "force"}, id="force"),
        pytest.param(LOOSE, SHARED, "trusted.gpu", {"enforcement": "library", "priority": 1}, id="disable"),
        pytest.param(
            replace(LOOSE, high=True), SHARED, "trusted.gpu", {"enforcement": "library"}, id="disable, high"
        ),
        pytest.param(Terms(unlimited=True), SHARED, "trusted.gpu", None, id="without the library"),
        pytest.param(Terms(high=True), ALONE, "gpu", None, id="nobody to go before"),
        pytest.param(LOOSE, Amount(1000), "gpu", None, id="nothing to loosen"),
        pytest.param(Terms(core_policy=CorePolicy.FORCE), ALONE, "gpu", None, id="nothing to enforce"),
        pytest.param(Terms(unlimited=True), ALONE, "gpu", None, id="no library anyway"),
    ],
)
def test_terms(terms: Terms, amount: Amount, device_class: str, parameters: dict[str, Any] | None) -> None:
    found = devices(Shape((Share(1, amount, terms),)))
    assert found["requests"][0]["exactly"]["deviceClassName"] == f"{device_class}.tessera.dev"
    told = [each["opaque"]["parameters"] for each in found.get("config", ())]
    head = {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "ShareConfig"}
    assert told == ([head | parameters] if parameters else [])


@pytest.mark.parametrize(
    ("from_class", "from_claim"),
    [
        ({"priority": 0}, {}),
        ({}, {"corePolicy": "force"}),
        (
            {"enforcement": "none", "corePolicy": "disable", "priority": 0},
            {"enforcement": "library", "priority": 1},
        ),
        ({"enforcement": "none", "corePolicy": "disable", "priority": 0}, {"enforcement": "library"}),
    ],
    ids=["priority", "force", "disable", "disable, high"],
)
def test_the_agent_takes_what_class_and_claim_say_together(
    from_class: dict[str, Any], from_claim: dict[str, Any]
) -> None:
    """Nothing that a claim says is looser than its class: the agent would refuse it."""
    head = {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "ShareConfig"}
    configs = [
        OpaqueConfig(from_class=source, requests=(), parameters=head | parameters, path="x")
        for parameters, source in ((from_class, True), (from_claim, False))
        if parameters
    ]
    terms_of(Result("g0", "node", DeviceName("gpu-1")), configs)


def test_percentage_has_an_alternative_for_each_size() -> None:
    (request,) = devices(PERCENT)["requests"]
    found = [
        (each["name"], each["count"], each["capacity"]["requests"]) for each in request["firstAvailable"]
    ]
    assert found == [
        ("s24", 2, {"memory": "12Gi", "cores": "30"}),
        ("s80", 2, {"memory": "40Gi", "cores": "30"}),
    ]
    memory = 'device.capacity["gpu.tessera.dev"].memory'
    expression = request["firstAvailable"][0]["selectors"][0]["cel"]["expression"]
    assert expression == f'has({memory}) && {memory}.compareTo(quantity("24Gi")) == 0'


def test_percentage_rounds_down_as_hami_does_and_never_to_nothing() -> None:
    cluster = Cluster(card_sizes=(24564 << 20, (1 << 20)))
    (request,) = devices(Shape((Share(1, Amount(0, 30)),)), cluster)["requests"]
    found = [(each["name"], each["capacity"]["requests"]["memory"]) for each in request["firstAvailable"]]
    assert found == [("s24564mi", "7369Mi"), ("s1mi", "1Mi")]


def test_caps_travel_in_the_config() -> None:
    (config,) = devices(CAPPED)["config"]
    assert config == {
        "requests": ["g0"],
        "opaque": {
            "driver": "gpu.tessera.dev",
            "parameters": {
                "apiVersion": "gpu.tessera.dev/v1alpha1",
                "kind": "ShareConfig",
                "caps": [{"container": "app", "memory": "4000Mi"}, {"container": "init", "cores": 20}],
            },
        },
    }


def test_caps_follow_the_size_of_the_card() -> None:
    found = devices(MIXED, Cluster((6 * GI, 80 * GI)))
    small, large = found["config"]
    assert [form["name"] for form in found["requests"][0]["firstAvailable"]] == ["s6", "s80"]
    assert small["requests"] == ["g0/s6"]  # 50 % of 6 GiB are less than 4000 MiB
    assert small["opaque"]["parameters"]["caps"] == [{"container": "app", "memory": "3Gi"}]
    assert large["requests"] == ["g0/s80"]
    assert large["opaque"]["parameters"]["caps"] == [{"container": "init", "memory": "4000Mi"}]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("version", [(1, 37), (1, 36), (1, 35)], ids=["1.37", "1.36", "1.35"])
def test_kubernetes_models_know_every_field(shape: Shape, version: tuple[int, int]) -> None:
    cluster = Cluster((24 * GI, 80 * GI), version, (10 * GI, 20 * GI))
    document = template_of(shape, cluster).document("team")
    model = kubernetes_models.V1ResourceClaimTemplate.model_validate(document)
    serialized = ApiClient().sanitize_for_serialization(model)  # type: ignore[no-untyped-call]
    assert serialized == document


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_names_that_others_refer_to_are_there_and_short(shape: Shape) -> None:
    cluster = Cluster((24 * GI, 24564 << 20), (1, 37), (10 * GI, 4864 << 20))
    found = devices(shape, cluster)
    names = set()
    for request in found["requests"]:
        names.add(request["name"])
        names |= {f"{request['name']}/{form['name']}" for form in request.get("firstAvailable", ())}
        assert len(request.get("firstAvailable", ())) <= 8
    for entry in (*found.get("constraints", ()), *found.get("config", ())):
        assert set(entry["requests"]) <= names
    assert all(
        re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", part)
        for name in names
        for part in name.split("/")
    )


def test_name_follows_content() -> None:
    names = {template_of(shape, TWO_SIZES).name for shape in SHAPES.values()}
    assert len(names) == len(SHAPES)
    assert all(len(name) == len("tessera-") + 16 for name in names)
    assert template_of(PERCENT, TWO_SIZES).name == template_of(replace(PERCENT), TWO_SIZES).name


def test_canonical_form() -> None:
    assert canonical({"b": [{"z": 1, "a": "é"}], "a": None}) == '{"a":null,"b":[{"a":"é","z":1}]}'.encode()
