"""Cards that report errors, are lost and found on a real Kubernetes: who is told, and where new Pods go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.configuration import FAKE_DRIVER
from tests.cluster.conftest import VERSIONS
from tests.fakegpu import driver_root

pytestmark = pytest.mark.cluster

NAMESPACE = "health"
XID, LOST = "gpu.tessera.dev/xid", "gpu.tessera.dev/lost"
LOOKS = 150.0  # seconds in which a card that is back has been asked for again


def fakegpu(cluster: Cluster, command: str, *arguments: str) -> None:
    """Breaks or mends the first node's cards."""
    cluster.on_node(0, str(driver_root.program("fakegpu-ctl")), command, FAKE_DRIVER, *arguments)


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Iterator[Cluster]:
    """Two cards that are well, before and after."""
    vertical.create_namespace(installed_cluster, NAMESPACE)
    yield installed_cluster
    fakegpu(installed_cluster, "nvml", "--ok")
    fakegpu(installed_cluster, "reset")
    vertical.delete(installed_cluster, NAMESPACE)
    until_tainted(installed_cluster, {})


def taints(cluster: Cluster) -> dict[str, dict[str, str]]:
    """UUID → key → value."""
    found: dict[str, dict[str, str]] = {}
    for item in vertical.get(cluster, "resourceslices")["items"]:
        for device in item["spec"].get("devices", []):
            for taint in device.get("taints", []):
                uuid = device["attributes"]["uuid"]["string"]
                found.setdefault(uuid, {})[taint["key"]] = taint.get("value", "")
    return found


def until_tainted(cluster: Cluster, expected: dict[str, dict[str, str]]) -> None:
    vertical.wait_until(f"the taints {expected}", lambda: taints(cluster) == expected, LOOKS)


def create(cluster: Cluster, name: str, *, tolerates: str | None = None) -> None:
    """A Pod with a share of any card; `tolerates`: the key of a taint."""
    request: dict[str, Any] = {
        "deviceClassName": "gpu.tessera.dev",
        "capacity": {"requests": {"memory": "2Gi", "cores": "10"}},
    }
    if tolerates is not None:
        request["tolerations"] = [{"key": tolerates, "operator": "Exists"}]
        card = next(card.uuid for card in vertical.cards(cluster) if tolerates in taints(cluster)[card.uuid])
        expression = f"device.attributes['gpu.tessera.dev'].uuid == '{card}'"
        request["selectors"] = [{"cel": {"expression": expression}}]
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"spec": {"devices": {"requests": [{"name": "card", "exactly": request}]}}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "resourceClaims": [{"name": "card", "resourceClaimTemplateName": name}],
            "containers": [
                {
                    "name": "work",
                    "image": "localhost/cuda-test:1",
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["sleep", "infinity"],
                    "resources": {"claims": [{"name": "card"}]},
                }
            ],
        },
    }
    cluster.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [claim, pod]})
    )


def running(cluster: Cluster, name: str, timeout: float = 240.0) -> str:
    """The UUID of the card that a Pod, which runs soon, has a share of."""
    vertical.running(cluster, NAMESPACE, f"app={name}", 1, timeout)
    uuids = {card.device: card.uuid for card in vertical.cards(cluster)}
    (share,) = [share for share in vertical.shares(cluster, NAMESPACE) if share.pod == name]
    return uuids[share.device]


def delete(cluster: Cluster, name: str) -> None:
    cluster.kubectl("delete", "pod", name, "-n", NAMESPACE, "--wait=true", "--timeout=180s")


def health(cluster: Cluster, name: str) -> list[tuple[str, str]]:
    """What the kubelet has written of a Pod's devices: health and message."""
    pod = vertical.get(cluster, "pod", name, "-n", NAMESPACE)
    return [
        (resource["health"], resource.get("message", ""))
        for container in pod["status"].get("containerStatuses", [])
        for status in container.get("allocatedResourcesStatus", [])
        for resource in status["resources"]
    ]


def is_told(cluster: Cluster) -> bool:
    """Of the first Pod; with the reason, which kubelets pass on from 1.36."""
    reason = "XID 79" if cluster.binaries.minor >= 36 else ""
    return any(state == "Unhealthy" and reason in message for state, message in health(cluster, "first"))


def events(cluster: Cluster, reason: str, namespace: str = "default") -> list[str]:
    items = vertical.get(cluster, "events", "-n", namespace)["items"]
    return [str(item["message"]) for item in items if item["reason"] == reason]


def test_an_error_is_told_and_new_pods_go_elsewhere(cluster: Cluster) -> None:
    create(cluster, "first")
    sick = running(cluster, "first")
    (well,) = {card.uuid for card in vertical.cards(cluster)} - {sick}
    vertical.wait_until("the Pod's card to be well", lambda: health(cluster, "first") == [("Healthy", "")])

    fakegpu(cluster, "xid", sick, "79")
    until_tainted(cluster, {sick: {LOST: "", XID: "79"}})
    vertical.wait_until("the kubelet to say so", lambda: is_told(cluster))
    assert len(vertical.running(cluster, NAMESPACE, "app=first", 1)) == 1  # nobody is evicted
    create(cluster, "second")
    assert running(cluster, "second") == well

    fakegpu(cluster, "lose", well)
    until_tainted(cluster, {sick: {LOST: "", XID: "79"}, well: {LOST: ""}})
    create(cluster, "third")
    vertical.wait_until(
        "the scheduler to give up", lambda: events(cluster, "FailedScheduling", NAMESPACE), timeout=180
    )
    assert vertical.get(cluster, "pod", "third", "-n", NAMESPACE)["status"]["phase"] == "Pending"

    fakegpu(cluster, "find", sick)
    until_tainted(cluster, {well: {LOST: ""}})
    assert running(cluster, "third") == sick
    vertical.wait_until(
        "the first Pod's card to be well again", lambda: health(cluster, "first") == [("Healthy", "")]
    )
    fakegpu(cluster, "find", well)
    until_tainted(cluster, {})
    vertical.wait_until("Events", lambda: events(cluster, "CardError") and events(cluster, "CardWell"))
    assert any("XID 79" in message for message in events(cluster, "CardError"))


def test_an_error_outlives_the_agent(cluster: Cluster) -> None:
    create(cluster, "stays")
    sick = running(cluster, "stays")
    fakegpu(cluster, "xid", sick, "48")
    until_tainted(cluster, {sick: {XID: "48"}})

    def slices() -> list[Any]:
        return [item["spec"] for item in vertical.get(cluster, "resourceslices")["items"]]

    before = slices()
    system = ("-n", vertical.SYSTEM_NAMESPACE)
    cluster.kubectl("rollout", "restart", "daemonset/tessera-driver", *system)
    cluster.kubectl("rollout", "status", "daemonset/tessera-driver", *system, "--timeout=180s")
    assert slices() == before  # the taint's time, too
    assert running(cluster, "stays") == sick
    file = f"/var/lib/tessera/xids/{sick}.json"
    assert json.loads(cluster.on_node(0, "cat", file))["number"] == 48
    cluster.on_node(0, "rm", file)  # as an administrator does who knows better
    until_tainted(cluster, {})


def test_the_driver_is_lost_and_found_while_pods_come_and_go(cluster: Cluster) -> None:
    for number, fault in enumerate((("--fail", "999"), ("--hang",))):
        fakegpu(cluster, "nvml", *fault)
        create(cluster, f"pod-{number}")
        running(cluster, f"pod-{number}")  # from what is known of the cards
        delete(cluster, f"pod-{number}")
        fakegpu(cluster, "nvml", "--ok")
    sick = vertical.cards(cluster)[0].uuid

    def is_heard() -> bool:
        """What a card reports while the driver is away is told to nobody, so it reports it again."""
        fakegpu(cluster, "xid", sick, "48")
        return taints(cluster) == {sick: {XID: "48"}}

    def is_forgotten() -> bool:
        """The last report may come after the file has gone."""
        cluster.on_node(0, "rm", "-f", f"/var/lib/tessera/xids/{sick}.json")
        return taints(cluster) == {}

    vertical.wait_until("errors to be heard again", is_heard, LOOKS)
    vertical.wait_until("the error to be forgotten", is_forgotten, LOOKS)


def test_a_card_that_is_lost_between_allocation_and_prepare(cluster: Cluster) -> None:
    lost = vertical.cards(cluster)[0].uuid
    fakegpu(cluster, "lose", lost)
    until_tainted(cluster, {lost: {LOST: ""}})
    create(cluster, "waits", tolerates=LOST)
    failed = "FailedPrepareDynamicResources"
    vertical.wait_until("Prepare to be refused", lambda: events(cluster, failed, NAMESPACE))
    assert any("is lost: " in message for message in events(cluster, failed, NAMESPACE))
    fakegpu(cluster, "find", lost)
    assert running(cluster, "waits", timeout=240) == lost  # the kubelet asks again by itself
    until_tainted(cluster, {})


def test_without_the_feature_it_is_told_and_not_fought() -> None:
    """The API server drops taints where DRADeviceTaints is off: nobody is worse off until one is needed."""
    off = {"DRADeviceTaints": False, "DRADeviceTaintRules": False}
    with Cluster(version=VERSIONS[-1], feature_gates=off) as cluster:
        cluster.install_chart({"mutator": {"enabled": False}})  # and waits until the agent is ready
        assert events(cluster, "FieldsDropped") == []
        sick = vertical.cards(cluster)[0].uuid
        fakegpu(cluster, "xid", sick, "48")
        (said,) = vertical.wait_until("an Event", lambda: events(cluster, "FieldsDropped"))
        assert said.startswith("the API server dropped taints from our ResourceSlices")
        assert "switch on the feature gate DRADeviceTaints" in said

        def versions() -> list[str]:
            slices = vertical.get(cluster, "resourceslices")["items"]
            return [str(item["metadata"]["resourceVersion"]) for item in slices]

        before = versions()
        time.sleep(5)
        assert versions() == before
        assert taints(cluster) == {}
        cluster.on_node(0, "rm", f"/var/lib/tessera/xids/{sick}.json")
        vertical.wait_until("the end of it", lambda: events(cluster, "FieldsDroppedRecovered"), timeout=LOOKS)
        assert versions() == before
