"""Another agent takes over while Pods start, and an agent that dies at every point of its work."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from dra_driver.claims.ledger_file import Entry, State, decode, encode
from dra_driver.claims.steps import PREPARE, UNPREPARE
from dra_driver.names import ClaimUID
from tests import killing
from tests.cluster import pods, vertical
from tests.cluster.cluster import Cluster
from tests.cluster.vertical import SYSTEM_NAMESPACE

pytestmark = pytest.mark.cluster

NAMESPACE = "updates"
AGENT = "daemonset/tessera-driver"
LEDGER = "/var/lib/tessera/ledger"
ORDER = "/var/lib/tessera/order"
LONGEST = 60.0  # seconds from a Pod's creation to its container's start, on a machine that does all of it


@pytest.fixture
def cluster(installed_cluster: Cluster) -> Iterator[Cluster]:
    """Afterwards nothing of the Pods may be left."""
    vertical.apply(installed_cluster, NAMESPACE, "small.yaml")
    yield installed_cluster
    vertical.delete(installed_cluster, NAMESPACE)


def agents(cluster: Cluster) -> set[str]:
    selector = "app.kubernetes.io/name=tessera-driver"
    found = vertical.get(cluster, "pods", "-n", SYSTEM_NAMESPACE, "-l", selector)["items"]
    return {each["metadata"]["uid"] for each in found}


def rolled_out(cluster: Cluster) -> set[str]:
    """The agents' Pods, of which no old one is left."""
    cluster.kubectl("rollout", "status", AGENT, "-n", SYSTEM_NAMESPACE, "--timeout=240s")
    vertical.wait_until("the old agent to end", lambda: len(agents(cluster)) == 1)
    return agents(cluster)


def entries(cluster: Cluster) -> dict[str, Entry]:
    """The node's ledger, by UID."""
    directory = cluster.node().path(LEDGER)
    return {path.stem: decode(path.read_bytes(), path.stem) for path in directory.glob("*.json")}


def test_no_pod_waits_while_the_agent_is_replaced(cluster: Cluster) -> None:
    before = agents(cluster)
    with pods.one_a_second(cluster, NAMESPACE) as names:
        vertical.wait_until("Pods to start", lambda: len(names) > 2)
        cluster.kubectl("rollout", "restart", AGENT, "-n", SYSTEM_NAMESPACE)
        between = rolled_out(cluster)
        cluster.install_chart({"driver": {"logLevel": "debug"}})
        rolled_out(cluster)
    cluster.install_chart()
    assert before.isdisjoint(between)
    done = pods.succeeded(cluster, NAMESPACE, "each-second", len(names))
    assert len(done) == len(names)
    assert pods.prepare_failures(cluster, NAMESPACE) == []
    delays = {each["metadata"]["name"]: pods.start_delay(each) for each in done}
    assert max(delays.values()) <= LONGEST, delays


@pytest.fixture
def killed_agent(cluster: Cluster) -> Iterator[Cluster]:
    """The agent's own main, which dies where it is told to, and is started again at once."""
    program = killing.text(ORDER, entry="run_again", installed_in="/opt/tessera")
    path = "/spec/template/spec/containers/0/command"
    patch = [{"op": "replace", "path": path, "value": ["python3", "-I", "-c", program]}]
    options = ("-n", SYSTEM_NAMESPACE, "--type=json", "-p", json.dumps(patch))
    cluster.kubectl("patch", AGENT, *options)
    rolled_out(cluster)
    yield cluster
    cluster.node().path(ORDER).unlink(missing_ok=True)
    cluster.kubectl("rollout", "undo", AGENT, "-n", SYSTEM_NAMESPACE)
    rolled_out(cluster)


def test_killed_between_every_two_steps(killed_agent: Cluster) -> None:
    """A Pod for each point, all at once; each is killed once at every point, in any order."""
    cluster, order = killed_agent, killed_agent.node().path(ORDER)
    points = killing.before_each_and_after_the_last(PREPARE)
    killing.write(order, points)
    wanted = [pods.pod(f"killed-{number}", "sleep", "3600", app="killed") for number in range(len(points))]
    pods.create(cluster, NAMESPACE, *wanted)
    impatiently(cluster, "a kill at every point", lambda: not killing.read(order))
    vertical.running(cluster, NAMESPACE, "app=killed", len(points))
    uids = vertical.claim_uids(cluster, NAMESPACE)
    assert len(uids) == len(points)
    assert {uid: entries(cluster)[uid].state for uid in uids} == dict.fromkeys(uids, State.PREPARED)
    killing.write(order, killing.before_each_and_after_the_last(UNPREPARE))
    cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--wait=false")
    impatiently(cluster, "a kill at every point", lambda: not killing.read(order))
    cluster.kubectl("delete", "pods", "--all", "-n", NAMESPACE, "--wait=true", "--timeout=180s")
    wait_for_nothing(cluster, uids)
    places = ("/var/lib/tessera", "/run/tessera", "/var/run/cdi")
    search = ("find", *places, "-name", ".tessera-tmp-*")
    # What is being written at the moment is none; with -ignore_readdir_race it may go while it is found.
    vertical.wait_until("no leftovers", lambda: cluster.on_node(0, *search, "-ignore_readdir_race") == "")


def impatiently(cluster: Cluster, what: str, probe: Callable[[], bool]) -> None:
    """Waits for what takes another try: the kubelet's comes after a minute, or when a Pod has changed."""

    def look() -> bool:
        if not probe():
            now = f"changed={time.monotonic()}"
            cluster.kubectl("annotate", "pods", "--all", "--overwrite", "-n", NAMESPACE, now, check=False)
            time.sleep(1)
        return probe()

    vertical.wait_until(what, look, 300)


def wait_for_nothing(cluster: Cluster, uids: list[str]) -> None:
    def is_clean() -> bool:
        return not any(vertical.traces(cluster, NAMESPACE, uids)[what] for what in vertical.NODE_TRACES)

    vertical.wait_until("the claims' files to go", is_clean)


def test_two_shares_of_one_card_in_one_claim(cluster: Cluster) -> None:
    pods.create(cluster, NAMESPACE, pods.pod("twice", "sleep", "3600", template="twice", app="twice"))
    vertical.running(cluster, NAMESPACE, "app=twice", 1)
    shares = vertical.shares(cluster, NAMESPACE)
    assert [(share.request, share.memory) for share in shares] == [("one", 64), ("two", 128)]
    assert len({share.device for share in shares}) == 1
    assert len({share.share_id for share in shares}) == 2
    (uid,) = vertical.claim_uids(cluster, NAMESPACE)
    grants = sorted(f"{uid}-{share.request}-{share.share_id[:8]}" for share in shares)
    assert vertical.execute(cluster, NAMESPACE, "twice", "ls", "/run/tessera/grants").split() == grants
    assert sorted(grant.name for grant in entries(cluster)[uid].grants) == grants


def test_over_commit_that_is_forged_in_the_ledger_is_refused(cluster: Cluster) -> None:
    """The scheduler knows nothing of it; the node does."""
    pods.create(cluster, NAMESPACE, pods.pod("first", "sleep", "3600", template="most", app="first"))
    vertical.running(cluster, NAMESPACE, "app=first", 1)
    (uid,) = vertical.claim_uids(cluster, NAMESPACE)
    real = entries(cluster)[uid]
    forged = cluster.node().path(f"{LEDGER}/forged.json")
    forged.write_bytes(encode(msgspec.structs.replace(real, uid=ClaimUID("forged"), name="forged")))
    cluster.kubectl("delete", "pod", "first", "-n", NAMESPACE, "--wait=true", "--timeout=180s")
    pods.create(cluster, NAMESPACE, pods.pod("second", "sleep", "3600", template="most", app="second"))
    (message, *_) = vertical.wait_until(
        "the second Pod to be refused", lambda: pods.prepare_failures(cluster, NAMESPACE)
    )
    assert "would be over-committed, memory 40Gi of 24Gi" in message
    forged.unlink(missing_ok=True)
    phase = ("get", "pod", "second", "-n", NAMESPACE, "-o", "jsonpath={.status.phase}")
    impatiently(cluster, "the second Pod to run", lambda: cluster.kubectl(*phase) == "Running")
