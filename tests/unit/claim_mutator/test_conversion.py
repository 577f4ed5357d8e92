"""Whole Pods: the patch against independent judges, refusals, what becomes of a Pod's wishes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest

from claim_mutator import patch
from claim_mutator.cluster import Cluster
from claim_mutator.metadata import CARD_POLICY, MODE
from claim_mutator.refusal import Refused
from tests.unit.claim_mutator.pods import GI, ONE_SIZE, TWO_SIZES, container, converted, manifest


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


@pytest.mark.parametrize("asked", [{"gpu": 1}, {"gpumem": 3000, "priority": 1}], ids=["whole", "share"])
def test_what_hamis_webhook_has_seen_first_means_the_same(asked: dict[str, Any]) -> None:
    """It writes into limits alone, behind the server's defaults."""
    plain = manifest(container(**asked))
    seen = copy.deepcopy(plain)
    (held,) = seen["spec"]["containers"]
    held["resources"]["limits"] |= {"nvidia.com/gpu": "1"}
    if "gpumem" not in asked:
        held["resources"]["limits"] |= {"nvidia.com/gpucores": "100"}
    else:
        held["env"] = [{"name": "CUDA_TASK_PRIORITY", "value": "1"}]
    seen["spec"]["schedulerName"] = "hami-scheduler"
    after = patched(seen)
    assert after["spec"] == patched(plain)["spec"] | {"schedulerName": "default-scheduler"}


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


def test_priority_becomes_a_variable_and_a_class() -> None:
    document = manifest(container(gpumem=1, priority=0))
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "1"}]
    assert patched(document)["spec"]["containers"][0]["env"] == [
        {"name": "A", "value": "1"},
        {"name": "CUDA_TASK_PRIORITY", "value": "0"},
    ]
    found = converted(document)
    assert found.warnings == ()
    assert found.template
    assert found.template.devices["requests"][0]["exactly"]["deviceClassName"] == "priority.gpu.tessera.dev"


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
        manifest(container(cpu=1), annotations={"nvidia.com/vgpu-mode": "mps"}),
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


MIG = {MODE: "mig"}


def test_an_instance_for_a_pod_that_wants_one() -> None:
    cluster = replace(TWO_SIZES, instance_sizes=(10 * GI, 20 * GI))
    found = converted(manifest(container(gpumem=8000, gpucores=30), annotations=MIG), cluster)
    assert found.template
    assert [form["name"] for form in found.template.devices["requests"][0]["firstAvailable"]] == [
        "m10",
        "m20",
    ]
    assert found.warnings == (
        "container 'work': nvidia.com/gpucores has no effect on MIG instances: each is given whole",
    )
    assert converted(manifest(container(gpumem=8000)), cluster).template != found.template


@pytest.mark.parametrize(
    ("quantities", "message"),
    [
        ({"gpu": 1}, "chosen by their memory, and it names none: write nvidia.com/gpumem in MiB"),
        ({"gpumem_percentage": 50}, "gpumem-percentage: 50 can't be turned into memory: MIG instances are"),
        ({"gpumem": 0, "gpucores": 30}, "write nvidia.com/gpumem"),
    ],
    ids=["count alone", "percentage", "memory 0"],
)
def test_an_instance_of_how_much(quantities: dict[str, Any], message: str) -> None:
    with pytest.raises(Refused, match=message):
        converted(manifest(container(**quantities), annotations=MIG))
    either = {MODE: "mig,hami-core"}
    assert converted(manifest(container(**quantities), annotations=either)).template


@pytest.mark.parametrize(
    ("quantities", "version", "told"),
    [
        ({"gpu": 2, "gpumem": 1000}, (1, 37), None),
        ({"gpu": 2, "gpumem": 1000}, (1, 35), "it needs Kubernetes 1.36"),
        ({"gpu": 1, "gpumem": 1000}, (1, 37), "here each has one"),
    ],
    ids=["honoured", "1.35", "one card"],
)
def test_near_cards(quantities: dict[str, Any], version: tuple[int, int], told: str | None) -> None:
    document = manifest(container(**quantities), annotations={CARD_POLICY: "topology-aware"})
    found = converted(document, replace(ONE_SIZE, version=version))
    assert found.template
    if told is None:
        assert found.warnings == ()
        constraints = found.template.devices["constraints"]
        assert any(each.get("matchAttribute", "").endswith("/nvlinkDomain") for each in constraints)
    else:
        assert told in found.warnings[0]
        assert not any("matchAttribute" in each for each in found.template.devices.get("constraints", ()))


def test_one_hundred_of_more_is_not_the_card_alone() -> None:
    """deviceCoreScaling above 1: HAMi lets others join."""
    document = manifest(container(gpumem=1000, gpucores=100))
    for scaled, capacity in ((True, {"memory": "1000Mi", "cores": "100"}), (False, {"shares": "1000"})):
        template = converted(document, Cluster(cores_are_scaled=scaled)).template
        assert template
        held = template.devices["requests"][0]["exactly"]["capacity"]["requests"]
        assert capacity.items() <= held.items()
        assert ("shares" in held) is not scaled


def test_trust_is_the_namespaces() -> None:
    document = manifest(container(gpumem=1000))
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]
    for trusted, device_class in (("n", "trusted.gpu.tessera.dev"), ("other", "gpu.tessera.dev")):
        found = converted(document, Cluster(trusted_namespaces=frozenset({trusted})))
        assert found.template
        assert found.template.devices["requests"][0]["exactly"]["deviceClassName"] == device_class
        assert bool(found.warnings) is (trusted != "n")


def test_more_than_a_claim_can_hold() -> None:
    """Each container that uses another part of the app's cards has constraints of its own."""
    inits = [container(f"i{number}", gpu=number, gpumem=1) for number in range(2, 20)]
    document = manifest(container(gpu=20), initContainers=inits, annotations={"nvidia.com/numa-bind": "1"})
    with pytest.raises(Refused, match="need 38 entries in the claim's constraints, and it can have 32"):
        converted(document)
