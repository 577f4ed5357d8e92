"""Kueue beside us: it counts what an author wrote, or what our claims ask for, and what it admits runs."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster import corpus, kueue, vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS
from tests.cluster.rack import create, new_namespace, share

pytestmark = pytest.mark.cluster

GROUP = "kueue.x-k8s.io"
QUEUE = {f"{GROUP}/queue-name": "lq"}  # of each manifest, by label or by field
FLAVOR = "t4"
END = "/tmp/end"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """With a kubelet that looks at mounted Secrets all the time: Kueue makes its certificate when it runs."""
    with Cluster(version=VERSIONS[0], kubelet={"syncFrequency": "2s"}) as cluster:
        cluster.install_chart()
        kueue.install(cluster)
        create(cluster, "default", [object_of("ResourceFlavor", FLAVOR, {})])
        yield cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    name = new_namespace(cluster, request.node.name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


def object_of(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": spec}


def quota(name: str, amounts: dict[str, Any]) -> dict[str, Any]:
    """A ClusterQueue, as M101 has one."""
    resources = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
    flavors = [{"name": FLAVOR, "resources": resources}]
    groups = [{"coveredResources": list(amounts), "flavors": flavors}]
    return object_of("ClusterQueue", name, {"namespaceSelector": {}, "resourceGroups": groups})


def opened(cluster: Cluster, namespace: str, queue: dict[str, Any]) -> str:
    """The name of a ClusterQueue that takes from the namespace's LocalQueue."""
    name: str = queue["metadata"]["name"]
    create(cluster, namespace, [queue, object_of("LocalQueue", "lq", {"clusterQueue": name})])
    return name


def until_counted(cluster: Cluster, queue: str, expected: dict[str, str]) -> None:
    """Until Kueue says that so much of the quota is taken, a moment after it has admitted."""

    def look() -> bool:
        status = vertical.get(cluster, f"clusterqueues.{GROUP}", queue).get("status", {})
        flavors = status.get("flavorsUsage") or [{"resources": []}]
        return {each["name"]: each["total"] for each in flavors[0]["resources"]} == expected

    vertical.wait_until(f"{queue} to count {expected}", look)


def told(workload: dict[str, Any], kind: str) -> dict[str, Any] | None:
    conditions = workload.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), None)


def admitted(cluster: Cluster, namespace: str, count: int, *, of: int) -> list[str]:
    """The names of the workloads that Kueue lets in, when it has let in so many and judged them all."""

    def look() -> list[str] | None:
        found = vertical.get(cluster, f"workloads.{GROUP}", "-n", namespace)["items"]
        judged = [each for each in found if told(each, "QuotaReserved")]
        names = [each["metadata"]["name"] for each in found if is_admitted(each)]
        return sorted(names) if len(judged) == len(found) == of and len(names) == count else None

    return vertical.wait_until(f"{count} of {of} workloads to be let in", look)


def is_admitted(workload: dict[str, Any]) -> bool:
    return (told(workload, "Admitted") or {}).get("status") == "True"


def test_the_third_job_waits_for_quota(cluster: Cluster, namespace: str) -> None:
    """M101: Kueue counts what the Jobs say, before there are Pods; what is converted are their Pods."""
    queue, job = corpus.documents("101-kueue-suspended-job")
    name = opened(cluster, namespace, queue)
    corpus.make_runnable(job["spec"]["template"]["spec"])
    jobs = [copy.deepcopy(job) | {"metadata": job["metadata"] | {"name": f"job-{n}"}} for n in range(3)]
    create(cluster, namespace, jobs)
    admitted(cluster, namespace, 2, of=3)
    first, second = vertical.running(cluster, namespace, "batch.kubernetes.io/job-name", 2)
    counted = {"gpu": "2", "total-gpumem": "8192", "total-gpucores": "100"}
    until_counted(cluster, name, {f"nvidia.com/{key}": amount for key, amount in counted.items()})
    found = {share.pod: (share.memory, share.cores) for share in vertical.shares(cluster, namespace)}
    assert found == {first: (4096, 50), second: (4096, 50)}
    gone = first.rpartition("-")[0]
    cluster.kubectl("delete", "job", "-n", namespace, gone, "--cascade=foreground")
    admitted(cluster, namespace, 2, of=2)
    assert second in vertical.running(cluster, namespace, "batch.kubernetes.io/job-name", 2)


def test_a_workload_is_counted_as_it_is(cluster: Cluster, namespace: str) -> None:
    """M119: accounting that somebody wrote himself, and sent through `tessera convert`."""
    (written,) = corpus.documents("119-kueue-workload-object")
    command = [sys.executable, "-m", "tessera.main", "convert", "-f", "-"]
    run = subprocess.run(command, input=yaml.safe_dump(written), capture_output=True, text=True, check=True)
    counted = {
        "cpu": "4",
        "memory": "8Gi",
        "nvidia.com/gpu": "1",
        "nvidia.com/total-gpucores": "50",
        "nvidia.com/gpumem-percentage": "50",
    }
    name = opened(cluster, namespace, quota("cq-119", counted))
    create(cluster, namespace, list(yaml.safe_load_all(run.stdout)))
    (workload,) = admitted(cluster, namespace, 1, of=1)
    until_counted(cluster, name, counted)
    stored = vertical.get(cluster, f"workloads.{GROUP}", workload, "-n", namespace)
    (pod_set,) = stored["spec"]["podSets"]
    assert pod_set["template"]["spec"] == written["spec"]["podSets"][0]["template"]["spec"]
    assert not vertical.get(cluster, "resourceclaimtemplates", "-n", namespace)["items"]


def queued(name: str, group: str = "") -> dict[str, Any]:
    """A Pod with 4096 MiB of a card, alone in the queue; or one of a group of two, until it finds END."""
    pod = share(name, 4096)
    pod["metadata"]["labels"] |= QUEUE
    if group:
        pod["metadata"]["labels"][f"{GROUP}/pod-group-name"] = group
        pod["metadata"]["annotations"][f"{GROUP}/pod-group-total-count"] = "2"
        pod["spec"]["restartPolicy"] = "Never"
        wait = f"until [ -e {END} ]; do sleep 0.2; done"
        pod["spec"]["containers"][0]["command"] = ["sh", "-c", wait]
    return pod


def test_pods_are_counted_by_their_claims(cluster: Cluster, namespace: str) -> None:
    """Kueue sees Pods when they have been converted: a quota of our capacity, in bytes."""
    name = opened(cluster, namespace, quota("cq-pods", {kueue.MEMORY: "8Gi"}))
    create(cluster, namespace, [queued(f"p-{number}") for number in range(3)])
    vertical.running(cluster, namespace, corpus.LABEL, 2)
    admitted(cluster, namespace, 2, of=3)
    until_counted(cluster, name, {kueue.MEMORY: "8Gi"})
    found = vertical.shares(cluster, namespace)
    assert [each.memory for each in found] == [4096, 4096]
    cluster.kubectl("delete", "pod", "-n", namespace, found[0].pod)
    left = {f"p-{number}" for number in range(3)} - {found[0].pod}
    assert set(vertical.running(cluster, namespace, corpus.LABEL, 2)) == left


def test_a_group_comes_in_whole(cluster: Cluster, namespace: str) -> None:
    """There would be room for one Pod of the second group."""
    name = opened(cluster, namespace, quota("cq-groups", {kueue.MEMORY: "12Gi"}))
    create(cluster, namespace, [queued(f"first-{number}", "first") for number in range(2)])
    names = vertical.running(cluster, namespace, corpus.LABEL, 2)
    create(cluster, namespace, [queued(f"second-{number}", "second") for number in range(2)])
    assert admitted(cluster, namespace, 1, of=2) == ["first"]
    until_counted(cluster, name, {kueue.MEMORY: "8Gi"})
    for pod in names:
        vertical.execute(cluster, namespace, pod, "touch", END)
    assert vertical.running(cluster, namespace, f"{corpus.LABEL},{GROUP}/pod-group-name=second", 2)


def test_percentages_of_unlike_cards_are_nothing_that_kueue_counts(cluster: Cluster, namespace: str) -> None:
    """It knows no claim with alternatives; where all cards have one size, a percentage is an amount."""
    opened(cluster, namespace, quota("cq-percent", {kueue.MEMORY: "80Gi"}))
    pod = queued("p-0")
    pod["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpumem-percentage": 10}}
    create(cluster, namespace, [pod])

    def said() -> list[str]:
        found = vertical.get(cluster, f"workloads.{GROUP}", "-n", namespace)["items"]
        return [each["message"] for each in (told(one, "QuotaReserved") for one in found) if each]

    (message,) = vertical.wait_until("Kueue's word on it", said)
    assert "FirstAvailable device selection is not supported" in message
    (found,) = vertical.get(cluster, "pods", "-n", namespace)["items"]
    assert {"name": f"{GROUP}/admission"} in found["spec"]["schedulingGates"]
