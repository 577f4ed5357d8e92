"""A kind cluster with fake cards on its worker, for as long as a `with` block lasts.

    with Kind(version="1.37") as cluster:
        cluster.install_chart()
        cluster.kubectl("get", "nodes")

For people who have docker, kind, kubectl and helm. kind-configs/ says what the cluster is; the mounts of the
fake driver are added here. Everything of it lies in .cluster/kind/ (its kubeconfig too, so that the person's
own isn't touched), and goes with the cluster when the block ends. A process that is killed leaves the
cluster; the next one says how to end it. Node 0 is the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.cluster import chart, configuration, images, machine, namespaces
from tests.cluster.configuration import FAKE_DRIVER, Machine
from tests.cluster.errors import ClusterError, CommandError, MissingError, StartError
from tests.cluster.node import DRIVER_ROOT
from tests.cluster.oci import write_archive
from tests.cluster.progress import say, step
from tests.cluster.waiting import wait_for
from tests.fakegpu.driver_root import INVENTORIES, DriverRootError, install
from tests.fakegpu.inventory import InventoryError

ROOT = Path(__file__).resolve().parents[2]
CONFIGURATIONS = ROOT / "kind-configs"
FOLDER = ROOT / ".cluster" / "kind"
NAME = "tessera"
CONTROL_PLANE, WORKER = f"{NAME}-control-plane", f"{NAME}-worker"
END = f"kind delete cluster --name {NAME}"
RUNNING = f"a kind cluster {NAME} is there already; end it with {END}"
PROGRAMS = ("docker", "kind", "kubectl", "helm")
CARDS_LABEL = {"nvidia.com/gpu.present": "true"}  # of the worker, in kind-configs/
BASE_SPEC = "/etc/containerd/cri-base.json"  # kind's own, of every container on a node
CREATE = 900.0  # seconds; the node image may have to be pulled


def committed(version: str) -> Path:
    """The configuration of a Kubernetes minor ("1.37", "v1.37.2"). MissingError where there is none."""
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    path = CONFIGURATIONS / f"{minor}.yaml"
    if not path.exists():
        known = ", ".join(sorted(found.stem for found in CONFIGURATIONS.glob("*.yaml")))
        raise MissingError(f"Kubernetes {version}: kind-configs has {known}")
    return path


def complete(document: Mapping[str, Any], folder: Path, able: Machine) -> dict[str, Any]:
    """A committed configuration with the fake driver's directories on the workers, which lie in `folder`, and
    with the concessions that this machine needs.
    """
    mounts = [
        {"hostPath": str(folder / "driver"), "containerPath": DRIVER_ROOT},
        {"hostPath": str(folder / "state"), "containerPath": FAKE_DRIVER},
    ]
    nodes = [
        {**node, "extraMounts": [*node.get("extraMounts", []), *mounts]} if node["role"] == "worker" else node
        for node in document["nodes"]
    ]
    containerd = list(document.get("containerdConfigPatches", []))
    kubeadm = list(document.get("kubeadmConfigPatches", []))
    if fields := configuration.kubelet_concessions(able):
        kubeadm.append(_patch("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration", fields))
    if not able.sys_resource:
        kubeadm.append(
            _patch("kubeproxy.config.k8s.io/v1alpha1", "KubeProxyConfiguration", {"oomScoreAdj": 0})
        )
        containerd.append('[plugins."io.containerd.grpc.v1.cri"]\n  restrict_oom_score_adj = true\n')
    return {
        **document,
        "nodes": nodes,
        "containerdConfigPatches": containerd,
        "kubeadmConfigPatches": kubeadm,
    }


def _patch(api_version: str, kind: str, fields: Mapping[str, Any]) -> str:
    return json.dumps({"apiVersion": api_version, "kind": kind, **fields})


def require() -> None:
    """Raises MissingError, in one line, where this machine can't run the cluster."""
    if os.geteuid() != 0:
        raise MissingError("the kind cluster's fake cards need root: device nodes, images")
    if lacking := [program for program in PROGRAMS if shutil.which(program) is None]:
        raise MissingError(f"please install {', '.join(lacking)}: make kind-demo needs {', '.join(PROGRAMS)}")
    answer = _run("docker", "version", "--format", "{{.Server.Version}}", check=False)
    if answer.returncode != 0:
        reason = (answer.stderr.strip() or answer.stdout.strip()).splitlines()[-1:]
        raise MissingError(f"docker is not running: {' '.join(reason)}")


def _run(
    *command: str, input: str | None = None, check: bool = True, timeout: float = 240.0
) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"KUBECONFIG": str(FOLDER / "kubeconfig")}
    return namespaces.run(list(command), text=input, check=check, timeout=timeout, environment=environment)


class Kind:
    """See the module. `node_image` instead of the configuration's; `keep` leaves the cluster running."""

    def __init__(self, version: str = "1.37", *, node_image: str | None = None, keep: bool = False) -> None:
        self.configuration = committed(version)
        self.node_image, self.keep = node_image, keep

    # --- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.show()
        if not self.keep or not (error is None or isinstance(error, Exception)):
            self.stop()

    def start(self) -> None:
        """Makes what is missing, then the cluster. Leaves nothing behind where it fails."""
        require()
        if NAME in _run("kind", "get", "clusters").stdout.split():
            raise ClusterError(RUNNING)
        loaded = [images.tessera(), images.cuda_test()]
        shutil.rmtree(FOLDER, ignore_errors=True)
        try:
            self._lay_out_driver()
            self._create()
            self._show_driver_to_containers()
            with step("loading the images"):
                archive = FOLDER / "images.tar"
                with archive.open("wb") as stream:
                    write_archive(loaded, stream)
                _run(
                    *("kind", "load", "image-archive", str(archive), "--name", NAME, "--nodes", WORKER),
                    timeout=300.0,
                )
                archive.unlink()
            self.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=180s")
        except BaseException as error:
            if isinstance(error, CommandError):
                self.show()
            self.stop()
            raise

    def stop(self) -> None:
        """Deletes the cluster and its directory."""
        with contextlib.suppress(ClusterError):
            _run("kind", "delete", "cluster", "--name", NAME)
        shutil.rmtree(FOLDER, ignore_errors=True)

    def _lay_out_driver(self) -> None:
        root = FOLDER / "driver"
        try:
            install(root, FOLDER / "state", INVENTORIES / "two-cards.ini")
        except (DriverRootError, InventoryError, OSError) as error:
            raise StartError(f"the fake driver can't be laid out: {error}") from error
        if os.statvfs(root).f_flag & os.ST_NODEV:
            raise MissingError(f"{ROOT} is on a file system without devices (nodev), which fake cards need")

    def _create(self) -> None:
        document = complete(yaml.safe_load(self.configuration.read_text()), FOLDER, machine.probe())
        file = FOLDER / "kind.json"
        file.write_text(json.dumps(document, indent=2) + "\n")
        command = ["kind", "create", "cluster", "--name", NAME, "--config", str(file), "--wait", "120s"]
        command += ["--image", self.node_image] if self.node_image else []
        with step("creating the kind cluster (the first time its image is pulled)"):
            _run(*command, timeout=CREATE)

    def _show_driver_to_containers(self) -> None:
        """Every container of the worker gets the fake driver's state: it stands for the kernel."""
        spec = configuration.base_runtime_spec(self.on_node(0, "cat", BASE_SPEC))
        _run("docker", "exec", "-i", WORKER, "tee", BASE_SPEC, input=spec)
        self.on_node(0, "systemctl", "restart", "containerd")
        answers = ("docker", "exec", WORKER, "ctr", "version")
        wait_for(lambda: _run(*answers, check=False).returncode == 0, f"containerd on {WORKER}", 120.0, 0.2)

    # --- what the demo uses

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True, timeout: float = 240.0
    ) -> str:
        """Runs kubectl as administrator, returns its stdout; CommandError where it fails and `check` is
        set.
        """
        return _run("kubectl", *arguments, input=input, check=check, timeout=timeout).stdout

    def on_node(self, index: int, *command: str, check: bool = True) -> str:
        """Runs a command in a node, returns its stdout."""
        node = (WORKER, CONTROL_PLANE)[index]
        return _run("docker", "exec", node, *command, check=check).stdout

    def install_chart(self, values: Mapping[str, Any] | None = None, *, timeout: str = "240s") -> None:
        """helm upgrade --install of charts/tessera from this working tree's image, waits until it is
        ready.
        """
        here = chart.merge(chart.values(DRIVER_ROOT), {"driver": {"nodeSelector": CARDS_LABEL}})
        _run(
            *("helm", *chart.upgrade(timeout)),
            input=json.dumps(chart.merge(here, values or {})),
            timeout=300.0,
        )

    def show(self) -> None:
        """What a person needs to see after a failure, to stderr; nothing where there is no API server yet."""
        if not (FOLDER / "kubeconfig").exists():
            return
        for query in (["pods,resourceclaims", "-A", "-o", "wide"], ["events", "-A"]):
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                done = _run("kubectl", "get", *query, check=False, timeout=30.0)
                print(f"--- kubectl get {' '.join(query)}\n{done.stdout}{done.stderr}", file=sys.stderr)
        if self.keep:
            say(f"more logs: kind export logs --name {NAME}")
