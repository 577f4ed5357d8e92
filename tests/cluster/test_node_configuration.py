"""The node configuration as the chart brings it: an upgrade is taken up without a restart; spreading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS

pytestmark = pytest.mark.cluster

SMALL, LARGE = 24 * 1024, 80 * 1024  # MiB, tests/fakegpu/inventories/two-cards.ini
NAMESPACES = ("spread-a", "spread-b")


def install(cluster: Cluster, **configuration: Any) -> None:
    """A claim's own words need no webhook."""
    cluster.install_chart({"mutator": {"enabled": False}, "driver": {"nodeConfiguration": configuration}})


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(version=VERSIONS[-1]) as made:
        install(made, reservedMemory="1Gi")
        yield made


def agent(cluster: Cluster) -> tuple[str, int]:
    """Its Pod's name, and how often its container was restarted."""
    (pod,) = vertical.get(cluster, "pods", "-n", vertical.SYSTEM_NAMESPACE)["items"]
    return pod["metadata"]["name"], pod["status"]["containerStatuses"][0]["restartCount"]


def memory(cluster: Cluster) -> list[int]:
    return [card.memory for card in vertical.cards(cluster)]


def order(cluster: Cluster) -> list[str]:
    return [card.device for card in vertical.cards(cluster)]


def test_an_upgrade_reaches_a_running_agent(cluster: Cluster) -> None:
    before = agent(cluster)
    assert memory(cluster) == [SMALL - 1024, LARGE - 1024]
    install(cluster, reservedMemory="2Gi", placement="spread")
    # The kubelet looks at the ConfigMap with its next look at the Pod, which may be a minute away.
    pod = ("pod", before[0], "-n", vertical.SYSTEM_NAMESPACE)
    cluster.kubectl("annotate", *pod, "tessera.dev/looked-at=now", "--overwrite")
    expected = [SMALL - 2048, LARGE - 2048]
    vertical.wait_until("the changed cards", lambda: memory(cluster) == expected)
    assert agent(cluster) == before


def test_spread_fills_the_least_used_card(cluster: Cluster) -> None:
    """The first Pod's card goes to the end of the line, and the second Pod gets the other one."""
    first, second = order(cluster)
    taken = []
    try:
        for namespace in NAMESPACES:
            vertical.apply(cluster, namespace, "native.yaml")
            vertical.running(cluster, namespace, "app=native", 1)
            taken += [share.device for share in vertical.shares(cluster, namespace)]
            vertical.wait_until("the other order", lambda: order(cluster) == [second, first])
    finally:
        for namespace in NAMESPACES:
            vertical.delete(cluster, namespace)
    assert taken == [first, second]
    vertical.wait_until("the first order", lambda: order(cluster) == [first, second])
