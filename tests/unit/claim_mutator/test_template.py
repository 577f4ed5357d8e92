"""Templates: the documents, their names, what the API's own models say to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client import ApiClient
from kubernetes.client import models as kubernetes_models

from claim_mutator.container import Percent, Request
from claim_mutator.shape import Cap, Shape, Share
from claim_mutator.template import Cluster, canonical, template_of
from tests.unit.claim_mutator.pods import GI, TWO_SIZES

PERCENT = Shape((Share(Request(2, Percent(50), 30)),))
MANY = Shape((Share(Request(3, 1000, 0)), Share(Request(1, None, 100))), ("true",), same_numa_node=True)
CAPPED = Shape((Share(Request(1, 5000, 30), (Cap("app", 4000, None), Cap("init", None, 20))),))


def devices(shape: Shape, cluster: Cluster = TWO_SIZES) -> dict[str, Any]:
    found: dict[str, Any] = template_of(shape, cluster).spec["spec"]["devices"]
    return found


def test_the_documents_form() -> None:
    template = template_of(Shape((Share(Request(1, 3000, 30)),)), TWO_SIZES)
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
    ("request_", "capacity"),
    [
        pytest.param(Request(1, None, 100), {"cores": "100", "shares": "1000"}, id="the card alone"),
        pytest.param(Request(1, 1024, 0), {"memory": "1Gi"}, id="memory only: cores are the slice's default"),
        pytest.param(Request(1, 5, 100), {"memory": "5Mi", "cores": "100", "shares": "1000"}, id="cores 100"),
        pytest.param(Request(1, None, 30), {"cores": "30"}, id="cores only: memory is the slice's default"),
        pytest.param(Request(1, None, 0), None, id="whole memory, no limit of cores"),
    ],
)
def test_capacity(request_: Request, capacity: dict[str, str] | None) -> None:
    (request,) = devices(Shape((Share(request_),)))["requests"]
    assert request["exactly"].get("capacity") == ({"requests": capacity} if capacity else None)


def test_equal_cards_are_one_request() -> None:
    found = devices(MANY)
    assert [(each["name"], each["exactly"]["count"]) for each in found["requests"]] == [("g0", 3), ("g1", 1)]
    assert found["constraints"] == [
        {"requests": ["g0"], "distinctAttribute": "gpu.tessera.dev/uuid"},
        {"requests": ["g0"], "matchAttribute": "gpu.tessera.dev/numaNode"},
    ]


def test_equal_cards_are_many_requests_where_counts_are_not_distinct() -> None:
    template = template_of(MANY, replace(TWO_SIZES, counts_are_distinct=False))
    found = template.spec["spec"]["devices"]
    names = ["g0-0", "g0-1", "g0-2"]
    assert [each["name"] for each in found["requests"]] == [*names, "g1"]
    assert {each["exactly"]["count"] for each in found["requests"]} == {1}
    assert found["constraints"][0] == {"requests": names, "distinctAttribute": "gpu.tessera.dev/uuid"}
    assert template.request_names == (tuple(names), ("g1",))


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
    (request,) = devices(Shape((Share(Request(1, Percent(30), 0)),)), cluster)["requests"]
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


@pytest.mark.parametrize("shape", [PERCENT, MANY, CAPPED], ids=["percentage", "many", "caps"])
@pytest.mark.parametrize("distinct", [True, False], ids=["1.36", "1.35"])
def test_kubernetes_models_know_every_field(shape: Shape, distinct: bool) -> None:
    cluster = Cluster((24 * GI, 80 * GI), distinct)
    document = template_of(shape, cluster).document("team")
    model = kubernetes_models.V1ResourceClaimTemplate.model_validate(document)
    serialized = ApiClient().sanitize_for_serialization(model)  # type: ignore[no-untyped-call]
    assert serialized == document


def test_name_follows_content() -> None:
    names = {template_of(shape, TWO_SIZES).name for shape in (PERCENT, MANY, CAPPED)}
    assert len(names) == 3
    assert all(len(name) == len("tessera-") + 16 for name in names)
    assert template_of(PERCENT, TWO_SIZES).name == template_of(replace(PERCENT), TWO_SIZES).name


def test_canonical_form() -> None:
    assert canonical({"b": [{"z": 1, "a": "é"}], "a": None}) == '{"a":null,"b":[{"a":"é","z":1}]}'.encode()
