"""Public reports about a running cluster, where a Pod's cards are the point. Ids are the corpus'.

The others are in tests/unit/claim_mutator/test_bug_log.py, or where their part is tested.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import corpus, vertical
from tests.cluster.cluster import Cluster
from tests.cluster.corpus import CARDS, LABEL
from tests.cluster.device_plugin import DIRECTORY, DevicePlugin
from tests.cluster.rack import TWO, Rack, create, limit, share, until_free, waiting

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def rack(installed_cluster: Cluster) -> Iterator[Rack]:
    """Afterwards its cards are what they were."""
    rack = Rack(installed_cluster)
    yield rack
    rack.holding(TWO)


def test_every_container_has_its_own_limit(two: Cluster, namespace: str) -> None:
    """M061 and B035: a percentage, nothing, MiB."""
    create(two, namespace, corpus.runnable("061-pct-none-2000"))
    vertical.running(two, namespace, LABEL, 1)
    sizes = {share.request.partition("/")[0]: share.memory for share in vertical.shares(two, namespace)}
    assert sizes["g0"] in {card.memory // 2 for card in vertical.cards(two)}
    assert sizes["g1"] == 2000
    for container, memory in (("c1", sizes["g0"]), ("c3", 2000)):
        assert limit(two, namespace, container) == memory
    seen = two.kubectl("exec", "-n", namespace, "p-0", "-c", "c2", "--", "ls", "/dev")
    assert "nvidia" not in seen


def test_a_full_card_is_passed_over(two: Cluster, namespace: str) -> None:
    """B036: the third finds room on the first card, after the second did not. And each share has a name."""
    until_free(two)
    first = min(card.memory for card in vertical.cards(two))
    for number, (name, memory) in enumerate((("a", first - 4000), ("b", 6000), ("c", 3000)), 1):
        create(two, namespace, [share(name, memory)])
        vertical.running(two, namespace, LABEL, number)
    by_pod = {each.pod: each for each in vertical.shares(two, namespace)}
    assert by_pod["a"].device == by_pod["c"].device != by_pod["b"].device
    assert by_pod["a"].share_id != by_pod["c"].share_id


def test_pods_that_are_gone_hold_nothing(one: Cluster, namespace: str) -> None:
    """B001, B026: the same names again and again on a card that they fill, and no goodbye."""
    half = CARDS["one"][0].memory // 2
    for _ in range(3):
        create(one, namespace, [share("a", half), share("b", half)])
        vertical.running(one, namespace, LABEL, 2)
        options = ("--all", "--force", "--grace-period=0", "--wait")
        one.kubectl("delete", "pods", "-n", namespace, *options)
    vertical.wait_until(
        "the claims to go", lambda: not vertical.get(one, "resourceclaims", "-n", namespace)["items"]
    )


def test_a_share_waits_for_a_card_that_is_taken_alone(one: Cluster, namespace: str) -> None:
    """B008."""
    (alone,) = corpus.runnable("003-two-plain-pods-multidoc")[:1]
    create(one, namespace, [alone])
    vertical.running(one, namespace, LABEL, 1)
    create(one, namespace, [share("late", 1000, cores=10)])
    assert waiting(one, namespace, 1) == ["late"]
    one.kubectl("delete", "pods", "-n", namespace, alone["metadata"]["name"])
    assert vertical.running(one, namespace, LABEL, 1) == ["late"]


TAINT = "gpu.tessera.dev/device-plugin"


def tainted(cluster: Cluster) -> list[bool]:
    """Of each card, whether a device plugin is why new Pods are kept away."""
    slices = vertical.get(cluster, "resourceslices")["items"]
    devices = [device for item in slices for device in item["spec"].get("devices", ())]
    return [TAINT in {taint["key"] for taint in device.get("taints", ())} for device in devices]


def node_events(cluster: Cluster) -> set[str]:
    events = vertical.get(cluster, "events", "-n", "default")["items"]
    return {event["reason"] for event in events if event["involvedObject"]["kind"] == "Node"}


def test_cards_of_a_device_plugin_are_given_to_nobody_else(two: Cluster, namespace: str) -> None:
    """B038: a plugin registers with the kubelet beside us. What runs goes on, what comes waits."""
    create(two, namespace, [share("before", 2000)])
    vertical.running(two, namespace, LABEL, 1)
    uuids = [card.uuid for card in vertical.cards(two)]
    with DevicePlugin(two.node().path(DIRECTORY), "nvidia.com/gpu", uuids) as plugin:
        vertical.wait_until("both cards' taint", lambda: tainted(two) == [True, True])
        capacity = vertical.get(two, "node", two.node().name)["status"]["capacity"]
        assert capacity["nvidia.com/gpu"] == "2"
        create(two, namespace, [share("late", 2000)])
        assert waiting(two, namespace, 1) == ["late"]
        assert vertical.allocate(two, namespace, "before").held == 2000 * vertical.MEBIBYTE
        vertical.wait_until("an Event about the Node", lambda: "DevicePluginFound" in node_events(two))
        plugin.withdraw()
        vertical.wait_until("the taint to go", lambda: tainted(two) == [False, False])
    assert vertical.running(two, namespace, LABEL, 2) == ["before", "late"]
