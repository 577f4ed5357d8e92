"""The chart's admission policies, and what an upgrade of the chart leaves alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster import vertical
from tests.cluster.cluster import Cluster, CommandError
from tests.cluster.vertical import SYSTEM_NAMESPACE
from tests.unit.dra_driver.share_configs import CASES, Case

pytestmark = pytest.mark.cluster

AGENT = f"system:serviceaccount:{SYSTEM_NAMESPACE}:tessera-driver"
NODE = "node-0"


def agent_of(node: str) -> tuple[str, ...]:
    """kubectl's options to speak as the agent's Pod on a node."""
    extra = f"--as-user-extra=authentication.kubernetes.io/node-name={node}"
    groups = [f"--as-group=system:serviceaccounts:{SYSTEM_NAMESPACE}", "--as-group=system:authenticated"]
    return (f"--as={AGENT}", extra, *groups)


def a_slice(node: str, driver: str = vertical.DRIVER) -> str:
    pool = {"name": "policy-test", "generation": 1, "resourceSliceCount": 1}
    return json.dumps(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": "policy-test"},
            "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": []},
        }
    )


@pytest.mark.parametrize(
    ("document", "answer"),
    [
        pytest.param(a_slice("node-1"), f"the agent of node {NODE} may write", id="another-node"),
        pytest.param(
            a_slice(NODE, "gpu.example.com"), "the driver gpu.tessera.dev only", id="another-driver"
        ),
    ],
)
def test_agent_writes_its_own_slices_only(installed_cluster: Cluster, document: str, answer: str) -> None:
    with pytest.raises(CommandError, match=answer):
        installed_cluster.kubectl("create", *agent_of(NODE), "-f", "-", input=document)


def test_agent_writes_its_own_slices(installed_cluster: Cluster) -> None:
    command = ("create", *agent_of(NODE), "--dry-run=server", "-o", "name", "-f", "-")
    assert "policy-test" in installed_cluster.kubectl(*command, input=a_slice(NODE))


@pytest.mark.parametrize("alternatives", [False, True], ids=["exactly", "first-available"])
def test_negative_capacity_is_refused(installed_cluster: Cluster, alternatives: bool) -> None:
    exactly = {
        "deviceClassName": vertical.DRIVER,
        "capacity": {"requests": {"memory": "8Gi", "cores": "-30"}},
    }
    request = {"name": "card"} | (
        {"firstAvailable": [{"name": "one", **exactly}]} if alternatives else {"exactly": exactly}
    )
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "negative"},
        "spec": {"devices": {"requests": [request]}},
    }
    with pytest.raises(CommandError, match="a negative capacity"):
        installed_cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(claim))


@pytest.mark.parametrize("in_template", [False, True], ids=["claim", "template"])
@pytest.mark.parametrize(
    "devices",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"requests": []}, id="no request"),
        pytest.param(
            {"config": [{"opaque": {"driver": "other.example.com", "parameters": {"a": 1}}}]},
            id="config alone",
        ),
        pytest.param(
            {"requests": [{"name": "nic", "exactly": {"deviceClassName": "nic.example.com"}}]}, id="another's"
        ),
    ],
)
def test_claims_without_a_card_are_nobodys_business(
    installed_cluster: Cluster, devices: dict[str, Any], in_template: bool
) -> None:
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if in_template else "ResourceClaim",
        "metadata": {"name": "other"},
        "spec": {"spec": {"devices": devices}} if in_template else {"devices": devices},
    }
    installed_cluster.kubectl("create", "--dry-run=server", "-f", "-", input=json.dumps(claim))


def test_a_pod_without_containers_is_refused_by_kubernetes_in_its_own_words(
    installed_cluster: Cluster,
) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "empty"}, "spec": {}}
    with pytest.raises(CommandError, match=r"spec\.containers: Required value"):
        installed_cluster.kubectl("create", "--validate=false", "-f", "-", input=json.dumps(pod))


@pytest.mark.parametrize("in_template", [False, True], ids=["claim", "template"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_share_configs(installed_cluster: Cluster, case: Case, in_template: bool) -> None:
    """As Prepare judges them: tests/unit/dra_driver/test_share_config.py has the same table."""
    opaque = {"driver": vertical.DRIVER, "parameters": case.parameters}
    devices = {
        "requests": [{"name": "card", "exactly": {"deviceClassName": vertical.DRIVER}}],
        "config": [{"opaque": opaque}],
    }
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if in_template else "ResourceClaim",
        "metadata": {"name": "config"},
        "spec": {"spec": {"devices": devices}} if in_template else {"devices": devices},
    }
    command = ("create", "--dry-run=server", "-f", "-")
    if case.refused is None:
        installed_cluster.kubectl(*command, input=json.dumps(claim))
    else:
        with pytest.raises(CommandError, match=r"spec\.devices\.config") as refused:
            installed_cluster.kubectl(*command, input=json.dumps(claim))
        assert "no such overload" not in str(refused.value)


def test_upgrade_keeps_the_certificates(installed_cluster: Cluster) -> None:
    """Helm's manifests hold neither the CA bundle nor the Secret's content: an upgrade keeps them."""

    def published() -> tuple[str, str]:
        configuration = vertical.get(installed_cluster, "mutatingwebhookconfiguration", "tessera-mutator")
        secret = vertical.get(installed_cluster, "secret", "tessera-mutator-tls", "-n", SYSTEM_NAMESPACE)
        return configuration["webhooks"][0]["clientConfig"]["caBundle"], json.dumps(secret["data"])

    before = published()
    installed_cluster.install_chart({"mutator": {"timeoutSeconds": 9}})
    assert published() == before
    assert all(before)
