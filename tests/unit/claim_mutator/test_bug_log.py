"""Public reports that concern admission: the smallest input, and what has to come of it. Ids are the corpus'.

Reports about a running cluster (claims that stay, Pods that pend) are asserted here as far as the claim
decides them; the cluster tests see the rest.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from claim_mutator import patch, workload
from claim_mutator.cluster import Cluster, parse_version
from claim_mutator.conversion import Conversion
from claim_mutator.names import ResourceNames
from claim_mutator.refusal import Refused
from claim_mutator.rules import Rules
from kube.quantity import parse_quantity
from tests.unit.claim_mutator.pods import GI, TWO_SIZES, container, converted, manifest

SIZES = Cluster((16 * GI, 80 * GI))


def requests(found: Conversion) -> list[dict[str, Any]]:
    """The exact requests of the claim."""
    assert found.template is not None
    return [request["exactly"] for request in found.template.devices["requests"]]


def capacity(found: Conversion) -> list[dict[str, str]]:
    return [request.get("capacity", {}).get("requests", {}) for request in requests(found)]


def test_b001_claims_belong_to_their_pods() -> None:
    """Made from a template, so that Kubernetes makes and removes them with the Pod; each Pod has its own."""
    document = manifest(container(gpu=1, gpumem=3000))
    for _ in range(20):
        found = patch.apply(document, converted(document).operations)
        (claim,) = found["spec"]["resourceClaims"]
        assert set(claim) == {"name", "resourceClaimTemplateName"}


def test_b003_one_bad_container_refuses_the_pod_as_a_whole() -> None:
    document = manifest(container("a", gpu=1), container("b", gpu=1, gpumem_percentage=150))
    with pytest.raises(Refused, match=r"container 'b', limits: nvidia\.com/gpumem-percentage: 150"):
        converted(document)


def test_b004_a_privileged_neighbour_sees_every_card() -> None:
    tuner = {"name": "tuner", "securityContext": {"privileged": True}}
    with pytest.raises(Refused, match="container 'tuner' is privileged"):
        converted(manifest(container(gpu=1, gpumem=2000), tuner))


def test_b006_amounts_in_annotations_are_told() -> None:
    annotations = {"nvidia.com/gpumem": "4096", "nvidia.com/gpucores": "30"}
    found = converted(manifest(container(gpu=1), annotations=annotations))
    told = zip(annotations, found.warnings, strict=True)
    assert all(f"annotation {key} has no effect" in text for key, text in told)
    assert "write nvidia.com/gpumem: 4096 into resources.limits" in found.warnings[0]


def test_b007_memory_without_cores_takes_no_cores() -> None:
    assert capacity(converted(manifest(container(gpu=1, gpumem=20480)))) == [{"memory": "20Gi"}]


def test_b008_a_count_alone_is_the_card_alone() -> None:
    assert capacity(converted(manifest(container(gpu=1)))) == [{"cores": "100", "shares": "1000"}]


@pytest.mark.parametrize("value", ["16Gi", "4Gi", "8G", "4096Mi", 4294967296], ids=str)
def test_b010_other_units_are_refused(value: Any) -> None:
    with pytest.raises(Refused, match=r"counts MiB: .*write "):
        converted(manifest(container(gpu=1, gpumem=value)))


def test_b011_renamed_resources_are_ours_everywhere() -> None:
    rules = Rules(ResourceNames(count=("example.com/vgpu",), memory=("example.com/vgpu-memory",)))
    limits = {"example.com/vgpu": 1, "example.com/vgpu-memory": 1000}
    document = manifest({"name": "a", "resources": {"limits": limits, "requests": dict(limits)}})
    found = converted(document, rules=rules)
    assert capacity(found) == [{"memory": "1000Mi"}]
    assert "example.com" not in json.dumps(patch.apply(document, found.operations))


def test_b012_an_annotation_of_the_job_is_told_and_selects_nothing() -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "annotations": {"nvidia.com/use-gpuuuid": "GPU-1"}},
        "spec": {"template": {"spec": {"containers": [container(gpumem=3000)]}}},
    }
    (notice,) = workload.review(job, Rules(), TWO_SIZES, "n")
    assert "nvidia.com/use-gpuuuid has no effect here" in notice.text
    assert "selectors" not in requests(converted(job["spec"]["template"]))[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("value", "trusted", "device_class"),
    [
        ("false", True, "gpu.tessera.dev"),
        ("true", False, "gpu.tessera.dev"),
        ("true", True, "trusted.gpu.tessera.dev"),
    ],
)
def test_b014_b086_only_true_switches_control_off_and_only_where_it_may(
    value: str, trusted: bool, device_class: str
) -> None:
    document = manifest(container(gpumem=1000))
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": value}]
    cluster = replace(TWO_SIZES, trusted_namespaces=frozenset({"n"} if trusted else ()))
    found = converted(document, cluster)
    assert requests(found)[0]["deviceClassName"] == device_class
    assert bool(found.warnings) is (value == "true" and not trusted)


def test_b016_containers_with_claims_of_their_own_keep_them() -> None:
    own = {"name": "a", "image": "i", "resources": {"claims": [{"name": "c"}]}}
    held = [{"name": "c", "resourceClaimName": "c"}]
    document = manifest(own, container("b", gpumem=2000), resourceClaims=held)
    spec = patch.apply(document, converted(document).operations)["spec"]
    assert spec["containers"][0] == own
    assert [claim["name"] for claim in spec["resourceClaims"]] == ["c", "tessera"]


def test_b017_a_preset_node_is_refused_with_what_to_write() -> None:
    with pytest.raises(Refused, match=r"write nodeSelector: \{kubernetes.io/hostname: gpu-node-1\} instead"):
        converted(manifest(container(gpu=1), nodeName="gpu-node-1"))


@pytest.mark.parametrize(
    ("value", "mebibytes"),
    [("1k", 1000), ("2k", 2000), ("5k", 5000), ("81k", 81000), ("1M", 1_000_000), ("1e3", 1000)],
)
def test_b018_decimal_suffixes_multiply(value: str, mebibytes: int) -> None:
    (held,) = capacity(converted(manifest(container(gpu=2, gpumem=value))))
    assert parse_quantity(held["memory"]) == mebibytes << 20


@pytest.mark.parametrize("count", [2, 4, 7, 9])
@pytest.mark.parametrize("version", [(1, 35), (1, 36), (1, 37)], ids=lambda version: f"1.{version[1]}")
def test_b021_b041_cards_are_different_cards(count: int, version: tuple[int, int]) -> None:
    found = converted(manifest(container(gpu=count, gpumem=1000)), Cluster(version=version, most_cards=1))
    assert found.template is not None
    names = [request["name"] for request in found.template.devices["requests"]]
    assert sum(request["count"] for request in requests(found)) == count
    assert found.template.devices["constraints"] == [
        {"requests": names, "distinctAttribute": "gpu.tessera.dev/uuid"}
    ]
    (warning,) = found.warnings
    assert f"{count} different cards, no node has more than 1 now" in warning


def test_b023_b025_a_uuid_is_a_condition_of_the_scheduler() -> None:
    annotations = {"nvidia.com/use-gpuuuid": "GPU-2"}
    (request,) = requests(converted(manifest(container(gpu=1), annotations=annotations)))
    (selector,) = request["selectors"]
    assert selector["cel"]["expression"].endswith('.uuid in ["GPU-2"]')


def test_b028_init_containers_count_by_their_peak() -> None:
    inits = [container(f"i{number}", gpumem=10000) for number in range(3)]
    found = converted(manifest({"name": "app", "image": "i"}, initContainers=inits))
    assert capacity(found) == [{"memory": "10000Mi"}]


def test_b032_b033_a_percentage_is_of_the_card_that_it_will_be() -> None:
    found = converted(manifest(container(gpu=2, gpumem_percentage=50)), SIZES)
    assert found.template is not None
    (request,) = found.template.devices["requests"]
    held = [
        (form["name"], form["count"], form["capacity"]["requests"]["memory"])
        for form in request["firstAvailable"]
    ]
    assert held == [("s16", 2, "8Gi"), ("s80", 2, "40Gi")]


@pytest.mark.parametrize(
    ("count", "most_alike", "names"),
    [(2, 1, ["g0-0", "g0-1"]), (4, 3, ["g0-0", "g0-1", "g0-2", "g0-3"]), (2, 2, ["g0"]), (2, 0, ["g0"])],
    ids=["one of each", "four", "there are two of one size", "nothing is known"],
)
def test_b033_cards_may_differ_where_no_node_has_enough_of_one_size(
    count: int, most_alike: int, names: list[str]
) -> None:
    cluster = replace(SIZES, most_cards=4, most_alike=most_alike)
    found = converted(manifest(container(gpu=count, gpumem_percentage=50)), cluster)
    assert found.template is not None
    devices = found.template.devices
    assert [request["name"] for request in devices["requests"]] == names
    assert devices["constraints"] == [{"requests": names, "distinctAttribute": "gpu.tessera.dev/uuid"}]
    for request in devices["requests"]:
        held = [form["capacity"]["requests"]["memory"] for form in request["firstAvailable"]]
        assert held == ["8Gi", "40Gi"]
        assert sum(form["count"] for form in request["firstAvailable"]) * len(names) == 2 * count


@pytest.mark.parametrize("quantities", [{"gpumem": 1000}, {}], ids=["MiB", "whole"])
def test_b033_other_amounts_take_any_cards_in_one_request(quantities: dict[str, int]) -> None:
    cluster = replace(SIZES, most_cards=2, most_alike=1)
    (request,) = requests(converted(manifest(container(gpu=2, **quantities)), cluster))
    assert request["count"] == 2


def test_b034_b035_each_container_names_its_own_request() -> None:
    document = manifest(container("a", gpumem=1000), container("b"), container("c", gpumem=3000))
    found = converted(document)
    assert [held["memory"] for held in capacity(found)] == ["1000Mi", "3000Mi"]
    after = patch.apply(document, found.operations)["spec"]["containers"]
    assert [each["resources"].get("claims") for each in after] == [
        [{"name": "tessera", "request": "g0"}],
        None,
        [{"name": "tessera", "request": "g1"}],
    ]


def test_b039_cores_100_are_the_card_alone_whatever_the_memory() -> None:
    (held,) = capacity(converted(manifest(container(gpumem=16000, gpucores=100))))
    assert held["shares"] == "1000"


def test_b093_core_policy() -> None:
    document = manifest(container(gpumem=1000, gpucores=30))
    document["spec"]["containers"][0]["env"] = [{"name": "GPU_CORE_UTILIZATION_POLICY", "value": "force"}]
    found = converted(document)
    assert found.template is not None
    (config,) = found.template.devices["config"]
    assert config["opaque"]["parameters"]["corePolicy"] == "force"


def test_b123_no_share_becomes_a_whole_card_where_the_gate_is_off() -> None:
    with pytest.raises(Refused, match="its feature gate DRAConsumableCapacity is off") as refused:
        converted(manifest(container(gpu=1, gpumem_percentage=50)), Cluster(drops_capacity=True))
    assert len(refused.value.problems) == 1
    assert converted(manifest(container(gpu=0)), Cluster(drops_capacity=True)).operations


def test_b120_versions_of_managed_clusters() -> None:
    assert parse_version({"major": "1", "minor": "34+", "gitVersion": "v1.34.1-eks-abc"}) == (1, 34)
