"""What dashboards see of quotas, under our names and under HAMi's."""

from __future__ import annotations

from prometheus_client import generate_latest

from claim_mutator.metrics import Metrics
from claim_mutator.names import ResourceNames
from claim_mutator.quota import limits
from claim_mutator.quota.cost import Cost
from claim_mutator.quota.limits import Quota

HARD = {
    "limits.nvidia.com/gpumem": "10",
    "limits.nvidia.com/gpucores": "150",
    "limits.nvidia.com/gpu": "4",
    "requests.nvidia.com/gpumem": "12",
}
USED = Cost(cards=2, memory=3 * 1024, cores=60)


def quota() -> Quota:
    document = {"metadata": {"namespace": "team", "name": "gpus"}, "spec": {"hard": HARD}}
    found = limits.read(document, ResourceNames(), memory_factor=1024)
    assert found is not None
    return found


def series(metrics: Metrics, prefix: str) -> set[str]:
    lines = generate_latest(metrics.registry).decode().splitlines()
    return {line for line in lines if line.startswith(prefix)}


def test_of_hamis_metrics_there_are_those_that_hami_has() -> None:
    """Memory and compute under `limits.`; the resource's name, MiB that are used, the limit as written."""
    metrics = Metrics(legacy=True)
    metrics.counted(quota(), USED)
    cores = 'namespace="team",quota_name="nvidia.com/gpucores",zone="vGPU"'
    memory = 'namespace="team",quota_name="nvidia.com/gpumem",zone="vGPU"'
    assert series(metrics, "hami_") == {
        f'hami_resource_quota_used{{limit="150",{cores}}} 60.0',
        f'hami_resource_quota_used{{limit="10",{memory}}} 3072.0',
        f"hami_resource_quota_limit{{{cores}}} 150.0",
        f"hami_resource_quota_limit{{{memory}}} 10.0",
    }
    metrics.gone(quota())
    assert series(metrics, "hami_") == set()


def test_ours_are_in_the_quotas_unit() -> None:
    metrics = Metrics()
    metrics.counted(quota(), USED)
    found = series(metrics, "tessera_quota_")
    labels = 'key="limits.nvidia.com/gpumem",namespace="team",quota="gpus"'
    assert {f"tessera_quota_used{{{labels}}} 3.0", f"tessera_quota_hard{{{labels}}} 10.0"} <= found
    assert len(found) == 2 * len(HARD)
    assert series(metrics, "hami_") == set()
    metrics.gone(quota())
    assert series(metrics, "tessera_quota_") == set()
