"""The harness itself: real nodes that work, and nothing left of them however they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster import runs, supervisor
from tests.cluster.cluster import Cluster, ClusterError, CommandError, StartError, WaitError
from tests.cluster.conftest import VERSIONS
from tests.cluster.footprint import Footprint, Host
from tests.cluster.runs import Process

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
GONE = 120.0  # seconds after which nothing may be left of a harness that was killed

WEB = """
apiVersion: v1
kind: Pod
metadata: {name: %(name)s, labels: {app: web}}
spec:
  nodeName: %(node)s
  terminationGracePeriodSeconds: 0
  containers:
  - name: web
    image: localhost/busybox:1
    imagePullPolicy: Never
    command: [sh, -c, "mkdir /www; hostname | tee /www/index.html; exec httpd -f -p 8080 -h /www"]
    readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
    securityContext: {seccompProfile: {type: RuntimeDefault}}
    resources: {limits: {memory: 32Mi, cpu: 500m}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
"""

HARNESS = """
import sys, time
from tests.cluster.cluster import Cluster
with Cluster(sys.argv[1], project=False, nodes=2) as cluster:
    cluster.kubectl("apply", "-f", "-", input=sys.stdin.read())
    cluster.kubectl("wait", "--for=condition=Ready", "pod/doomed", "--timeout=180s")
    print(cluster.run.directory, flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(VERSIONS[0], nodes=2, project=False) as cluster:
        for node in cluster.nodes:
            manifest = WEB % {"name": f"web-{node.index}", "node": node.name}
            cluster.kubectl("apply", "-f", "-", input=manifest)
        cluster.kubectl("wait", "--for=condition=Ready", "pod", "-l", "app=web", "--timeout=180s")
        yield cluster


def gone(footprint: Footprint, within: float = GONE) -> list[str]:
    """What is left of the cluster after `within` seconds at most."""
    end = time.monotonic() + within
    while (left := footprint.left()) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def fetch(cluster: Cluster, pod: str, address: str, port: int) -> str:
    request = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {address} {port} | tail -n 1"
    return cluster.kubectl("exec", pod, "--", "sh", "-c", request).strip()


# --- what works on it


def test_both_nodes_are_ready(cluster: Cluster) -> None:
    nodes = json.loads(cluster.kubectl("get", "nodes", "-o", "json"))["items"]
    reported = {
        node["metadata"]["name"]: (
            node["status"]["nodeInfo"]["kubeletVersion"],
            [entry["status"] for entry in node["status"]["conditions"] if entry["type"] == "Ready"],
        )
        for node in nodes
    }
    assert reported == {name: (f"v{cluster.version}", ["True"]) for name in ("node-0", "node-1")}


def test_logs_and_exec(cluster: Cluster) -> None:
    assert cluster.kubectl("logs", "web-1").strip() == "web-1"
    assert cluster.kubectl("exec", "web-1", "--", "hostname").strip() == "web-1"


@pytest.mark.parametrize("client", ["web-0", "web-1"])
def test_pods_reach_each_other_across_nodes(cluster: Cluster, client: str) -> None:
    for server in ("web-0", "web-1"):
        address = cluster.kubectl("get", "pod", server, "-o", "jsonpath={.status.podIP}")
        assert fetch(cluster, client, address, 8080) == server


@pytest.mark.parametrize("client", ["web-0", "web-1"])
def test_service_balances_over_both_nodes(cluster: Cluster, client: str) -> None:
    address = cluster.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    seen = set()

    def both() -> bool:
        seen.add(fetch(cluster, client, address, 80))
        return seen >= {"web-0", "web-1"}

    cluster.wait(both, "an answer of either")


def test_containers_see_the_nodes_fake_driver_state(cluster: Cluster) -> None:
    cluster.on_node(1, "sh", "-c", "echo here > /run/fakegpu/mark")
    assert cluster.kubectl("exec", "web-1", "--", "cat", "/run/fakegpu/mark").strip() == "here"
    cluster.kubectl("exec", "web-1", "--", "sh", "-c", "echo back > /run/fakegpu/mark")
    assert cluster.on_node(1, "cat", "/run/fakegpu/mark").strip() == "back"
    assert not cluster.node(0).path("/run/fakegpu/mark").exists()


def test_nodes_share_nothing(cluster: Cluster) -> None:
    for command in (["hostname"], ["cat", "/etc/machine-id"], ["cat", "/proc/sys/kernel/random/boot_id"]):
        assert cluster.on_node(0, *command) != cluster.on_node(1, *command)
    cluster.on_node(0, "sh", "-c", "mkdir -p /var/run/cdi && echo x > /var/run/cdi/one.json")
    assert cluster.on_node(1, "ls", "/var/run/cdi") == ""
    assert not Path("/var/run/cdi/one.json").exists()


def test_component_restarts(cluster: Cluster) -> None:
    node = cluster.node(1)
    before = node.processes()["kubelet"].pid
    node.restart("kubelet", signal.SIGKILL)
    assert node.processes()["kubelet"].pid != before
    # Containers outlive both of them.
    node.restart("containerd")
    echo = ("exec", "web-1", "--", "echo", "here")
    cluster.wait(lambda: cluster.kubectl(*echo, check=False), "containerd")
    restarts = "jsonpath={.status.containerStatuses[0].restartCount}"
    assert cluster.kubectl("get", "pod", "web-1", "-o", restarts) == "0"


def test_component_that_ends_by_itself_is_named_with_its_log() -> None:
    with pytest.raises(StartError, match=r"(?s)kube-scheduler on node-0 ended with status 1.*unknown flag"):
        Cluster(VERSIONS[0], project=False, arguments={"kube-scheduler": ["--no-such-flag"]}).start()


def test_python_reaches_the_api_server_without_kubectl(cluster: Cluster) -> None:
    names = [node["metadata"]["name"] for node in cluster.api.get("/api/v1/nodes")["items"]]
    assert names == ["node-0", "node-1"]


def test_failed_command_says_what_the_server_said(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match='pods "nobody" not found') as raised:
        cluster.kubectl("get", "pod", "nobody")
    assert raised.value.status == 1
    assert cluster.kubectl("get", "pod", "nobody", check=False) == ""
    with pytest.raises(WaitError, match="waited 1 s for the moon"):
        cluster.wait(lambda: False, "the moon", timeout=1)


# --- what is left of it


def test_host_is_untouched_and_nothing_is_left() -> None:
    before = Host.look()
    with Cluster(VERSIONS[0], project=False) as cluster:
        manifest = WEB % {"name": "doomed", "node": "node-0"}
        cluster.kubectl("apply", "-f", "-", input=manifest)
        cluster.kubectl("wait", "--for=condition=Ready", "pod/doomed", "--timeout=180s")
        footprint = Footprint.of(cluster.run, cluster.supervisor_pid)
        assert len(footprint.processes) > 8
        assert len(footprint.left()) > 8  # it sees what is there
        assert Host.look() == before
    assert footprint.left() == []
    assert Host.look() == before
    assert (cluster.logs / "node-0" / "kubelet.log").stat().st_size > 0


def test_exception_in_the_block_shows_logs_and_ends_the_cluster(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), Cluster(VERSIONS[0], project=False) as cluster:
        footprint = Footprint.of(cluster.run, cluster.supervisor_pid)
        raise ZeroDivisionError
    assert footprint.left() == []
    said = capfd.readouterr().err
    for name in ("kubelet.log", "kube-apiserver.log", "containerd.log", "kubectl get -A events"):
        assert name in said


@pytest.fixture
def harness() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process with a cluster of two nodes and a Pod, and the directory of its run."""
    process = subprocess.Popen(
        [sys.executable, "-c", HARNESS, VERSIONS[0]],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(WEB % {"name": "doomed", "node": "node-1"})
        process.stdin.close()
        yield process, Path(process.stdout.readline().strip())
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def kill_harness(harness: subprocess.Popen[str], _: Process) -> None:
    harness.kill()


def kill_group(harness: subprocess.Popen[str], _: Process) -> None:
    harness.send_signal(signal.SIGINT)
    harness.kill()


def kill_supervisor(_: subprocess.Popen[str], guard: Process) -> None:
    os.kill(guard.pid, signal.SIGKILL)


def kill_supervisor_then_harness(harness: subprocess.Popen[str], guard: Process) -> None:
    os.kill(guard.pid, signal.SIGKILL)
    harness.kill()


@pytest.mark.parametrize("kill", [kill_harness, kill_group])
def test_killed_harness_leaves_nothing(
    harness: tuple[subprocess.Popen[str], Path], kill: Callable[[subprocess.Popen[str], Process], None]
) -> None:
    process, directory = harness
    run, guard = runs.load(directory)
    footprint = Footprint.of(run, guard.pid)
    assert len(footprint.processes) > 10
    kill(process, guard)
    assert gone(footprint) == []


@pytest.mark.parametrize("kill", [kill_supervisor, kill_supervisor_then_harness])
def test_killed_supervisor_leaves_what_the_next_start_removes(
    harness: tuple[subprocess.Popen[str], Path], kill: Callable[[subprocess.Popen[str], Process], None]
) -> None:
    """No process outlives the supervisor either; directories wait for the next run, or for `down`."""
    process, directory = harness
    run, guard = runs.load(directory)
    footprint = Footprint.of(run, guard.pid)
    kill(process, guard)
    end = time.monotonic() + GONE
    while any("process" in trace for trace in footprint.left()) and time.monotonic() < end:
        time.sleep(0.1)
    runs.sweep()
    assert gone(footprint) == []


def test_supervisor_refuses_names_that_are_not_its_own(tmp_path: Path) -> None:
    for work, name in ((tmp_path, "tessera-x"), (Path("/tmp/tessera-x"), "kubepods")):
        with pytest.raises(ValueError, match="not a cluster of ours"):
            supervisor.remove_traces(work, name)
    assert tmp_path.exists()


# --- the commands


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.cluster", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)


def test_up_and_down() -> None:
    if runs.current() is not None:
        pytest.skip("somebody's cluster is up (make cluster-down ends it)")
    before = Host.look()
    up = command("up", "--plain", "--nodes", "2")
    assert up.returncode == 0, up.stderr
    try:
        found = runs.current()
        assert found is not None
        footprint = Footprint.of(found[0], found[1].pid)
        kubectl, node = runs.FOLDER / "kubectl", runs.FOLDER / "node"
        assert "node-1" in subprocess.check_output([kubectl, "get", "nodes"], text=True)
        assert subprocess.check_output([node, "1", "hostname"], text=True).strip() == "node-1"
        assert subprocess.check_output([node, "hostname"], text=True).strip() == "node-0"
        again = command("up")
        assert (again.returncode, again.stderr.count("\n")) == (1, 1)
        assert "is running already" in again.stderr
        assert command("status").returncode == 0
    finally:
        down = command("down")
    assert down.returncode == 0, down.stderr
    assert footprint.left() == []
    assert Host.look() == before
    assert not kubectl.exists()
    assert command("status").returncode == 3
    assert command("down").returncode == 0


@pytest.mark.parametrize("version", ["1.34", "1.37.99", "latest"])
def test_unknown_version_is_refused_with_those_there_are(version: str) -> None:
    with pytest.raises(ClusterError, match=r"isn't pinned .* 1\.36\.3, 1\.37\.2"):
        Cluster(version, project=False).start()


def test_kubernetes_1_36() -> None:
    with Cluster("1.36", project=False) as cluster:
        assert cluster.version.startswith("1.36.")
        assert f"Server Version: v{cluster.version}" in cluster.kubectl("version")
