"""The library in the driver's place, on a real Kubernetes: no road leads past it, and it fails closed."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.vertical import MEBIBYTE
from tests.cluster.waiting import look_again
from tests.integration.interposer.conftest import SOURCE, compiled
from tests.integration.interposer.test_limits import LOOSE
from tests.integration.interposer.test_shim import ROADS

pytestmark = pytest.mark.cluster

NAMESPACE = "shim"
LIMIT = 3000 * MEBIBYTE
OUT_OF_MEMORY = 2
PROGRAM = "/tmp/roads"
PATHS = ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", "/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so")
PODS = ("shim", "preload")
BESIDE = {"first": True, "last": True, "without": False}  # containers, and whether they have the share


@pytest.fixture(scope="module")
def cluster(installed_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With both Pods, and in each the program that comes to the driver by any road."""
    program = compiled(SOURCE, tmp_path_factory.mktemp("programs"))
    encoded = base64.b64encode(program.read_bytes()).decode()
    vertical.apply(installed_cluster, NAMESPACE, "shim.yaml")
    vertical.running(installed_cluster, NAMESPACE, "app=shim", len(PODS))
    vertical.apply(installed_cluster, NAMESPACE, "shim-beside.yaml")
    vertical.running(installed_cluster, NAMESPACE, "app=beside", 1)
    for where in (*((pod,) for pod in PODS), *(("beside", "-c", container) for container in BESIDE)):
        put = ("--", "sh", "-c", f"base64 -d > {PROGRAM} && chmod 755 {PROGRAM}")
        installed_cluster.kubectl("exec", "-i", "-n", NAMESPACE, *where, *put, input=encoded)
    yield installed_cluster
    vertical.delete(installed_cluster, NAMESPACE)


def roads(cluster: Cluster, where: str, *words: str, **environment: str) -> Any:
    """What the program says, in an environment that has nothing else: no LD_PRELOAD either.

    `where`: a Pod, or one of its containers as POD/CONTAINER.
    """
    pod, _, container = where.partition("/")
    variables = [f"{name}={value}" for name, value in environment.items()]
    command = ("--", "env", "-i", *variables, PROGRAM, *words)
    chosen = ("-c", container) if container else ()
    return json.loads(cluster.kubectl("exec", "-n", NAMESPACE, pod, *chosen, *command))


@pytest.mark.parametrize("road", ROADS)
def test_limit_is_exact_by_every_road(cluster: Cluster, road: str) -> None:
    found = roads(cluster, "shim", road, "edge", "plain", ROADS_CUDA=PATHS[0])
    assert found == {"held": LIMIT, "code": OUT_OF_MEMORY, "free": 0, "total": LIMIT, "free_after": LIMIT}


@pytest.mark.parametrize("path", PATHS[1:])
def test_limit_holds_under_every_name(cluster: Cluster, path: str) -> None:
    assert roads(cluster, "shim", "path", "edge", "plain", ROADS_CUDA=path)["held"] == LIMIT


@pytest.mark.parametrize("road", ["libc", "walk"])
def test_these_roads_lead_past_a_preloaded_library(cluster: Cluster, road: str) -> None:
    """Which is why there is the other; and the tests above show nothing if this one fails."""
    (device,) = roads(cluster, "preload", road, "info")
    assert device["total"] in {card.memory * MEBIBYTE for card in vertical.cards(cluster)}
    assert roads(cluster, "preload", "link", "edge", "plain")["held"] == LIMIT


@pytest.mark.parametrize("container", ["first", "last"])
@pytest.mark.parametrize("road", ["libc", "walk", "path"])
def test_limit_is_exact_whatever_other_claims_a_container_has(
    cluster: Cluster, container: str, road: str
) -> None:
    """And in whatever order its Pod names them. The card with both shares shows their sum."""
    names = {card.device: card for card in vertical.cards(cluster)}
    claimed = [share for share in vertical.shares(cluster, NAMESPACE) if share.pod == "beside"]
    whole = max(claimed, key=lambda share: share.memory)
    (shared,) = {share.device for share in claimed if share is not whole}
    where = f"beside/{container}"
    found = roads(
        cluster,
        where,
        road,
        "edge",
        "plain",
        ROADS_CUDA=PATHS[0],
        CUDA_VISIBLE_DEVICES=names[shared].uuid,
    )
    assert (found["held"], found["code"], found["total"]) == (2 * LIMIT, OUT_OF_MEMORY, 2 * LIMIT)
    totals = [device["total"] for device in roads(cluster, where, road, "info", ROADS_CUDA=PATHS[0])]
    assert sorted(totals) == [2 * LIMIT, whole.memory * MEBIBYTE]


def test_a_container_without_the_share_has_no_shim(cluster: Cluster) -> None:
    """In the same Pod. So the test above shows nothing if this one fails."""
    for container, has_share in BESIDE.items():
        look = ("-c", container, "--", "grep", "-c", "tessera_shim", PATHS[0])
        found = cluster.kubectl("exec", "-n", NAMESPACE, "beside", *look, check=False).strip()
        assert (found != "0") is has_share, container


@pytest.mark.parametrize("pod", PODS)
def test_container_sees_its_share(cluster: Cluster, pod: str) -> None:
    query = ("nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits")
    assert vertical.execute(cluster, NAMESPACE, pod, *query).strip() == "3000, 0"


def test_compute_is_held(cluster: Cluster) -> None:
    (burn,) = look_again(
        lambda: vertical.burn_together(cluster, NAMESPACE, ["shim"], seconds=6),
        lambda found: found[0].share_percent >= 24,
    )
    assert burn.share_percent == pytest.approx(30, rel=0.2)


@pytest.mark.parametrize("pod", PODS)
def test_no_variable_loosens(cluster: Cluster, pod: str) -> None:
    """All of them at once; tests/integration/interposer has each by itself."""
    assert roads(cluster, pod, "gpa2", "edge", "plain", **LOOSE)["held"] == LIMIT


def limits_file(cluster: Cluster, pod: str) -> str:
    """On the node."""
    claim = next(share.claim for share in vertical.shares(cluster, NAMESPACE) if share.pod == pod)
    uid = vertical.get(cluster, "resourceclaim", claim, "-n", NAMESPACE)["metadata"]["uid"]
    return cluster.on_node(0, "sh", "-c", f"ls /run/tessera/claims/{uid}/*/limits").strip()


def refusal(cluster: Cluster, pod: str, *before: str) -> str:
    """What the program says where CUDA can't be started."""
    with pytest.raises(CommandError) as refused:
        vertical.execute(cluster, NAMESPACE, pod, *before, PROGRAM, "link", "info")
    return str(refused.value)


AS_USER = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all")


@pytest.mark.parametrize("pod", PODS)
def test_limits_that_cant_be_read_keep_cuda_from_starting(cluster: Cluster, pod: str) -> None:
    path = limits_file(cluster, pod)
    try:
        cluster.on_node(0, "chmod", "000", path)
        said = refusal(cluster, pod, *AS_USER)
    finally:
        cluster.on_node(0, "chmod", "444", path)
    assert "limits: Permission denied" in said
    assert "cuInit: 802" in said
    (device,) = json.loads(vertical.execute(cluster, NAMESPACE, pod, *AS_USER, PROGRAM, "link", "info"))
    assert device["total"] == LIMIT


@pytest.mark.parametrize("pod", PODS)
def test_damaged_limits_keep_cuda_from_starting(cluster: Cluster, pod: str) -> None:
    """The same file, as the container has it mounted; and back before the agent looks."""
    path = shlex.quote(limits_file(cluster, pod))
    kept = f"/run/{pod}-limits"
    try:
        cluster.on_node(
            0, "sh", "-c", f"cp {path} {kept} && head -c 64 /dev/zero | dd of={path} conv=notrunc"
        )
        said = refusal(cluster, pod)
    finally:
        cluster.on_node(0, "sh", "-c", f"dd if={kept} of={path} conv=notrunc && rm {kept}")
    assert "limits: not a limits file that this library understands" in said
    assert "cuInit: 802" in said


def send(cluster: Cluster, number: str, *pod: str) -> int:
    """A signal to a container's first process; how often the container was restarted before."""
    (status,) = vertical.get(cluster, "pods", *pod)["items"][0]["status"]["containerStatuses"]
    identity = status["containerID"].removeprefix("containerd://")
    cluster.node().run("ctr", "tasks", "kill", "--signal", number, identity)
    return int(status["restartCount"])


def test_a_container_without_its_limits_is_not_started(cluster: Cluster) -> None:
    """The file is gone, and its container ends, while nobody looks: it waits until the agent is back."""
    pod = ("-n", NAMESPACE, "--field-selector", "metadata.name=shim")
    agent = ("-n", vertical.SYSTEM_NAMESPACE, "-l", "app.kubernetes.io/name=tessera-driver")
    path = limits_file(cluster, "shim")
    send(cluster, "SIGSTOP", *agent)
    try:
        cluster.on_node(0, "rm", path)
        before = send(cluster, "SIGKILL", *pod)

        def is_refused() -> bool:
            events = vertical.get(cluster, "events", "-n", NAMESPACE)["items"]
            of_pod = [event for event in events if event["involvedObject"]["name"] == "shim"]
            return any(path in event["message"] and "no such file" in event["message"] for event in of_pod)

        vertical.wait_until("the runtime to say what is missing", is_refused)
        status = vertical.get(cluster, "pods", *pod)["items"][0]["status"]["containerStatuses"][0]
        assert "running" not in status["state"]
    finally:
        send(cluster, "SIGCONT", *agent)

    def runs() -> bool:
        (status,) = vertical.get(cluster, "pods", *pod)["items"][0]["status"]["containerStatuses"]
        return "running" in status["state"] and status["restartCount"] > before

    vertical.wait_until("the container, with its limits", runs, timeout=240)
    assert vertical.allocate(cluster, NAMESPACE, "shim").held == LIMIT
