"""Two nodes with different cards: every whole card is taken once, and no other."""

from __future__ import annotations

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS

pytestmark = pytest.mark.cluster

NAMESPACE = "spread"


def test_every_card_of_both_nodes_is_taken_once() -> None:
    with Cluster(version=VERSIONS[0], nodes=2) as cluster:
        cluster.install_chart()
        cards = vertical.wait_until("the slices of both nodes", lambda: _of_both_nodes(cluster))
        vertical.apply(cluster, NAMESPACE, "whole.yaml")
        cluster.kubectl("scale", "deployment/whole", "-n", NAMESPACE, f"--replicas={len(cards) + 1}")
        vertical.running(cluster, NAMESPACE, "app=whole", len(cards))
        taken = [share.device for share in vertical.shares(cluster, NAMESPACE)]
        assert sorted(taken) == sorted(card.device for card in cards)
        pods = vertical.get(cluster, "pods", "-n", NAMESPACE)["items"]
        by_node = {pod["spec"].get("nodeName") for pod in pods}
        assert by_node == {"node-0", "node-1", None}


def _of_both_nodes(cluster: Cluster) -> list[vertical.Card] | None:
    cards = vertical.cards(cluster)
    return cards if len({card.node for card in cards}) == 2 else None
