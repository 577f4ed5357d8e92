"""Whole cards: alone on the card, handed over without the library."""

from __future__ import annotations

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.vertical import MEBIBYTE

pytestmark = pytest.mark.cluster

NAMESPACE = "whole"
CARDS = {24 * 1024 * MEBIBYTE, 80 * 1024 * MEBIBYTE}  # tests/fakegpu/inventories/two-cards.ini


def test_whole_cards(installed_cluster: Cluster) -> None:
    cluster = installed_cluster
    try:
        vertical.apply(cluster, NAMESPACE, "whole.yaml")
        pods = vertical.running(cluster, NAMESPACE, "app=whole", 2)
        shares = vertical.shares(cluster, NAMESPACE)
        assert [(share.cores, share.shares) for share in shares] == [(100, 1000)] * 2
        assert len({share.device for share in shares}) == 2
        maps = vertical.execute(cluster, NAMESPACE, pods[0], "cat", "/proc/self/maps")
        assert "libtessera" not in maps
        assert {vertical.allocate(cluster, NAMESPACE, pod).held for pod in pods} == CARDS
        pending = vertical.get(cluster, "pods", "-n", NAMESPACE, "--field-selector=status.phase=Pending")
        assert len(pending["items"]) == 1
    finally:
        vertical.delete(cluster, NAMESPACE)
