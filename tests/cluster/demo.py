"""`make demo`, `make kind-demo`: the main job on a real Kubernetes, shown step by step.

The steps are those of tests/cluster/vertical.py, which the tests assert. Every step prints the command that
repeats it; with `--keep` the cluster stays, and the commands work as printed. `--kind` takes a kind cluster
(kind.py) instead of the bare one (cluster.py).
"""

from __future__ import annotations

import argparse
import platform
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from tests.cluster import kind, vertical
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.kind import Kind
from tests.cluster.node import DRIVER_ROOT

NAMESPACE = "demo"
WIDTH = 110  # characters, what the widest table takes


@dataclass(frozen=True)
class Commands:
    """How a person reaches a cluster that stays: kubectl, the host's view of the cards, its end."""

    kubectl: str
    host: str
    end: str


BARE = Commands(".cluster/kubectl", ".cluster/node nvidia-smi", "make cluster-down")
KIND = Commands(
    "kubectl --kubeconfig .cluster/kind/kubeconfig",
    f"docker exec -e LD_LIBRARY_PATH={DRIVER_ROOT}/usr/lib/{platform.machine()}-linux-gnu "
    f"{kind.WORKER} {DRIVER_ROOT}/usr/bin/nvidia-smi",
    kind.END,
)


class Screen:
    """What a person sees: numbered steps, one sentence each, tables, and the command to repeat a step."""

    def __init__(self, console: Console, kubectl: str) -> None:
        self.console, self._kubectl = console, kubectl
        self.steps = 0
        self.started = time.monotonic()

    def step(self, sentence: str) -> None:
        self.steps += 1
        elapsed = time.monotonic() - self.started
        self.console.print(f"\n[bold]{self.steps}. {sentence}[/bold] [dim]({elapsed:.0f} s)[/dim]")

    def say(self, sentence: str) -> None:
        self.console.print(f"   {sentence}", highlight=False)

    def command(self, text: str) -> None:
        self.console.print(f"   [dim]$ {text}[/dim]", highlight=False)

    def kubectl(self, arguments: str) -> None:
        self.command(f"{self._kubectl} {arguments}")

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for header in headers:
            table.add_column(header, no_wrap=True)
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.console.print(Padding(table, (0, 0, 0, 3)))


def show_cards(screen: Screen, cluster: vertical.Nodes) -> None:
    screen.step("The agent published the node's cards in a ResourceSlice")
    cards = vertical.wait_until("the cards in a ResourceSlice", lambda: vertical.cards(cluster))
    screen.table(
        ("CARD", "DEVICE", "MEMORY", "CORES", "SHARES"),
        [(c.product, c.device, f"{c.memory} MiB", f"{c.cores} %", f"{c.shares} ‰") for c in cards],
    )
    screen.kubectl("get resourceslices -o yaml")


def show_legacy(screen: Screen, cluster: vertical.Nodes) -> list[str]:
    screen.step("A Deployment written for HAMi, unchanged: 3 replicas of gpu: 1, gpumem: 3000, gpucores: 30")
    vertical.apply(cluster, NAMESPACE, "legacy.yaml")
    pods = vertical.running(cluster, NAMESPACE, "app=legacy", 3)
    screen.kubectl(f"apply -n {NAMESPACE} -f tests/cluster/manifests/legacy.yaml")
    templates = vertical.get(cluster, "resourceclaimtemplates", "-n", NAMESPACE)["items"]
    screen.say(f"One shape, one template: {', '.join(t['metadata']['name'] for t in templates)}")
    screen.table(
        ("CLAIM", "DEVICE", "SHARE ID", "MEMORY", "CORES"),
        [
            (s.claim, s.device[:12] + "…", s.share_id[:8], f"{s.memory} MiB", f"{s.cores} %")
            for s in vertical.shares(cluster, NAMESPACE)
        ],
    )
    screen.kubectl(f"get resourceclaims,resourceclaimtemplates -n {NAMESPACE}")
    return pods


def show_container(screen: Screen, cluster: vertical.Nodes, pod: str) -> None:
    screen.step("Inside its container the card is its share")
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv")
    screen.console.print(vertical.execute(cluster, NAMESPACE, pod, *query).rstrip(), highlight=False)
    screen.kubectl(f"exec -n {NAMESPACE} {pod} -- {' '.join(query)}")


def show_limit(screen: Screen, cluster: vertical.Nodes, pods: Sequence[str]) -> None:
    screen.step("Memory: granted up to the limit, refused one byte above it, the neighbour undisturbed")
    outcome = vertical.fill_beside_neighbour(cluster, NAMESPACE, filler=pods[0], neighbour=pods[1])
    beside = outcome.neighbour
    screen.table(
        ("POD", "ASKED", "GOT", "ANSWER"),
        [
            (pods[0], "all it can get", f"{outcome.filler.held} bytes", outcome.filler.refusal),
            (pods[1], "2000 MiB meanwhile", f"{beside.held} bytes", beside.refusal or "-"),
        ],
    )
    screen.say(f"The limit is 3000 MiB = {3000 * vertical.MEBIBYTE} bytes.")
    screen.kubectl(f"exec -n {NAMESPACE} {pods[0]} -- cuda-alloc")


def show_compute(screen: Screen, cluster: vertical.Nodes, pods: Sequence[str]) -> None:
    screen.step("Compute: all three launch kernels without pause for five seconds, then one of them alone")
    together = vertical.burn_together(cluster, NAMESPACE, pods, seconds=5)
    alone = vertical.burn_together(cluster, NAMESPACE, pods[:1], seconds=5)
    screen.table(
        ("POD", "ASKED", "GOT"),
        [
            *((pod, "30 %", f"{burn.share_percent:.1f} %") for pod, burn in zip(pods, together, strict=True)),
            (pods[0], "30 %, alone", f"{alone[0].share_percent:.1f} %"),
        ],
    )
    screen.say("30 % are sure; what nobody uses is lent, and taken back when its owner works.")
    screen.kubectl(f"exec -n {NAMESPACE} {pods[0]} -- cuda-burn --seconds 5")


def show_native(screen: Screen, cluster: vertical.Nodes) -> None:
    screen.step("A native claim: memory: 8Gi, cores: 30")
    vertical.apply(cluster, NAMESPACE, "native.yaml")
    vertical.running(cluster, NAMESPACE, "app=native", 1)
    native = [s for s in vertical.shares(cluster, NAMESPACE) if s.pod == "native"]
    screen.table(
        ("POD", "CLAIM", "MEMORY", "CORES"),
        [(s.pod, s.claim, f"{s.memory} MiB", f"{s.cores} %") for s in native],
    )
    screen.say(vertical.execute(cluster, NAMESPACE, "native", "nvidia-smi", "-L").strip())
    screen.kubectl(f"apply -n {NAMESPACE} -f tests/cluster/manifests/native.yaml")


def show_metrics(screen: Screen, cluster: vertical.Nodes) -> None:
    screen.step("Metrics of both programs")
    for name, port, wanted in (
        ("tessera-driver", 9470, ("tessera_claims_prepared", "tessera_grant_memory_limit_bytes")),
        ("tessera-mutator", 9471, ("tessera_mutator_admissions_total",)),
    ):
        for pod, page in vertical.metrics(cluster, name, port).items():
            lines = [line for line in page.splitlines() if line.startswith(wanted)]
            for line in [line for line in lines if not line.endswith(" 0.0")][:6]:
                screen.say(line)
            path = f"/api/v1/namespaces/{vertical.SYSTEM_NAMESPACE}/pods/{pod}:{port}/proxy/metrics"
            screen.kubectl(f"get --raw {path}")


def show_nothing_left(screen: Screen, cluster: vertical.Nodes) -> None:
    screen.step("All deleted: nothing is left")
    left = vertical.delete(cluster, NAMESPACE)
    screen.table(("WHAT", "LEFT"), left.items())
    screen.kubectl(f"delete namespace {NAMESPACE}")


def run(cluster: Cluster | Kind, title: str, commands: Commands) -> int:
    """The whole demo on a cluster that isn't started yet."""
    console = Console(soft_wrap=True)
    # A cell that is cut off tells nothing; a line that the terminal wraps still does.
    screen = Screen(Console(soft_wrap=True, width=max(console.width, WIDTH)), commands.kubectl)
    screen.step(title)
    with cluster:
        cluster.install_chart()
        for arguments in (("nodes",), ("pods", "-n", vertical.SYSTEM_NAMESPACE)):
            screen.say(cluster.kubectl("get", *arguments).rstrip().replace("\n", "\n   "))
        show_cards(screen, cluster)
        pods = show_legacy(screen, cluster)
        show_container(screen, cluster, pods[0])
        show_limit(screen, cluster, pods)
        show_compute(screen, cluster, pods)
        show_native(screen, cluster)
        show_metrics(screen, cluster)
        if not cluster.keep:
            show_nothing_left(screen, cluster)
    elapsed = time.monotonic() - screen.started
    screen.console.print(f"\n[bold green]The demo ended well[/bold green] after {elapsed:.0f} s.")
    if cluster.keep:
        screen.say("The cluster stays. Look around, then end it:")
        screen.kubectl("get pods -A")
        screen.command(f"{commands.host}        (the host's view)")
        screen.command(commands.end)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--version", default="1.37", help="Kubernetes: 1.37 (default), 1.36, 1.35")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    parser.add_argument("--kind", action="store_true", help="a kind cluster")
    parser.add_argument("--node-image", help="of the kind cluster, instead of kind's own of that version")
    options = parser.parse_args(arguments)
    if options.node_image and not options.kind:
        parser.error("--node-image goes with --kind")
    try:
        if not options.kind:
            title = (
                f"A real Kubernetes {options.version} on this machine, Tessera installed by its Helm chart"
            )
            return run(Cluster(version=options.version, keep=options.keep), title, BARE)
        # Nobody else deletes a kind cluster when this process is asked to end.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
        title = f"A kind cluster of Kubernetes {options.version}, Tessera installed by its Helm chart"
        return run(Kind(options.version, node_image=options.node_image, keep=options.keep), title, KIND)
    except ClusterError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
