"""`make demo`: the main job on a real Kubernetes, shown step by step.

The steps are those of tests/cluster/vertical.py, which the tests assert. Every step prints the command that
repeats it; with `--keep` the cluster stays, and the commands work as printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from tests.cluster import vertical
from tests.cluster.cluster import Cluster

NAMESPACE = "demo"
KUBECTL = ".cluster/kubectl"
WIDTH = 110  # characters, what the widest table takes


class Screen:
    """What a person sees: numbered steps, one sentence each, tables, and the command to repeat a step."""

    def __init__(self, console: Console) -> None:
        self.console = console
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

    def table(self, headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for header in headers:
            table.add_column(header, no_wrap=True)
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
        self.console.print(Padding(table, (0, 0, 0, 3)))


def show_cards(screen: Screen, cluster: Cluster) -> None:
    screen.step("The agent published the node's cards in a ResourceSlice")
    cards = vertical.wait_until("the cards in a ResourceSlice", lambda: vertical.cards(cluster))
    screen.table(
        ("CARD", "DEVICE", "MEMORY", "CORES", "SHARES"),
        [(c.product, c.device, f"{c.memory} MiB", f"{c.cores} %", f"{c.shares} ‰") for c in cards],
    )
    screen.command(f"{KUBECTL} get resourceslices -o yaml")


def show_legacy(screen: Screen, cluster: Cluster) -> list[str]:
    screen.step("A Deployment written for HAMi, unchanged: 3 replicas of gpu: 1, gpumem: 3000, gpucores: 30")
    vertical.apply(cluster, NAMESPACE, "legacy.yaml")
    pods = vertical.running(cluster, NAMESPACE, "app=legacy", 3)
    screen.command(f"{KUBECTL} apply -n {NAMESPACE} -f tests/cluster/manifests/legacy.yaml")
    templates = vertical.get(cluster, "resourceclaimtemplates", "-n", NAMESPACE)["items"]
    screen.say(f"One shape, one template: {', '.join(t['metadata']['name'] for t in templates)}")
    screen.table(
        ("CLAIM", "DEVICE", "SHARE ID", "MEMORY", "CORES"),
        [
            (s.claim, s.device[:12] + "…", s.share_id[:8], f"{s.memory} MiB", f"{s.cores} %")
            for s in vertical.shares(cluster, NAMESPACE)
        ],
    )
    screen.command(f"{KUBECTL} get resourceclaims,resourceclaimtemplates -n {NAMESPACE}")
    return pods


def show_container(screen: Screen, cluster: Cluster, pod: str) -> None:
    screen.step("Inside its container the card is its share")
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv")
    screen.console.print(vertical.execute(cluster, NAMESPACE, pod, *query).rstrip(), highlight=False)
    screen.command(f"{KUBECTL} exec -n {NAMESPACE} {pod} -- {' '.join(query)}")


def show_limit(screen: Screen, cluster: Cluster, pods: Sequence[str]) -> None:
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
    screen.command(f"{KUBECTL} exec -n {NAMESPACE} {pods[0]} -- cuda-alloc")


def show_compute(screen: Screen, cluster: Cluster, pods: Sequence[str]) -> None:
    screen.step("Compute: two of them launch kernels without pause for five seconds")
    burns = vertical.burn_together(cluster, NAMESPACE, pods[:2], seconds=5)
    screen.table(
        ("POD", "ASKED", "GOT"),
        [(pod, "30 %", f"{burn.share_percent:.1f} %") for pod, burn in zip(pods, burns, strict=False)],
    )
    screen.command(f"{KUBECTL} exec -n {NAMESPACE} {pods[0]} -- cuda-burn --seconds 5")


def show_native(screen: Screen, cluster: Cluster) -> None:
    screen.step("A native claim: memory: 8Gi, cores: 30")
    vertical.apply(cluster, NAMESPACE, "native.yaml")
    vertical.running(cluster, NAMESPACE, "app=native", 1)
    native = [s for s in vertical.shares(cluster, NAMESPACE) if s.pod == "native"]
    screen.table(
        ("POD", "CLAIM", "MEMORY", "CORES"),
        [(s.pod, s.claim, f"{s.memory} MiB", f"{s.cores} %") for s in native],
    )
    screen.say(vertical.execute(cluster, NAMESPACE, "native", "nvidia-smi", "-L").strip())
    screen.command(f"{KUBECTL} apply -n {NAMESPACE} -f tests/cluster/manifests/native.yaml")


def show_metrics(screen: Screen, cluster: Cluster) -> None:
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
            screen.command(f"{KUBECTL} get --raw {path}")


def show_nothing_left(screen: Screen, cluster: Cluster) -> None:
    screen.step("All deleted: nothing is left")
    left = vertical.delete(cluster, NAMESPACE)
    screen.table(("WHAT", "LEFT"), left.items())
    screen.command(f"{KUBECTL} delete namespace {NAMESPACE}")


def run(version: str, keep: bool) -> int:
    console = Console(soft_wrap=True)
    # A cell that is cut off tells nothing; a line that the terminal wraps still does.
    screen = Screen(Console(soft_wrap=True, width=max(console.width, WIDTH)))
    screen.step(f"A real Kubernetes {version} on this machine, Tessera installed by its Helm chart")
    with Cluster(version=version, keep=keep) as cluster:
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
        if not keep:
            show_nothing_left(screen, cluster)
    elapsed = time.monotonic() - screen.started
    screen.console.print(f"\n[bold green]The demo ended well[/bold green] after {elapsed:.0f} s.")
    if keep:
        screen.say("The cluster stays. Look around, then end it:")
        screen.command(f"{KUBECTL} get pods -A")
        screen.command(".cluster/node nvidia-smi        (the host's view)")
        screen.command("make cluster-down")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--version", default="1.37", help="Kubernetes: 1.37 (default) or 1.36")
    parser.add_argument("--keep", action="store_true", help="leave the cluster running")
    options = parser.parse_args(arguments)
    return run(options.version, options.keep)


if __name__ == "__main__":
    sys.exit(main())
