"""Other cards in a node of a running cluster, and the Pods that want them: steps of tests, they return facts.

A card costs nothing here, a cluster does.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.cluster import corpus, vertical
from tests.cluster.chart import NAMESPACE as SYSTEM
from tests.cluster.cluster import Cluster
from tests.cluster.corpus import CARDS

TWO = "two"
"""The cards that a cluster has to begin with: tests/fakegpu/inventories/two-cards.ini, 24 GiB and 80 GiB."""


class Rack:
    """A cluster's first node, and the cards that are in it now."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._inside = TWO

    def holding(self, cards: str) -> Cluster:
        """The cluster, with these cards: at once, where they are in it."""
        if self._inside != cards:
            self._inside = ""
            put_in(self.cluster, cards)
            self._inside = cards
        return self.cluster


def put_in(cluster: Cluster, cards: str) -> None:
    """Other cards, as after a reboot with these: a new state of the driver, and an agent that finds it."""
    until_free(cluster)
    if cards == TWO:
        file, wanted = cluster.inventories[0], {"NVIDIA A100-SXM4-80GB", "NVIDIA GeForce RTX 4090"}
    else:
        file, wanted = cluster.run.work / "cards.ini", {card.product for card in CARDS[cards]}
        file.write_text(corpus.inventory(CARDS[cards]))
    cluster.node().install_fake_driver(file)
    cluster.on_node(0, "rm", "/var/lib/tessera/cards.json")  # within a boot no card goes away by itself
    cluster.kubectl("delete", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/name=tessera-driver", "--wait")
    vertical.wait_until(
        "the other cards", lambda: {card.product for card in vertical.cards(cluster)} == wanted
    )
    known = vertical.cards(cluster)[0]
    vertical.wait_until("the mutator to know of them", lambda: not told(cluster, known.product))


def until_free(cluster: Cluster) -> None:
    """Namespaces are not waited for when they go."""
    vertical.wait_until(
        "the claims to go", lambda: not vertical.get(cluster, "resourceclaims", "-A")["items"]
    )


def told(cluster: Cluster, product: str) -> bool:
    """Whether the webhook finds such a card missing."""
    (pod,) = corpus.runnable("001-default-use")
    pod["metadata"]["annotations"] = {"nvidia.com/use-gputype": product}
    return "the Pod will wait" in create(cluster, "default", [pod], "--dry-run=server")


def new_namespace(cluster: Cluster, test: str) -> str:
    """A new one, named after a test, with its ServiceAccount."""
    plain = re.sub(r"[^a-z0-9]+", "-", test.removeprefix("test_").lower())
    name = f"c-{plain[:50].strip('-')}"
    vertical.create_namespace(cluster, name)
    return name


def create(cluster: Cluster, namespace: str, objects: list[dict[str, Any]], *options: str) -> str:
    """What kubectl says on stderr: the warnings."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    return cluster.program("kubectl", "create", "-n", namespace, *options, "-f", "-", input=manifest).stderr


def waiting(cluster: Cluster, namespace: str, count: int) -> list[str]:
    """The names of the Pods for which the scheduler says that there is no room, when there are so many."""

    def look() -> list[str] | None:
        found = {
            pod["metadata"]["name"]: condition["message"]
            for pod in vertical.get(cluster, "pods", "-n", namespace)["items"]
            for condition in pod["status"].get("conditions", ())
            if condition["type"] == "PodScheduled" and condition["status"] == "False"
        }
        if len(found) != count:
            return None
        assert all("cannot allocate all claims" in message for message in found.values()), found
        return sorted(found)

    return vertical.wait_until(f"{count} Pods to wait", look)


def share(name: str, memory: int, **more: int) -> dict[str, Any]:
    """A Pod with so many MiB of a card."""
    (pod,) = corpus.runnable("001-default-use")
    limits = {"nvidia.com/gpumem": memory} | {f"nvidia.com/gpu{key}": value for key, value in more.items()}
    pod["spec"]["containers"][0]["resources"] = {"limits": limits}
    return pod | {"metadata": pod["metadata"] | {"name": name}}


def limit(cluster: Cluster, namespace: str, container: str) -> int:
    """MiB that a container of the Pod p-0 gets before it is refused."""
    command = ("-n", namespace, "p-0", "-c", container, "--", "cuda-alloc", "--json")
    held: int = json.loads(cluster.kubectl("exec", *command))["held_bytes"]
    return held // vertical.MEBIBYTE


def held(cluster: Cluster, namespace: str) -> dict[str, list[int]]:
    """MiB of each share, by card."""
    found: dict[str, list[int]] = {}
    for share in vertical.shares(cluster, namespace):
        found.setdefault(share.device, []).append(share.memory)
    return found
