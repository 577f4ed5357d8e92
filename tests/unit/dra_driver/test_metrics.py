from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from dra_driver.cards.capacity import Scales
from dra_driver.claims.claim_pods import ClaimPods
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.errors import ConfigError, GoneError, OvercommitError, PermanentError, RetryableError
from dra_driver.metrics import exposition, grant_figures, legacy_metrics
from dra_driver.metrics.counters import API_CALLS, API_CODES, REASONS, Metrics, reason_of
from dra_driver.metrics.exposition import Table
from dra_driver.metrics.grant_figures import GrantUse
from dra_driver.names import ClaimUID
from interposer import abi
from kube.client import Call
from kube.errors import Unavailable
from tests.unit.dra_driver.allocations import claim, claim_ref
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(OvercommitError("x"), "overcommit", id="overcommit"),
        pytest.param(GoneError("x"), "gone", id="gone"),
        pytest.param(ConfigError("path", "x"), "config", id="config"),
        pytest.param(PermanentError("x"), "claim", id="permanent"),
        pytest.param(caused(RetryableError("x"), Unavailable(503, "x", "x")), "api-server", id="api"),
        pytest.param(caused(RetryableError("x"), OSError(28, "full")), "files", id="disk-full"),
        pytest.param(RetryableError("x"), "not-yet", id="retryable"),
        pytest.param(KeyError("x"), "internal", id="unforeseen"),
    ],
)
def test_reasons_are_a_closed_set(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
    assert reason in REASONS


@pytest.mark.parametrize(
    ("call", "labels"),
    [
        pytest.param(Call("get", "resourceclaims", 200, 0.1), ("get", "resourceclaims", "2xx"), id="success"),
        pytest.param(Call("get", "resourceclaims", 404, 0.1), ("get", "resourceclaims", "404"), id="404"),
        pytest.param(Call("create", "events", 403, 0.1), ("create", "events", "4xx"), id="other-4xx"),
        pytest.param(Call("watch", "resourceslices", 0, 0.1), ("watch", "resourceslices", "none"), id="none"),
        pytest.param(Call("get", "nodes", 504, 0.1), ("get", "nodes", "5xx"), id="5xx"),
        pytest.param(Call("get", "pods", 200, 0.1), ("other", "other", "2xx"), id="unknown-call"),
    ],
)
def test_api_calls_make_no_new_series(call: Call, labels: tuple[str, str, str]) -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)
    before = len(metrics.render().splitlines())
    metrics.api_called(call)
    verb, resource, code = labels
    found = {"verb": verb, "resource": resource, "code": code}
    assert registry.get_sample_value("tessera_api_requests_total", found) == 1
    del found["code"]
    assert registry.get_sample_value("tessera_api_request_seconds_count", found) == 1
    assert len(metrics.render().splitlines()) == before


def test_series_are_there_from_the_start() -> None:
    text = Metrics(CollectorRegistry()).render().decode()
    for series in (
        'tessera_claims_in_flight{operation="prepare"} 0.0',
        'tessera_claim_errors_total{operation="unprepare",reason="overcommit"} 0.0',
        'tessera_claim_seconds_count{operation="unprepare"} 0.0',
        'tessera_nvml_seconds_count{call="inventory"} 0.0',
        'tessera_prepare_seconds_count{step="lock"} 0.0',
    ):
        assert series in text
    assert text.count("tessera_api_requests_total{") == len(API_CALLS) * len(API_CODES)


def test_in_flight_goes_down_again_after_a_failure() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry)

    def now() -> Any:
        return registry.get_sample_value("tessera_claims_in_flight", {"operation": "prepare"})

    with pytest.raises(KeyError), metrics.claim("prepare"):
        assert now() == 1
        raise KeyError
    assert now() == 0


def entry(name: str, *grants: GrantEntry) -> Entry:
    ref = claim_ref(name)
    return Entry(
        uid=ref.uid, namespace=ref.namespace, name=name, boot_id="b", state=State.PREPARED, grants=grants
    )


def grant(number: int, *, memory: int = GIB, cores: int = 20, limited: bool = True) -> GrantEntry:
    card = RTX_4090 if number < 2 else A100
    return GrantEntry(
        name=f"g{number}",
        request="g0",
        device=card.name,
        uuid=card.uuid,
        memory=memory,
        cores=cores,
        shares=100,
        limited=limited,
    )


ONE = entry("one", grant(0), grant(1))
TWO = entry("two", grant(2, limited=False))


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    """(name, labels' values in the order of their names) → number, as Prometheus' own parser reads it."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_two_shares_of_one_card_are_one_series_and_unlimited_grants_none(tmp_path: Path) -> None:
    directories = GrantDirectories(tmp_path)
    for name in ("g0", "g1"):
        directories.directory(ONE.uid, name).mkdir(parents=True)
        abi.create_usage(directories.directory(ONE.uid, name) / "usage")
    found = samples(exposition.text(grant_figures.tables(grant_figures.uses((ONE, TWO), directories))))
    key = ("one", "default", RTX_4090.uuid)
    assert found == {
        ("tessera_grant_memory_limit_bytes", *key): 2 * GIB,
        ("tessera_grant_cores_limit", *key): 40,
        ("tessera_grant_memory_used_bytes", *key): 0,
    }


def test_a_usage_file_that_can_not_be_read_leaves_its_series_out(tmp_path: Path) -> None:
    found = samples(
        exposition.text(grant_figures.tables(grant_figures.uses((ONE,), GrantDirectories(tmp_path))))
    )
    assert {key[0] for key in found} == {"tessera_grant_memory_limit_bytes", "tessera_grant_cores_limit"}


def test_labels_are_escaped() -> None:
    odd = 'a"b\\c\nd'
    text = exposition.text([Table("t", "Words.", ("l", "m"), [((odd, "é"), 1)])])
    assert samples(text) == {("t", odd, "é"): 1}


def test_hamis_names() -> None:
    uses = [
        GrantUse(ONE, ONE.grants[0], 5),
        GrantUse(ONE, ONE.grants[1], 7),
        GrantUse(TWO, TWO.grants[0], None),
    ]
    pods = ClaimPods(lambda: {ONE.uid})
    pods.saw(claim_ref("one"), claim(claim_ref("one")))
    found = samples(
        exposition.text(
            [
                *legacy_metrics.card_tables("node-a", (RTX_4090, A100), Scales(), uses),
                *legacy_metrics.grant_tables("node-a", uses, pods.of),
            ]
        )
    )
    card = (str(RTX_4090.index or ""), RTX_4090.product_name, RTX_4090.uuid, "node-a", "vGPU")
    assert found["hami_gpu_memory_limit_bytes", *card] == 24 * GIB
    assert found["hami_gpu_core_limit_ratio", *card] == 100
    assert found["hami_gpu_shared_count", *card] == 2
    assert found["hami_gpu_core_allocated_ratio", *card] == 40
    assert found["hami_node_gpu_memory_allocated_ratio", *card] == pytest.approx(2 / 24)
    assert (
        found["hami_vgpu_memory_allocated_bytes", "", RTX_4090.uuid, "default", "node-a", "p", "vGPU"]
        == 2 * GIB
    )
    assert found["hami_vgpu_memory_used_bytes", "", RTX_4090.uuid, "default", "p", "1", "vGPU"] == 7
    assert all(re.fullmatch("hami_[a-z_]+", key[0]) for key in found)


def test_pods_of_claims_that_are_gone_are_forgotten() -> None:
    held: set[ClaimUID] = {claim_ref("0").uid}
    pods = ClaimPods(lambda: held)
    for number in range(1000):
        pods.saw(claim_ref(str(number)), claim(claim_ref(str(number))))
    assert pods.of(claim_ref("0").uid) == "p"
    assert len(pods._pods) < 100
