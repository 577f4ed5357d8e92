"""A Kubernetes that can't share cards: its API server drops what shares are made of, without a word.

Who says it instead: the agent to the Node, the webhook to everybody who asks for a card.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.cluster import chart, corpus, vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.conftest import VERSIONS
from tests.cluster.node import DRIVER_ROOT
from tests.cluster.rack import create

pytestmark = pytest.mark.cluster

GATE = "DRAConsumableCapacity"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(version=VERSIONS[-1], feature_gates={GATE: False}) as made:
        # Helm would wait for the agent to be ready, which it is not here.
        command = [option for option in chart.upgrade("60s") if option != "--wait"]
        made.helm(*command, input=json.dumps(chart.values(DRIVER_ROOT)))
        deployment = ("deployment/tessera-mutator", "-n", chart.NAMESPACE)
        made.kubectl("rollout", "status", *deployment, "--timeout=240s")
        made.wait_for_webhook()
        yield made


def test_no_share_becomes_a_whole_card(cluster: Cluster) -> None:
    """B123."""
    with pytest.raises(CommandError, match=f"its feature gate {GATE} is off"):
        create(cluster, "default", corpus.runnable("001-default-use"))
    assert not vertical.get(cluster, "resourceclaimtemplates", "-A")["items"]


def test_the_agent_tells_the_node(cluster: Cluster) -> None:
    def told() -> list[str]:
        events = vertical.get(cluster, "events", "-A", "--field-selector=reason=FieldsDropped")["items"]
        return [event["message"] for event in events if GATE in event["message"]]

    vertical.wait_until("the Event", told)
