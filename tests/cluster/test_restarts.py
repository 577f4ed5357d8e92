"""Parts that end and come back: nothing is lost, and what was begun can be finished."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.vertical import MEBIBYTE, SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

NAMESPACE = "restarts"


@pytest.fixture
def native(installed_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster with the native Pod running; afterwards nothing of it may be left."""
    vertical.apply(installed_cluster, NAMESPACE, "native.yaml")
    vertical.running(installed_cluster, NAMESPACE, "app=native", 1)
    yield installed_cluster
    vertical.delete(installed_cluster, NAMESPACE)


def again(cluster: Cluster) -> None:
    """Deletes the Pod and starts it anew: unprepare and prepare both work."""
    cluster.kubectl("delete", "pod", "native", "-n", NAMESPACE, "--wait=true", "--timeout=180s")
    vertical.apply(cluster, NAMESPACE, "native.yaml")
    vertical.running(cluster, NAMESPACE, "app=native", 1)
    assert vertical.allocate(cluster, NAMESPACE, "native").held == 8192 * MEBIBYTE


def slices(cluster: Cluster) -> set[str]:
    """The UIDs of all ResourceSlices."""
    return {item["metadata"]["uid"] for item in vertical.get(cluster, "resourceslices")["items"]}


def test_kubelet(native: Cluster) -> None:
    """A starting kubelet deletes the node's slices and knows no plugin; both come back by themselves."""
    before = slices(native)
    native.node().restart("kubelet")
    native.node().wait_for_kubelet()
    vertical.wait_until("a new ResourceSlice", lambda: slices(native) - before)
    echo = (native, NAMESPACE, "native", "echo", "here")
    vertical.wait_until("the kubelet to know its Pods", lambda: vertical.execute(*echo, check=False))
    assert vertical.allocate(native, NAMESPACE, "native").held == 8192 * MEBIBYTE
    again(native)


def test_agent_killed(native: Cluster) -> None:
    """The ledger outlives the agent: the claim that it prepared before is unprepared by the next."""
    pod = vertical.get(native, "pods", "-n", SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=tessera-driver")
    name = pod["items"][0]["metadata"]["name"]
    native.kubectl("delete", "pod", name, "-n", SYSTEM_NAMESPACE, "--grace-period=0", "--force")
    assert vertical.allocate(native, NAMESPACE, "native").held == 8192 * MEBIBYTE
    again(native)


def test_lost_cdi_documents(native: Cluster) -> None:
    """Somebody empties the CDI directory: running containers go on, new ones get a document of their own."""
    native.on_node(0, "sh", "-c", "rm -f /var/run/cdi/*")
    assert vertical.allocate(native, NAMESPACE, "native").held == 8192 * MEBIBYTE
    again(native)


def test_node_boots(native: Cluster) -> None:
    """All containers end at once, /run is empty, the ledger is of another boot: the claim is made anew."""
    node = native.node()
    (uid,) = vertical.claim_uids(native, NAMESPACE)
    node.stop("kubelet")
    for task in node.run("ctr", "tasks", "list", "-q").stdout.split():
        node.run("ctr", "tasks", "kill", "--all", "--signal", "SIGKILL", task, check=False)
    tasks = ("ctr", "tasks", "list")
    vertical.wait_until("all containers to end", lambda: "RUNNING" not in node.run(*tasks).stdout)
    native.on_node(0, "sh", "-c", "rm -rf /run/tessera/* /var/run/cdi/*")
    node.path("/var/lib/tessera/boot_id").write_text("the boot before\n")
    node.path(f"/var/lib/tessera/ledger/{uid}.json").write_text("")  # torn by the power cut
    node.path("/var/lib/tessera/ledger/left-over.json").write_text("")
    node.start("kubelet")
    node.wait_for_kubelet()
    echo = (native, NAMESPACE, "native", "echo", "here")
    vertical.wait_until("the Pod's next container", lambda: vertical.execute(*echo, check=False))
    assert vertical.allocate(native, NAMESPACE, "native").held == 8192 * MEBIBYTE
    ledger = ("ls", "-A", "/var/lib/tessera/ledger")
    vertical.wait_until(
        "the claim's entry alone to be left", lambda: native.on_node(0, *ledger).split() == [f"{uid}.json"]
    )
    again(native)


def test_mutator_restarted(native: Cluster) -> None:
    """The certificate outlives the Pod that made it, and templates that are there are found again."""
    mutator = ("deployment/tessera-mutator", "-n", SYSTEM_NAMESPACE)
    native.kubectl("rollout", "restart", *mutator)
    native.kubectl("rollout", "status", *mutator, "--timeout=180s")
    vertical.apply(native, NAMESPACE, "legacy.yaml")
    vertical.running(native, NAMESPACE, "app=legacy", 3)
    assert len(vertical.get(native, "resourceclaimtemplates", "-n", NAMESPACE)["items"]) == 2
