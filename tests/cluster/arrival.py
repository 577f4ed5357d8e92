"""How a cluster comes up: namespaces, nodes, control plane, images, kubelets, Ready; much of it at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.cluster import cache, cgroups, credentials, machine, network, supervisor
from tests.cluster.api import Api, ApiError
from tests.cluster.binaries import Binaries
from tests.cluster.configuration import Settings
from tests.cluster.control import Control
from tests.cluster.errors import StartError
from tests.cluster.namespaces import Namespaces
from tests.cluster.node import Node
from tests.cluster.oci import Image
from tests.cluster.runs import Run
from tests.cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
# Seconds that a step may take on a slow machine.
INIT = 60.0
API = 180.0
READY = 240.0


class Arrival:
    """`nodes` fills while `bring_up` runs, so that a failure can show the logs of what is there."""

    def __init__(
        self, run: Run, binaries: Binaries, settings: Settings, count: int, inventories: Sequence[Path]
    ) -> None:
        """`inventories`: the fake cards of each node, the last one repeats; none: nodes without cards."""
        self._run, self._binaries, self._settings = run, binaries, settings
        self._count, self._inventories = count, list(inventories)
        self._control = Control(run.work / supervisor.SOCKET)
        self.nodes: list[Node] = []
        self.credentials = credentials.issue(run.work / "pki", count)

    @property
    def nodes_in_words(self) -> str:
        return "1 node" if self._count == 1 else f"{self._count} nodes"

    def bring_up(self, images: list[Image]) -> None:
        """Returns when every node is Ready and has the images. Raises StartError, WaitError."""
        cluster = Namespaces(self._control.pid())
        network.make_switch(cluster)
        for index in range(self._count):
            self._start_node(index)
        for node in self.nodes:
            wait_for(self._init_answers(node), f"{node.name}'s init", INIT, 0.02)
            network.plug_in(cluster, node.namespaces, node.index)
        first = self.nodes[0]
        first.start_control_plane()
        for node in self.nodes:
            node.start_containerd()
        with ThreadPoolExecutor(max_workers=self._count) as pool:
            fillings = [pool.submit(self._fill, node, images) for node in self.nodes]
            self._wait_for_api(fillings)
            first.start_controllers()
            for node in self.nodes:
                node.wait_for_containerd()
                node.start_kubelet()
            for filling in fillings:
                filling.result()
        wait_for(self._all_ready, f"{self.nodes_in_words} Ready", READY, 0.1, self._check)

    def _start_node(self, index: int) -> None:
        name, run = credentials.node_name(index), self._run
        programs = {path.parent for path in self._binaries.programs.values()}
        node = Node(
            index=index,
            cgroup=run.cgroup,
            work=run.work,
            logs=run.logs / name,
            binaries=self._binaries,
            credentials=self.credentials,
            machine=machine.probe(),
            settings=self._settings,
            keep=[ROOT, cache.root(), run.work, *programs],
        )
        (node.work / name).mkdir()
        cgroups.create(f"{run.cgroup}/{name}")
        environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}
        command, log = node.init_command(), run.logs / f"{name}.log"
        self._control.start(name, command, log=log, directory=ROOT, environment=environment)
        self.nodes.append(node)

    def _init_answers(self, node: Node) -> Callable[[], bool]:
        log = self._run.logs / f"{node.name}.log"

        def look() -> bool:
            if self._control.processes()[node.name].status is not None:
                raise StartError(f"{node.name}'s init ended:\n{log.read_text()}")
            return node.socket.exists()

        return look

    def _fill(self, node: Node, images: list[Image]) -> None:
        """Cards and images; runs in a thread of its own while the API server starts."""
        if self._inventories:
            node.install_fake_driver(self._inventories[min(node.index, len(self._inventories) - 1)])
        node.wait_for_containerd()
        node.import_images(images)

    def _wait_for_api(self, fillings: list[Future[None]]) -> None:
        api = self._api()

        def look() -> bool:
            for filling in fillings:
                if filling.done():
                    filling.result()
            try:
                return api.text("/readyz") == "ok"
            except (OSError, ApiError):
                return False

        wait_for(look, "the API server", API, 0.1, self._check)

    def _all_ready(self) -> bool:
        """Every node Ready, and the ServiceAccount there without which no Pod is admitted."""
        api = self._api()
        ready = 0
        for node in api.get("/api/v1/nodes")["items"]:
            conditions = {entry["type"]: entry["status"] for entry in node["status"].get("conditions", [])}
            ready += conditions.get("Ready") == "True"
        return ready == self._count and api.exists("/api/v1/namespaces/default/serviceaccounts/default")

    def _api(self) -> Api:
        return Api(self.nodes[0].namespaces, self.credentials)

    def _check(self) -> None:
        for node in self.nodes:
            node.check()
