"""A card in MIG mode on a real Kubernetes: its instances are devices, shared and limited as cards are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS
from tests.cluster.vertical import MEBIBYTE
from tests.cluster.waiting import look_again

pytestmark = pytest.mark.cluster

NAMESPACE = "mig"
SMALL, LARGE = 9728, 40192  # MiB, tests/fakegpu/inventories/mig.ini
CAPABILITIES = "/dev/nvidia-caps"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(version=VERSIONS[-1], inventories=("mig.ini",)) as made:
        made.install_chart({"mutator": {"enabled": False}})  # a claim's own words need no webhook
        yield made


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[list[str]]:
    """`share` has 3000 MiB of a small instance, `whole` has the large one."""
    vertical.apply(cluster, NAMESPACE, "mig.yaml")
    yield vertical.running(cluster, NAMESPACE, "app=mig", 2)
    vertical.delete(cluster, NAMESPACE)


def test_instances_are_published_and_their_card_is_not(cluster: Cluster) -> None:
    cards = vertical.cards(cluster)
    assert [card.memory for card in cards] == [LARGE, SMALL, SMALL, 80 * 1024]
    assert [card.device.partition("-")[0] for card in cards] == ["mig", "mig", "mig", "gpu"]


def test_each_class_has_its_own(cluster: Cluster, pods: list[str]) -> None:
    """What the class gpu.tessera.dev takes is never an instance, and the other way round."""
    classes = {item["metadata"]["name"] for item in vertical.get(cluster, "deviceclasses")["items"]}
    assert {"gpu.tessera.dev", "mig.gpu.tessera.dev"} <= classes
    memory = {card.device: card.memory for card in vertical.cards(cluster)}
    shares = {share.pod: share for share in vertical.shares(cluster, NAMESPACE)}
    assert sorted(shares) == pods == ["share", "whole"]
    assert (memory[shares["share"].device], shares["share"].memory) == (SMALL, 3000)
    assert (memory[shares["whole"].device], shares["whole"].memory) == (LARGE, LARGE)


@pytest.mark.usefixtures("pods")
def test_a_share_of_an_instance_ends_at_its_limits(cluster: Cluster) -> None:
    allocation = vertical.allocate(cluster, NAMESPACE, "share")
    assert (allocation.held, allocation.total) == (3000 * MEBIBYTE, 3000 * MEBIBYTE)
    assert allocation.refusal == "CUDA_ERROR_OUT_OF_MEMORY"
    (burn,) = look_again(
        lambda: vertical.burn_together(cluster, NAMESPACE, ["share"], seconds=5),
        lambda found: found[0].share_percent >= 24,
    )
    assert burn.share_percent == pytest.approx(30, rel=0.2)


@pytest.mark.usefixtures("pods")
def test_a_whole_instance_is_handed_over_without_the_library(cluster: Cluster) -> None:
    assert vertical.allocate(cluster, NAMESPACE, "whole").held == LARGE * MEBIBYTE
    assert "libtessera" not in vertical.execute(cluster, NAMESPACE, "whole", "cat", "/proc/self/maps")


@pytest.mark.usefixtures("pods")
def test_a_container_has_the_rights_to_its_own_instance_alone(cluster: Cluster) -> None:
    rights = {
        pod: set(vertical.execute(cluster, NAMESPACE, pod, "ls", CAPABILITIES).split())
        for pod in ("share", "whole")
    }
    assert len(rights["share"]) == len(rights["whole"]) == 2
    assert rights["share"].isdisjoint(rights["whole"])
