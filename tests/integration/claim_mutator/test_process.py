"""The real process over TLS, against a fake API server: reviews, templates, quota."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from typing import Any

import jsonpatch
import pytest

from tests.integration.api_server import ApiServer, Seen
from tests.integration.claim_mutator.process import POD, TEMPLATES, Caller, Mutator, mutator
from tests.unit.claim_mutator.pods import container, manifest


def is_creation(seen: Seen) -> bool:
    """Of a template, and not the look whether capacities are kept."""
    is_post = seen.method == "POST" and seen.path.endswith("resourceclaimtemplates")
    return is_post and "dryRun" not in seen.params


def creations(api: ApiServer) -> int:
    return sum(map(is_creation, api.requests))


async def test_review_in_patch_out(api: ApiServer, running: Mutator, caller: Caller) -> None:
    response = await caller.review(POD)
    assert response["allowed"]
    after = jsonpatch.apply_patch(POD, response["patch"])
    (template,) = api.all(TEMPLATES)
    assert after["spec"]["resourceClaims"] == [
        {"name": "tessera", "resourceClaimTemplateName": template["metadata"]["name"]}
    ]
    assert template["metadata"]["namespace"] == "n"
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"] == {"requests": {"memory": "3000Mi", "cores": "30"}}
    assert await running.metric('tessera_mutator_admissions_total{result="converted"}') == 1
    assert await running.metric("tessera_mutator_templates_created_total") == 1
    duration = "tessera_mutator_admission_duration_seconds_count"
    assert await running.metric(f'{duration}{{result="converted"}}') == 1


async def test_percentage_uses_the_clusters_cards(api: ApiServer, caller: Caller) -> None:
    await caller.review(manifest(container(gpu="1", gpumem_percentage="50")))
    (template,) = api.all(TEMPLATES)
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert [each["name"] for each in request["firstAvailable"]] == ["s24", "s80"]


async def test_trust_follows_the_namespaces_label(api: ApiServer, running: Mutator, caller: Caller) -> None:
    document = manifest(container(gpu="1", gpumem="3000"))
    document["spec"]["containers"][0]["env"] = [{"name": "CUDA_DISABLE_CONTROL", "value": "true"}]

    async def device_class() -> str:
        response = await caller.review(document, namespace="team")
        name = response["patch"][-1]["value"][0]["resourceClaimTemplateName"]
        (template,) = [each for each in api.all(TEMPLATES) if each["metadata"]["name"] == name]
        found: str = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"]
        assert bool(response.get("warnings")) is (found == "gpu.tessera.dev")
        return found

    async def becomes(expected: str) -> None:
        for _ in range(1200):
            if await device_class() == expected:
                return
            await asyncio.sleep(0.05)
        raise AssertionError("".join(running.log))

    assert await device_class() == "gpu.tessera.dev"
    labels = {"tessera.dev/trusted": "true"}
    api.put("/api/v1/namespaces", {"metadata": {"name": "team", "labels": labels}})
    await becomes("trusted.gpu.tessera.dev")
    api.put("/api/v1/namespaces", {"metadata": {"name": "team", "labels": {}}})
    await becomes("gpu.tessera.dev")


async def test_authors_of_workloads_are_told(running: Mutator, caller: Caller) -> None:
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train"},
        "spec": {"template": {"spec": {"containers": [container(gpu="1", gpumem="16Gi")]}}},
    }
    response = await caller.review(job, kind="Job")
    assert response["allowed"]
    assert "patch" not in response
    assert "its Pods will be refused" in response["warnings"][0]
    assert await running.metric('tessera_mutator_admissions_total{result="told"}') == 1


async def test_known_template_costs_no_call(api: ApiServer, caller: Caller) -> None:
    await caller.review(POD)
    api.requests.clear()
    for _ in range(20):
        assert (await caller.review(POD))["allowed"]
    periodic = ("/secrets/", "/mutatingwebhookconfigurations/", "/leases")
    assert [seen for seen in api.requests if not any(part in seen.path for part in periodic)] == []


async def test_fifty_at_once_make_one_template(api: ApiServer, caller: Caller) -> None:
    responses = await asyncio.gather(*(caller.review(POD) for _ in range(50)))
    assert all(response["allowed"] for response in responses)
    assert creations(api) == 1
    assert len(api.all(TEMPLATES)) == 1


async def test_none_passes_unconverted_while_the_api_is_slow_or_fails(api: ApiServer, caller: Caller) -> None:
    """B121: 200 Pods of 20 shapes at once. Each is converted, or refused for now."""
    api.delay(0.5, when=is_creation)
    api.refuse(500, times=5, when=is_creation)
    pods = [manifest(container(gpu="1", gpumem=str(1000 + number % 20))) for number in range(200)]
    responses = await asyncio.gather(*(caller.review(pod) for pod in pods))
    converted = [response for response in responses if response["allowed"]]
    assert 0 < len(converted) < 200
    assert all(response["patch"] for response in converted)
    assert {response["status"]["code"] for response in responses if not response["allowed"]} == {503}
    again = [await caller.review(pod) for pod in pods[:20]]
    assert all(response["allowed"] and response["patch"] for response in again)


async def test_template_of_another_replica_is_found(api: ApiServer, running: Mutator, caller: Caller) -> None:
    await caller.review(POD, namespace="first")
    (template,) = api.all(TEMPLATES)
    copy = {**template, "metadata": {"name": template["metadata"]["name"], "namespace": "second"}}
    api.put(TEMPLATES, copy)  # without our label, so not in the cache: the creation meets it
    assert (await caller.review(POD, namespace="second"))["allowed"]
    assert await running.metric("tessera_mutator_templates_created_total") == 1


async def test_deleted_template_is_made_again(api: ApiServer, tmp_path: Path) -> None:
    async with mutator(api, tmp_path) as first, Caller(first) as caller:
        await first.ready()
        await caller.review(POD)
        await first.stop()
    async with mutator(api, tmp_path) as second, Caller(second) as caller:
        await second.ready()
        (template,) = api.all(TEMPLATES)
        await second.until_metric("tessera_mutator_templates", 1)
        api.drop(TEMPLATES, template["metadata"]["name"], "n")
        await second.until_metric("tessera_mutator_templates", 0)
        assert (await caller.review(POD))["allowed"]
        assert len(api.all(TEMPLATES)) == 1


async def test_template_that_has_just_been_made_and_deleted_is_made_again(
    api: ApiServer, running: Mutator, caller: Caller
) -> None:
    """A namespace that is deleted and made again under the same name within a minute."""
    await caller.review(POD)
    await running.until_metric("tessera_mutator_templates", 1)
    (template,) = api.all(TEMPLATES)
    api.drop(TEMPLATES, template["metadata"]["name"], "n")
    await running.until_metric("tessera_mutator_templates", 0)
    await caller.review(POD)
    assert len(api.all(TEMPLATES)) == 1


async def test_dry_run_leaves_nothing(api: ApiServer, caller: Caller) -> None:
    response = await caller.review(POD, dry_run=True)
    assert response["patch"]
    assert creations(api) == 0
    await caller.review(POD)
    assert creations(api) == 1


async def test_refused_leaves_nothing(api: ApiServer, running: Mutator, caller: Caller) -> None:
    response = await caller.review(manifest(container("a", gpu="1"), container("b", gpu="1", gpumem="8Gi")))
    assert not response["allowed"]
    assert response["status"]["code"] == 400
    assert response["status"]["message"] == (
        "Pod n/p: container 'b', limits: nvidia.com/gpumem: 8Gi has a binary suffix, but this field counts"
        " MiB: write 8192"
    )
    assert creations(api) == 0
    assert await running.metric('tessera_mutator_admissions_total{result="refused"}') == 1


async def test_without_gpu_nothing_happens(api: ApiServer, running: Mutator, caller: Caller) -> None:
    assert await caller.review(manifest(container(cpu="1"))) == {"uid": "u-1", "allowed": True}
    assert creations(api) == 0
    assert await running.metric('tessera_mutator_admissions_total{result="untouched"}') == 1


async def test_warnings_are_passed_on(caller: Caller) -> None:
    document = manifest(container(gpu="1"), annotations={"hami.io/gpu-scheduler-policy": "spread"})
    (warning,) = (await caller.review(document))["warnings"]
    assert "hami.io/gpu-scheduler-policy" in warning


@pytest.mark.parametrize(
    ("status", "reason", "code"), [(503, "ServiceUnavailable", 503), (403, "Forbidden", 403)]
)
async def test_template_that_cannot_be_made(
    api: ApiServer, caller: Caller, status: int, reason: str, code: int
) -> None:
    api.refuse(status, when=is_creation, reason=reason)
    response = await caller.review(POD)
    assert not response["allowed"]
    assert response["status"]["code"] == code
    assert "the ResourceClaimTemplate can't be created" in response["status"]["message"]
    assert (await caller.review(POD))["allowed"]


@pytest.mark.parametrize(
    ("body", "changes", "status"),
    [
        pytest.param(b"{}", {"path": "/elsewhere"}, 404, id="another path"),
        pytest.param(b"{}", {"headers": {"Content-Type": "text/plain"}}, 415, id="not JSON by its type"),
        pytest.param(b"", {}, 400, id="empty"),
        pytest.param(b"{", {}, 400, id="cut"),
        pytest.param(b'{"request":{"uid":5}}', {}, 400, id="wrong type"),
        pytest.param(b"\xff" * 100, {}, 400, id="not UTF-8"),
        pytest.param(b" " * (9 << 20), {}, 413, id="too large"),
    ],
)
async def test_bad_requests(caller: Caller, body: bytes, changes: dict[str, Any], status: int) -> None:
    assert (await caller.post(io.BytesIO(body), **changes))[0] == status
    assert (await caller.review(POD))["allowed"]


async def test_quota_holds_across_replicas(api: ApiServer, tmp_path: Path) -> None:
    quota = {
        "metadata": {"name": "gpus", "namespace": "n"},
        "spec": {"hard": {"limits.nvidia.com/gpumem": "7k"}},
    }
    api.put("/api/v1/resourcequotas", quota)
    async with mutator(api, tmp_path) as one, mutator(api, tmp_path) as other:
        await asyncio.gather(one.ready(), other.ready())
        async with Caller(one) as first, Caller(other) as second:
            answers = await asyncio.gather(*(each.review(POD) for each in (first, second) * 4))
    assert [answer["allowed"] for answer in answers].count(True) == 2
    for answer in answers:
        if not answer["allowed"]:
            assert answer["status"] == {
                "code": 403,
                "reason": "Forbidden",
                "message": "exceeded quota: gpus, requested: limits.nvidia.com/gpumem=3000,"
                " used: limits.nvidia.com/gpumem=6000, limited: limits.nvidia.com/gpumem=7k",
            }
