"""ResourceQuotas on HAMi's names hold on a real cluster, whoever asks whichever replica how fast."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kube import paths
from kube.client import Client
from kube.configuration import Connection
from kube.errors import ApiError
from tests.cluster import network, vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.test_mutator import two_replicas

pytestmark = pytest.mark.cluster

MEMORY = "limits.nvidia.com/gpumem"
FAST = {"replicas": 2, "quotaPeriod": 1}


@pytest.fixture(scope="module")
def cluster(installed_cluster: Cluster) -> Iterator[Cluster]:
    """With two replicas of the webhook."""
    installed_cluster.install_chart({"mutator": FAST})
    two_replicas(installed_cluster)
    yield installed_cluster
    installed_cluster.install_chart()


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = "q-" + request.node.originalname.removeprefix("test_").replace("_", "-")[:50]
    vertical.create_namespace(cluster, name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait")


def quota(cluster: Cluster, namespace: str, hard: dict[str, str]) -> None:
    document = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": namespace},
        "spec": {"hard": hard},
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(document))
    vertical.wait_until(
        "the quota's status",
        lambda: (
            vertical.get(cluster, "resourcequota", "gpus", "-n", namespace).get("status", {}).get("hard")
            == hard
        ),
    )


def pod(name: str, **limits: str) -> dict[str, Any]:
    """One that nobody schedules: what is asserted is who comes in."""
    resources = {"limits": {f"nvidia.com/{key.replace('_', '-')}": value for key, value in limits.items()}}
    container = {"name": "work", "image": "localhost/pause:1", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "containers": [container],
        },
    }


def create_at_once(cluster: Cluster, namespace: str, pods: list[dict[str, Any]]) -> list[ApiError | None]:
    """What each creation was answered."""
    file = cluster.credentials.file
    connection = Connection(
        server=f"https://{network.address(0)}:{network.API_PORT}",
        ca_file=file("ca.crt"),
        client_cert=file("admin.crt"),
        client_key=file("admin.key"),
    )

    async def create() -> list[ApiError | None]:
        async with Client(connection, user_agent="test", timeout=60) as client:

            async def one(document: dict[str, Any]) -> ApiError | None:
                try:
                    await client.create(paths.pods(namespace), document)
                except ApiError as error:
                    return error
                return None

            return await asyncio.gather(*map(one, pods))

    with cluster.network():
        return asyncio.run(create())


def used(cluster: Cluster, namespace: str) -> str | None:
    status = vertical.get(cluster, "resourcequota", "gpus", "-n", namespace)["status"]
    found: str | None = status.get("used", {}).get(MEMORY)
    return found


def answered(cluster: Cluster) -> list[float]:
    """Reviews by replica."""
    pages = vertical.metrics(cluster, "tessera-mutator", 9471).values()
    counts = (
        re.findall(r"^tessera_mutator_admissions_total\{.*\} (\S+)$", page, re.MULTILINE) for page in pages
    )
    return [sum(map(float, each)) for each in counts]


def test_a_hundred_pods_at_once(cluster: Cluster, namespace: str) -> None:
    """Beside a key of Kubernetes' own in the same quota, which its own admission keeps."""
    quota(cluster, namespace, {MEMORY: "10k", "pods": "60"})
    before = answered(cluster)
    answers = create_at_once(
        cluster, namespace, [pod(f"p-{number}", gpu="1", gpumem="1000") for number in range(100)]
    )
    refused = [error for error in answers if error is not None]
    assert len(answers) - len(refused) == 10
    assert {(error.status, error.reason) for error in refused} == {(403, "Forbidden")}
    for error in refused:
        assert re.search(
            r"exceeded quota: gpus, requested: limits\.nvidia\.com/gpumem=1000,"
            r" used: limits\.nvidia\.com/gpumem=10000, limited: limits\.nvidia\.com/gpumem=10k",
            error.message,
        ), error.message
    assert len(vertical.get(cluster, "pods", "-n", namespace)["items"]) == 10
    gained = [now - then for now, then in zip(answered(cluster), before, strict=True)]
    assert len(gained) == 2
    assert min(gained) > 0, "both replicas were asked"
    vertical.wait_until("what is used to be shown", lambda: used(cluster, namespace) in ("10000", "10k"))
    names = [item["metadata"]["name"] for item in vertical.get(cluster, "pods", "-n", namespace)["items"]]
    cluster.kubectl("delete", "pod", "-n", namespace, "--wait", *names[:3])
    again = create_at_once(cluster, namespace, [pod(f"r-{n}", gpu="1", gpumem="1000") for n in range(20)])
    assert [error is None for error in again].count(True) == 3


def test_cards_and_cores_with_requests(cluster: Cluster, namespace: str) -> None:
    """Corpus M100; 2 cards of 1024 MiB are 2048 MiB, which Kubernetes' own quota did not know."""
    hard = {
        "requests.nvidia.com/gpu": "2",
        "requests.nvidia.com/gpucores": "50",
        "requests.nvidia.com/gpumem": "2048",
    }
    quota(cluster, namespace, hard)
    tries = [
        pod("a", gpu="2", gpucores="70", gpumem="1024"),
        pod("b", gpu="2", gpucores="10", gpumem="1025"),
        pod("c", gpu="2", gpucores="25", gpumem="1024"),
        pod("d", gpumem="1"),
    ]
    answers = [create_at_once(cluster, namespace, [each])[0] for each in tries]
    assert [error is None for error in answers] == [False, False, True, False]
    messages = [error.message if error else "" for error in answers]
    assert "requested: requests.nvidia.com/gpucores=140, used: requests.nvidia.com/gpucores=0" in messages[0]
    assert "requested: requests.nvidia.com/gpumem=2050," in messages[1]
    assert "requested: requests.nvidia.com/gpu=1,requests.nvidia.com/gpumem=1, used" in messages[3]


def test_whole_cards_and_percentages(cluster: Cluster, namespace: str) -> None:
    """Before they are allocated they count as the largest card (80 GiB) would make them."""
    quota(cluster, namespace, {MEMORY: "102400"})
    answers = [
        create_at_once(cluster, namespace, [each])[0]
        for each in (
            pod("whole", gpu="1"),
            pod("half", gpu="1", gpumem_percentage="50"),
            pod("fits", gpumem="20480"),
        )
    ]
    assert [error is None for error in answers] == [True, False, True]
    assert answers[1] is not None
    assert (
        "requested: limits.nvidia.com/gpumem=40960, used: limits.nvidia.com/gpumem=81920"
        in answers[1].message
    )


def test_dry_run_is_told_and_takes_no_room(cluster: Cluster, namespace: str) -> None:
    quota(cluster, namespace, {MEMORY: "1k"})
    dry = ("create", "-n", namespace, "--dry-run=server", "-f", "-")
    for _ in range(2):
        cluster.kubectl(*dry, input=json.dumps(pod("dry", gpumem="1000")))
    with pytest.raises(CommandError, match="exceeded quota: gpus"):
        cluster.kubectl(*dry, input=json.dumps(pod("dry", gpumem="1001")))
    assert create_at_once(cluster, namespace, [pod("real", gpumem="1000")]) == [None]


def test_a_deployment_gets_what_fits_and_says_why_not_more(cluster: Cluster, namespace: str) -> None:
    quota(cluster, namespace, {MEMORY: "6k"})
    vertical.apply(cluster, namespace, "legacy.yaml")
    vertical.running(cluster, namespace, "app=legacy", 2)

    def told() -> list[str]:
        events = vertical.get(cluster, "events", "-n", namespace, "--field-selector=type=Warning")["items"]
        return [e["source"]["component"] for e in events if "exceeded quota: gpus" in e["message"]]

    vertical.wait_until("both Events", lambda: {"replicaset-controller", "tessera-mutator"} <= set(told()))
    templates = vertical.get(cluster, "resourceclaimtemplates", "-n", namespace)["items"]
    assert len(templates) == 1
    quota(cluster, namespace, {MEMORY: "9k"})
    vertical.running(cluster, namespace, "app=legacy", 3)
