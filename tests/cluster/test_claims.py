"""Claims of every shape on a real Kubernetes, on a node with eight cards; what is told of them, and where."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.cluster import vertical
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import VERSIONS
from tests.cluster.vertical import MEBIBYTE, SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

NAMESPACE = "claims"
CARD = 80 * 1024  # MiB, tests/fakegpu/inventories/eight-cards.ini
METADATA = "/var/run/kubernetes.io/dra-device-attributes"
ADMIN_LABEL = "resource.kubernetes.io/admin-access=true"
TOOLKIT = "/etc/cdi/nvidia.json"


@pytest.fixture(scope="module", params=VERSIONS)
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(version=request.param, inventories=("eight-cards.ini",)) as made:
        # A claim's own words need no webhook.
        made.install_chart({"mutator": {"enabled": False}, "hamiDeviceClass": True})
        yield made


def claims(cluster: Cluster) -> str:
    """claims.yaml. On 1.35 a count can take one card twice, so eight cards are eight requests there."""
    documents = list(yaml.safe_load_all((vertical.MANIFESTS / "claims.yaml").read_text()))
    if cluster.binaries.minor < 36:
        devices = documents[0]["spec"]["spec"]["devices"]
        (request,) = devices["requests"]
        count = request["exactly"].pop("count")
        devices["requests"] = [request | {"name": f"cards-{index}"} for index in range(count)]
    return yaml.safe_dump_all(documents)


@pytest.fixture(scope="module")
def pods(cluster: Cluster) -> Iterator[Cluster]:
    """Everything of claims.yaml, running; when it is gone, nothing may be left of it anywhere."""
    vertical.apply_text(cluster, NAMESPACE, claims(cluster))
    for app, count in (("eight", 1), ("halves", 1), ("shared", 2)):
        vertical.running(cluster, NAMESPACE, f"app={app}", count)
    yield cluster
    vertical.delete(cluster, NAMESPACE)


def smi(cluster: Cluster, pod: str, query: str, container: str | None = None) -> list[str]:
    where = ("-c", container) if container else ()
    command = ("nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits")
    return cluster.kubectl("exec", "-n", NAMESPACE, pod, *where, "--", *command).strip().splitlines()


def claim_of(cluster: Cluster, pod: str, namespace: str = NAMESPACE) -> dict[str, Any]:
    """The (only) claim that was made for a Pod."""
    (found,) = [
        claim
        for claim in vertical.get(cluster, "resourceclaims", "-n", namespace)["items"]
        if any(owner["name"] == pod for owner in claim["metadata"].get("ownerReferences", ()))
    ]
    assert isinstance(found, dict)
    return found


def statuses(cluster: Cluster, pod: str, count: int) -> list[dict[str, Any]]:
    """status.devices of a Pod's claim; it is written some time after the Pod's start."""

    def probe() -> list[dict[str, Any]] | None:
        found: list[dict[str, Any]] = claim_of(cluster, pod)["status"].get("devices", [])
        return found if len(found) == count else None

    return vertical.wait_until(f"status.devices of {pod}'s claim", probe)


def grant_of(claim: dict[str, Any], result: dict[str, Any]) -> str:
    return f"{claim['metadata']['uid']}-{result['request']}-{result['shareID'][:8]}"


def document_of(cluster: Cluster, uid: str) -> dict[str, Any]:
    text = cluster.on_node(0, "cat", f"/var/run/cdi/gpu.tessera.dev-grant_{uid}.json")
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def test_eight_cards_of_one_claim(pods: Cluster) -> None:
    uuids = smi(pods, "eight", "uuid")
    assert len(set(uuids)) == 8
    assert set(uuids) == {card.uuid for card in vertical.cards(pods)}
    assert smi(pods, "eight", "memory.total") == ["10240"] * 8
    claim = claim_of(pods, "eight")
    results = claim["status"]["allocation"]["devices"]["results"]
    assert len({result["request"] for result in results}) == (1 if pods.binaries.minor >= 36 else 8)
    names = {grant_of(claim, result) for result in results}
    devices = {device["name"] for device in document_of(pods, claim["metadata"]["uid"])["devices"]}
    assert devices == names | {f"{name}-shim" for name in names}
    grants = pods.on_node(0, "ls", f"/run/tessera/claims/{claim['metadata']['uid']}").split()
    assert set(grants) == names | {"metadata"}
    allocation = vertical.allocate(pods, NAMESPACE, "eight")
    assert (allocation.held, allocation.refusal) == (10240 * MEBIBYTE, "CUDA_ERROR_OUT_OF_MEMORY")


def test_two_shares_of_one_card_in_one_claim(pods: Cluster) -> None:
    results = claim_of(pods, "halves")["status"]["allocation"]["devices"]["results"]
    assert len({result["device"] for result in results}) == 1
    assert len({result["shareID"] for result in results}) == 2
    assert smi(pods, "halves", "memory.total", "small") == ["2048"]
    assert smi(pods, "halves", "memory.total", "large") == ["4096"]
    assert smi(pods, "halves", "uuid", "small") == smi(pods, "halves", "uuid", "large")


def test_one_claim_of_two_pods_is_one_budget(pods: Cluster) -> None:
    assert smi(pods, "shared-a", "memory.total", "one") == ["3000"]
    held = vertical.fill_beside_neighbour(pods, NAMESPACE, filler="shared-b", neighbour="shared-a")
    assert held.neighbour.held == 2000 * MEBIBYTE
    assert held.filler.held == 1000 * MEBIBYTE
    pods.kubectl("delete", "pod", "shared-b", "-n", NAMESPACE, "--wait=true")
    # The other Pod's grant is still there, and whole.
    assert vertical.allocate(pods, NAMESPACE, "shared-a").held == 3000 * MEBIBYTE


def test_status_says_which_card_and_which_limits(pods: Cluster) -> None:
    found = statuses(pods, "eight", 8)
    assert len({status["data"]["uuid"] for status in found}) == 8
    for status in found:
        assert status["driver"] == vertical.DRIVER
        assert status["data"]["limits"] == {"memory": "10Gi", "cores": "10"}
        assert {(c["type"], c["status"]) for c in status["conditions"]} == {
            ("Ready", "True"),
            ("Healthy", "True"),
        }
    halves = statuses(pods, "halves", 2)
    assert {status["data"]["limits"]["memory"] for status in halves} == {"2Gi", "4Gi"}
    assert len({status["shareID"] for status in halves}) == 2


def test_status_is_written_once(pods: Cluster) -> None:
    """Neither time nor a restart of the agent writes it again."""
    statuses(pods, "eight", 8)
    before = claim_of(pods, "eight")
    pods.kubectl("rollout", "restart", "daemonset/tessera-driver", "-n", SYSTEM_NAMESPACE)
    pods.kubectl("rollout", "status", "daemonset/tessera-driver", "-n", SYSTEM_NAMESPACE, "--timeout=180s")
    time.sleep(5)  # the new agent looks at all claims at once, and would write a second later
    assert claim_of(pods, "eight") == before


def test_metadata_is_where_kep_5304_says(pods: Cluster) -> None:
    claim = claim_of(pods, "eight")
    devices = []
    for request in claim["spec"]["devices"]["requests"]:
        path = f"{METADATA}/resourceclaimtemplates/gpus/{request['name']}/gpu.tessera.dev-metadata.json"
        text = vertical.execute(pods, NAMESPACE, "eight", "cat", path)
        first, _ = json.JSONDecoder().raw_decode(text)
        assert first["apiVersion"] == "metadata.resource.k8s.io/v1beta1"
        assert first["podClaimName"] == "gpus"
        assert first["metadata"]["uid"] == claim["metadata"]["uid"]
        devices += first["requests"][0]["devices"]
    assert {device["attributes"]["uuid"]["string"] for device in devices} == set(smi(pods, "eight", "uuid"))
    assert {device["attributes"]["memoryLimitBytes"]["int"] for device in devices} == {10 << 30}
    by_name = f"{METADATA}/resourceclaims/shared/card/gpu.tessera.dev-metadata.json"
    text = pods.kubectl("exec", "-n", NAMESPACE, "shared-a", "-c", "two", "--", "cat", by_name)
    assert '"podClaimName"' not in text


def test_an_administrator_sees_everything_and_holds_nothing(pods: Cluster) -> None:
    name = "claims-admin"
    vertical.create_namespace(pods, name)
    pods.kubectl("label", "namespace", name, ADMIN_LABEL)
    try:
        vertical.apply(pods, name, "admin.yaml")
        vertical.running(pods, name, "app=admin", 1)
        query = ("nvidia-smi", "--query-gpu=uuid,memory.total", "--format=csv,noheader,nounits")
        seen = [line.split(", ") for line in vertical.execute(pods, name, "admin", *query).splitlines()]
        assert {uuid for uuid, _ in seen} == {card.uuid for card in vertical.cards(pods)}
        assert {total for _, total in seen} == {str(CARD)}
        maps = vertical.execute(pods, name, "admin", "cat", "/proc/self/maps")
        assert "libtessera" not in maps
    finally:
        vertical.delete(pods, name)
    assert smi(pods, "eight", "memory.total") == ["10240"] * 8


def test_a_class_that_is_misspelt_is_told_about_the_claim(cluster: Cluster) -> None:
    name = "claims-misspelt"
    try:
        vertical.apply(cluster, name, "misspelt-class.yaml")

        def probe() -> list[dict[str, Any]] | None:
            events = vertical.get(cluster, "events", "-n", name)["items"]
            return [event for event in events if event["reason"] == "ShareConfigRefused"] or None

        (event,) = vertical.wait_until("an event about the claim", probe)
        assert event["involvedObject"]["kind"] == "ResourceClaim"
        assert "parameters.corepolicy: there is no such field" in event["message"]
        described = cluster.kubectl("describe", "resourceclaim", "misspelt", "-n", name)
        assert "ShareConfigRefused" in described
        of_pod = ("describe", "pod", "misspelt", "-n", name)
        vertical.wait_until(
            "the kubelet's own event", lambda: "there is no such field" in cluster.kubectl(*of_pod)
        )
    finally:
        vertical.delete(cluster, name)
        cluster.kubectl("delete", "deviceclass", "misspelt", "--ignore-not-found")


def toolkit_document(native: dict[str, Any], driver: dict[str, Any], uuids: dict[str, str]) -> dict[str, Any]:
    """What our own documents hand out, in the words of nvidia-ctk. `uuids`: by grant."""
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": uuids[device["name"]],
                "containerEdits": {"deviceNodes": device["containerEdits"]["deviceNodes"]},
            }
            for device in native["devices"]
            if device["name"] in uuids
        ],
        "containerEdits": {**driver["containerEdits"], "env": ["NVIDIA_VISIBLE_DEVICES=void"]},
    }


def ready(cluster: Cluster) -> str:
    """What the agent says of itself."""
    selector = ("-l", "app.kubernetes.io/name=tessera-driver")
    found = vertical.get(cluster, "pods", "-n", SYSTEM_NAMESPACE, *selector)["items"]
    path = f"/api/v1/namespaces/{SYSTEM_NAMESPACE}/pods/{{}}:9470/proxy/readyz"
    pages = [path.format(agent["metadata"]["name"]) for agent in found]
    return "".join(cluster.kubectl("get", "--raw", page, check=False) for page in pages)


def test_the_toolkits_document_is_used_where_there_is_one(pods: Cluster) -> None:
    """A second CDI id for a real runtime: driver and card from NVIDIA's document, limits from ours."""
    claim = claim_of(pods, "eight")
    uid = claim["metadata"]["uid"]
    names = {card.device: card.uuid for card in vertical.cards(pods)}
    uuids = {
        grant_of(claim, result): names[result["device"]]
        for result in claim["status"]["allocation"]["devices"]["results"]
    }
    driver = json.loads(pods.on_node(0, "cat", "/var/run/cdi/gpu.tessera.dev-driver_files.json"))
    text = json.dumps(toolkit_document(document_of(pods, uid), driver, uuids)).encode()
    encoded = base64.b64encode(text).decode()
    script = f"mkdir -p /etc/cdi && echo {encoded} | base64 -d > {TOOLKIT}.new && mv {TOOLKIT}.new {TOOLKIT}"
    name = "claims-toolkit"
    try:
        pods.on_node(0, "sh", "-c", script)
        vertical.wait_until(
            "the agent to see the document", lambda: "CDI edits are the toolkit's" in ready(pods)
        )
        vertical.apply(pods, name, "native.yaml")
        vertical.running(pods, name, "app=native", 1)
        assert vertical.allocate(pods, name, "native").held == 8192 * MEBIBYTE
        own = document_of(pods, claim_of(pods, "native", name)["metadata"]["uid"])
        assert "containerEdits" not in own
        assert "deviceNodes" not in own["devices"][0]["containerEdits"]
        # A real runtime puts a shim over the driver of that document.
        vertical.apply(pods, name, "shim.yaml")
        vertical.running(pods, name, "app=shim", 2)
        for pod, covered in (("shim", True), ("preload", False)):
            look = ("grep", "-c", "tessera_shim", "/usr/lib/x86_64-linux-gnu/libcuda.so.1")
            assert (vertical.execute(pods, name, pod, *look, check=False).strip() != "0") is covered
            assert vertical.allocate(pods, name, pod).held == 3000 * MEBIBYTE
        # Who was prepared before keeps its own document.
        assert document_of(pods, uid)["devices"][0]["containerEdits"]["deviceNodes"]
    finally:
        pods.on_node(0, "rm", "-f", TOOLKIT)
        vertical.delete(pods, name)
