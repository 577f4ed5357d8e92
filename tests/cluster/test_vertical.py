"""The vertical on a real Kubernetes: a HAMi Pod gets its share, and only its share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.vertical import MEBIBYTE
from tests.cluster.waiting import look_again

pytestmark = pytest.mark.cluster

LIMIT = 3000 * MEBIBYTE
SMALL, LARGE = 24 * 1024, 80 * 1024  # MiB, tests/fakegpu/inventories/two-cards.ini
VENDOR = "nvidia.com/"


@pytest.fixture(scope="module")
def cluster(installed_cluster: Cluster) -> Cluster:
    return installed_cluster


@pytest.fixture
def namespace(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own; when it is gone, nothing may be left of it anywhere."""
    name = "t-" + request.node.originalname.removeprefix("test_").replace("_", "-")
    yield name
    vertical.delete(cluster, name)


@pytest.fixture(scope="module")
def legacy(cluster: Cluster) -> Iterator[list[str]]:
    """The three Pods of the legacy Deployment, running, in namespace `legacy`."""
    vertical.apply(cluster, "legacy", "legacy.yaml")
    yield vertical.running(cluster, "legacy", "app=legacy", 3)
    vertical.delete(cluster, "legacy")


def test_slice_publishes_both_cards(cluster: Cluster) -> None:
    cards = vertical.cards(cluster)
    assert sorted(card.memory for card in cards) == [SMALL, LARGE]
    assert {(card.cores, card.shares) for card in cards} == {(100, 1000)}
    assert all(card.device == "gpu-" + card.uuid.removeprefix("GPU-").lower() for card in cards)


def test_agent_restart_writes_no_slice(cluster: Cluster) -> None:
    before = vertical.get(cluster, "resourceslices")["items"]
    cluster.kubectl("rollout", "restart", "daemonset/tessera-driver", "-n", vertical.SYSTEM_NAMESPACE)
    cluster.kubectl(
        "rollout", "status", "daemonset/tessera-driver", "-n", vertical.SYSTEM_NAMESPACE, "--timeout=180s"
    )
    after = vertical.get(cluster, "resourceslices")["items"]
    assert [s["metadata"]["resourceVersion"] for s in after] == [
        s["metadata"]["resourceVersion"] for s in before
    ]


def test_deleted_slice_comes_back(cluster: Cluster) -> None:
    cluster.kubectl("delete", "resourceslices", "--all", "--wait=true")
    cards = vertical.wait_until("the slice to come back", lambda: vertical.cards(cluster))
    assert len(cards) == 2


@pytest.mark.usefixtures("legacy")
def test_legacy_pods_are_converted(cluster: Cluster) -> None:
    for pod in vertical.get(cluster, "pods", "-n", "legacy")["items"]:
        resources = pod["spec"]["containers"][0]["resources"]
        assert not [k for part in ("limits", "requests") for k in resources.get(part, {}) if VENDOR in k]
        assert len(resources["claims"]) == 1
        assert pod["spec"]["schedulerName"] == "default-scheduler"
    templates = vertical.get(cluster, "resourceclaimtemplates", "-n", "legacy")["items"]
    assert len(templates) == 1
    assert templates[0]["metadata"]["name"].startswith("tessera-")


def test_legacy_pods_share_one_card(cluster: Cluster, legacy: list[str]) -> None:
    shares = vertical.shares(cluster, "legacy")
    assert [share.pod for share in shares] == legacy
    assert {(share.memory, share.cores, share.shares) for share in shares} == {(3000, 30, 100)}
    assert len({share.device for share in shares}) == 1
    assert len({share.share_id for share in shares}) == 3


def test_container_sees_its_share(cluster: Cluster, legacy: list[str]) -> None:
    query = ("nvidia-smi", "--query-gpu=name,memory.total,memory.used", "--format=csv,noheader,nounits")
    seen = vertical.execute(cluster, "legacy", legacy[0], *query).strip().split(", ")
    assert seen[1:] == ["3000", "0"]
    share = next(s for s in vertical.shares(cluster, "legacy") if s.pod == legacy[0])
    card = next(c for c in vertical.cards(cluster) if c.device == share.device)
    assert seen[0] == card.product


def test_memory_ends_at_the_limit(cluster: Cluster, legacy: list[str]) -> None:
    outcome = vertical.fill_beside_neighbour(cluster, "legacy", filler=legacy[0], neighbour=legacy[1])
    assert outcome.filler.held == LIMIT
    assert outcome.filler.refusal == "CUDA_ERROR_OUT_OF_MEMORY"
    assert (outcome.filler.free, outcome.filler.total) == (0, LIMIT)
    assert outcome.neighbour.held == 2000 * MEBIBYTE
    assert outcome.neighbour.refusal == ""


@pytest.mark.parametrize("road", ["plain", "managed", "async", "pool", "pitch"])
def test_limit_in_one_block(cluster: Cluster, legacy: list[str], road: str) -> None:
    """3000 MiB in one block are granted; of 3000 MiB + 1 byte, that byte is refused."""
    options = ("--road", road, "--block", str(LIMIT), "--total")
    granted = vertical.allocate(cluster, "legacy", legacy[0], *options, str(LIMIT))
    assert (granted.held, granted.blocks, granted.refusal) == (LIMIT, 1, "")
    refused = vertical.allocate(cluster, "legacy", legacy[0], *options, str(LIMIT + 1))
    assert (refused.held, refused.refusal) == (LIMIT, "CUDA_ERROR_OUT_OF_MEMORY")


def burned(cluster: Cluster, namespace: str, *pods: str) -> list[float]:
    """Percent of the card's time that each has got, in six seconds at once."""
    return [burn.share_percent for burn in vertical.burn_together(cluster, namespace, pods, seconds=6)]


def test_compute_is_what_was_asked(cluster: Cluster, legacy: list[str]) -> None:
    """Three at once have 30 % each, and their parts of the tenth that nobody has asked for."""
    expected = pytest.approx([100 / 3] * 3, rel=0.2)
    assert look_again(lambda: burned(cluster, "legacy", *legacy), lambda found: found == expected) == expected


def test_idle_compute_is_lent(cluster: Cluster, legacy: list[str]) -> None:
    (alone,) = look_again(lambda: burned(cluster, "legacy", legacy[0]), lambda found: found[0] > 60)
    assert alone > 60  # of six seconds, of which the first is spent on being noticed


def test_top_shows_what_computes(cluster: Cluster, legacy: list[str]) -> None:
    """In the agent's Pod, while one of three computes."""
    seen: list[dict[str, float]] = []
    with ThreadPoolExecutor(1) as pool:
        burning = pool.submit(burned, cluster, "legacy", legacy[0])
        while not burning.done():
            seen.append(computing(cluster))
    assert [len(each) for each in seen] == [3] * len(seen)
    assert any(sum(percent > 20 for percent in each.values()) == 1 for each in seen), seen


def computing(cluster: Cluster) -> dict[str, float]:
    """By claim of namespace `legacy`, percent of the card's time, as `tessera top` prints it."""
    agent = (vertical.SYSTEM_NAMESPACE, "ds/tessera-driver")
    printed = vertical.execute(cluster, *agent, "tessera", "top", "--once", "--period", "1")
    row = re.compile(r"GPU-\S+ +(legacy/\S+) .* of 3000 MiB +([0-9.]+) of 30 %")
    return {found[1]: float(found[2]) for found in map(row.match, printed.splitlines()) if found is not None}


def test_compute_is_a_cap_where_that_is_asked(cluster: Cluster, namespace: str) -> None:
    vertical.apply(cluster, namespace, "forced.yaml")
    vertical.running(cluster, namespace, "app=forced", 1)
    alone = look_again(lambda: burned(cluster, namespace, "forced"), lambda found: found[0] >= 24)
    assert alone == [pytest.approx(30, rel=0.2)]


def test_limits_are_not_the_tenants(cluster: Cluster, legacy: list[str]) -> None:
    """No environment variable loosens a limit, and the tenant can't write its limits."""
    loose = (
        "env",
        "CUDA_DEVICE_MEMORY_LIMIT=0",
        "CUDA_DISABLE_CONTROL=true",
        "LD_PRELOAD=",
        "cuda-alloc",
        "--json",
    )
    assert json.loads(vertical.execute(cluster, "legacy", legacy[0], *loose))["held_bytes"] == LIMIT
    script = "for f in /run/tessera/grants/*/limits; do echo x > $f; done"
    with pytest.raises(CommandError):
        vertical.execute(cluster, "legacy", legacy[0], "sh", "-c", script)


def test_native_claim(cluster: Cluster, namespace: str) -> None:
    vertical.apply(cluster, namespace, "native.yaml")
    vertical.running(cluster, namespace, "app=native", 1)
    (share,) = vertical.shares(cluster, namespace)
    assert (share.memory, share.cores, share.shares) == (8192, 30, 100)
    assert vertical.allocate(cluster, namespace, "native").held == 8192 * MEBIBYTE


def test_percentage_is_of_whichever_card(cluster: Cluster, namespace: str) -> None:
    """With cards of two sizes each is an alternative; the share is half of the card that was taken."""
    vertical.apply(cluster, namespace, "percent.yaml")
    vertical.running(cluster, namespace, "app=percent", 1)
    (share,) = vertical.shares(cluster, namespace)
    card = next(c for c in vertical.cards(cluster) if c.device == share.device)
    assert share.request == f"g0/s{card.memory // 1024}"
    assert (share.memory, share.cores) == (card.memory // 2, 10)
    assert vertical.allocate(cluster, namespace, "percent").held == share.memory * MEBIBYTE


def test_refused_pod_is_answered_and_leaves_nothing(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(CommandError) as refused:
        vertical.apply(cluster, namespace, "refused.yaml")
    for word in ("work", "nvidia.com/gpumem", "3Gi", "3072"):
        assert word in str(refused.value)
    assert vertical.get(cluster, "pods,resourceclaimtemplates", "-n", namespace)["items"] == []


def test_dry_run_converts_without_effect(cluster: Cluster, namespace: str) -> None:
    vertical.create_namespace(cluster, namespace)
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "dry"},
        "spec": {
            "containers": [
                {"name": "work", "image": "x", "resources": {"limits": {"nvidia.com/gpumem": "1000"}}}
            ]
        },
    }
    answer = cluster.kubectl(
        "create", "-n", namespace, "--dry-run=server", "-o", "json", "-f", "-", input=json.dumps(pod)
    )
    assert json.loads(answer)["spec"]["resourceClaims"][0]["resourceClaimTemplateName"].startswith("tessera-")
    assert vertical.get(cluster, "resourceclaimtemplates", "-n", namespace)["items"] == []


@pytest.mark.parametrize(
    ("name", "port", "metric"),
    [
        pytest.param("tessera-driver", 9470, "tessera_grant_memory_limit_bytes", id="driver"),
        pytest.param("tessera-mutator", 9471, "tessera_mutator_admissions_total", id="mutator"),
    ],
)
@pytest.mark.usefixtures("legacy")
def test_metrics(cluster: Cluster, name: str, port: int, metric: str) -> None:
    pages = vertical.metrics(cluster, name, port)
    assert pages
    assert any(
        line.startswith(metric) and "{" in line for page in pages.values() for line in page.splitlines()
    )
