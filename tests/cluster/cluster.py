"""A real Kubernetes on this machine, for as long as a `with` block lasts.

    with Cluster(version="1.37", nodes=2) as cluster:
        cluster.install_chart()
        cluster.kubectl("apply", "-f", "-", input=manifest)

Invariants: everything of it lives in namespaces of its own and under two directories (see runs.py); when the
block ends, or this process dies in any way, all of it goes, and only the logs stay. With project=True the
nodes have fake cards and the project's images; with project=False they are plain nodes.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from tests.cluster import (
    binaries,
    chart,
    images,
    namespaces,
    network,
    runs,
    scripts,
    supervisor,
)
from tests.cluster.api import Api
from tests.cluster.arrival import Arrival
from tests.cluster.chart import CHART
from tests.cluster.configuration import Settings
from tests.cluster.errors import ClusterError, CommandError, StartError, WaitError
from tests.cluster.node import DRIVER_ROOT, Node
from tests.cluster.progress import duration, say
from tests.cluster.runs import Run
from tests.cluster.waiting import wait_for

__all__ = ["CHART", "Cluster", "ClusterError", "CommandError", "StartError", "WaitError"]

T = TypeVar("T")

ROOT = Path(__file__).resolve().parents[2]
RUNNING = "a cluster is running already; end it with make cluster-down"
INVENTORIES = ROOT / "tests" / "fakegpu" / "inventories"
CREATED = ".metadata.creationTimestamp"


class Cluster:
    """See the module. Arguments beyond `version` and `nodes`:

    feature_gates, runtime_config: for every component that takes them.
    arguments: more flags by component, {"kube-scheduler": ["--kube-api-qps=500"]}.
    kubelet: fields of KubeletConfiguration.
    inventories: the fake cards of each node, files of tests/fakegpu/inventories or paths; the last one
    repeats. project: whether the nodes get fake cards and the project's images.
    """

    def __init__(
        self,
        version: str = binaries.DEFAULT_VERSION,
        nodes: int = 1,
        *,
        feature_gates: Mapping[str, bool] | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        arguments: Mapping[str, Sequence[str]] | None = None,
        kubelet: Mapping[str, Any] | None = None,
        inventories: Sequence[str | Path] = ("two-cards.ini", "four-cards.ini"),
        project: bool = True,
        keep: bool = False,
    ) -> None:
        if not 1 <= nodes <= network.MAX_NODES:
            raise ValueError(f"nodes: {nodes} (1 to {network.MAX_NODES})")
        more = {component: tuple(flags) for component, flags in (arguments or {}).items()}
        self.settings = Settings(feature_gates or {}, runtime_config or {}, more, kubelet or {})
        self.wanted, self.count, self.project, self.keep = version, nodes, project, keep
        self.inventories = [INVENTORIES / inventory for inventory in inventories]
        self.nodes: list[Node] = []
        self._ended = False

    # --- life

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self.show_logs()
        if self.keep and not self._ended and (error is None or isinstance(error, Exception)):
            self.detach()
        self.stop()

    def start(self) -> None:
        """Builds what is missing, then brings everything up. Leaves nothing behind where it fails."""
        if self.keep and runs.current() is not None:
            raise ClusterError(RUNNING)
        self.binaries = binaries.obtain(self.wanted)
        loaded = [*images.plain(), *(images.project() if self.project else [])]
        started = time.monotonic()
        runs.sweep()
        self.run = Run.create()
        self._supervisor, self._guard = runs.start_supervisor(self.run)
        inventories = self.inventories if self.project else []
        try:
            settings = self.settings.on(self.binaries.minor)
            arrival = Arrival(self.run, self.binaries, settings, self.count, inventories)
            self.nodes, self.credentials = arrival.nodes, arrival.credentials
            arrival.bring_up(loaded)
        except BaseException as error:
            if isinstance(error, WaitError):  # the others say what they know
                self.show_logs()
            with contextlib.suppress(ClusterError):
                self.stop()
            raise
        took = duration(time.monotonic() - started)
        say(f"Kubernetes {self.binaries.kubernetes}, {arrival.nodes_in_words} Ready after {took}")

    def stop(self) -> None:
        """Ends the cluster and waits until nothing is left. Safe to call twice."""
        if self._ended or not hasattr(self, "_supervisor"):
            return
        self._ended = True
        runs.end(self.run, self._guard)
        self._supervisor.wait()

    def detach(self) -> None:
        """Leaves the cluster running when this process ends, and writes scripts to look around (scripts.py).

        `python -m tests.cluster down` ends it.
        """
        if runs.current() is not None:
            raise ClusterError(RUNNING)
        scripts.write(self.run, self.nodes, self.environment())
        (self.run.work / supervisor.DETACHED).touch()
        self._ended = True
        self._supervisor.returncode = 0  # nobody waits for it any more

    # --- what tests use

    def node(self, index: int = 0) -> Node:
        return self.nodes[index]

    @property
    def version(self) -> str:
        """Exact: "1.37.2"."""
        return self.binaries.kubernetes

    @property
    def kubeconfig(self) -> Path:
        """The administrator's; its server can be reached inside `network()` and in commands of nodes only."""
        return self.credentials.file("admin.conf")

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    @property
    def logs(self) -> Path:
        return self.run.logs

    @property
    def api(self) -> Api:
        return Api(self.nodes[0].namespaces, self.credentials)

    def kubectl(
        self, *arguments: str, input: str | None = None, check: bool = True, timeout: float = 240.0
    ) -> str:
        """Runs kubectl as administrator, returns its stdout; CommandError where it fails and `check` is
        set.
        """
        return self.program("kubectl", *arguments, input=input, check=check, timeout=timeout).stdout

    def helm(
        self, *arguments: str, input: str | None = None, check: bool = True, timeout: float = 300.0
    ) -> str:
        return self.program("helm", *arguments, input=input, check=check, timeout=timeout).stdout

    def program(
        self,
        name: str,
        *arguments: str,
        input: str | None = None,
        check: bool = True,
        timeout: float = 240.0,
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of the binaries on this machine's files, in the first node's network."""
        command = self.nodes[0].namespaces.network_command(str(self.binaries[name]), *arguments)
        return namespaces.run(
            command, text=input, check=check, timeout=timeout, environment=self.environment()
        )

    def environment(self) -> dict[str, str]:
        """For kubectl and helm: nothing is read from, or written to, the person's own directories."""
        home = self.run.work / "home"
        variables = {
            "KUBECONFIG": str(self.kubeconfig),
            "KUBECACHEDIR": str(home / "kube"),
            "HOME": str(home),
        }
        variables |= {
            f"HELM_{kind}_HOME": str(home / f"helm-{kind.lower()}") for kind in ("CACHE", "CONFIG", "DATA")
        }
        return os.environ | variables

    @contextlib.contextmanager
    def network(self, index: int = 0) -> Iterator[None]:
        """The calling thread's new sockets are in a node's network meanwhile, so the API server can be
        reached.
        """
        with self.nodes[index].namespaces.network():
            yield

    def on_node(self, index: int, *command: str, check: bool = True) -> str:
        """Runs a command in a node's namespaces, returns its stdout."""
        return self.nodes[index].run(*command, check=check).stdout

    def install_chart(self, values: Mapping[str, Any] | None = None, *, timeout: str = "240s") -> None:
        """helm upgrade --install of charts/tessera from this working tree's image, waits until it is
        ready.
        """
        merged = chart.merge(chart.values(DRIVER_ROOT), values or {})
        self.helm(*chart.upgrade(timeout), input=json.dumps(merged))
        self.wait_for_webhook()

    def wait_for_webhook(self) -> None:
        """Until the API server reaches it: new endpoints are ready before the node's rules lead to them."""
        pod = json.dumps(chart.GPU_POD)
        command = ("kubectl", "create", "--dry-run=server", "-f", "-")

        def answers() -> bool:
            return "failed calling webhook" not in self.program(*command, input=pod, check=False).stderr

        self.wait(answers, "the webhook's answer")

    def wait(self, look: Callable[[], T], what: str, timeout: float = 180.0, interval: float = 0.2) -> T:
        """Calls `look` until its answer is true in Python's sense, returns that; WaitError names `what`."""
        return wait_for(look, what, timeout, interval, self.check)

    def check(self) -> None:
        """Raises StartError where a component of any node has ended by itself."""
        for node in self.nodes:
            node.check()

    def show_logs(self) -> None:
        """`describe`, to stderr."""
        print(self.describe(), file=sys.stderr)
        say(f"all logs: {self.logs}")

    def describe(self, lines: int = 15) -> str:
        """The ends of all logs, those of our own Pods too, and what the API server knows: what a person needs
        to see after a failure.
        """
        parts = [node.tail(path, lines) for node in self.nodes for path in node.log_files(chart.NAMESPACE)]
        for query in (["pods,resourceclaims", "-o", "wide"], ["events", f"--sort-by={CREATED}"]):
            with contextlib.suppress(ClusterError, OSError, IndexError, subprocess.TimeoutExpired):
                done = self.program("kubectl", "get", "-A", *query, check=False, timeout=30.0)
                said = (done.stdout + done.stderr).splitlines()
                parts.append("\n".join([f"--- kubectl get -A {' '.join(query)}", *said[:1], *said[1:][-60:]]))
        return "\n".join(parts)
