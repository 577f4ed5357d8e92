from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cards.capacity import Scales
from dra_driver.claims.allocation import read_allocation
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.metadata import MetadataFiles, encode, metadata_of
from dra_driver.claims.plan import Plan, make_plan
from dra_driver.names import DRIVER, DeviceName
from dra_driver.slices.documents import device_lists
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, result
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards
from tests.unit.golden import assert_golden
from tests.unit.leases import leased

GOLDEN = Path(__file__).parent / "golden"
REF = claim_ref()


def plan(*results: dict[str, Any], annotations: dict[str, str] | None = None) -> Plan:
    raw = claim(REF, *results)
    raw["metadata"]["annotations"] = annotations or {}
    return make_plan(read_allocation(REF, raw, driver=DRIVER, node=NODE), two_cards(), Scales())


def attributes() -> dict[DeviceName, Any]:
    lists = device_lists(two_cards(), Scales())
    return {device["name"]: device["attributes"] for devices in lists for device in devices}


FROM_TEMPLATE = {"resource.kubernetes.io/pod-claim-name": "gpu"}
SHARE = plan(result(RTX_4090, "3000Mi", request="g0/s24"), annotations=FROM_TEMPLATE)
TWO_REQUESTS = plan(
    result(RTX_4090, "3000Mi"),
    result(A100, "1Gi", "0", share=2),
    result(A100, "80Gi", "100", "1k", request="g1", share=3),
)


def test_golden() -> None:
    """As a container reads it: once per version of the API, the newest first."""
    (file,) = metadata_of(SHARE, attributes())
    assert_golden(GOLDEN / "device-metadata.json", encode(file.content, 1).decode())


def objects(text: str) -> list[dict[str, Any]]:
    """A stream of JSON objects, as the consumers of KEP-5304 read it."""
    decoder, found, rest = json.JSONDecoder(), [], text.lstrip()
    while rest:
        item, end = decoder.raw_decode(rest)
        found.append(item)
        rest = rest[end:].lstrip()
    return found


def test_every_version_says_the_same() -> None:
    (file,) = metadata_of(SHARE, attributes())
    beta, alpha = objects(encode(file.content, 7).decode())
    assert beta.pop("apiVersion") == "metadata.resource.k8s.io/v1beta1"
    assert alpha.pop("apiVersion") == "metadata.resource.k8s.io/v1alpha1"
    assert beta == alpha
    assert beta["metadata"]["generation"] == 7


@pytest.mark.parametrize(
    ("made", "paths"),
    [
        pytest.param(
            TWO_REQUESTS,
            ["resourceclaims/claim/g0", "resourceclaims/claim/g1"],
            id="a-claim-that-a-pod-names",
        ),
        pytest.param(SHARE, ["resourceclaimtemplates/gpu/g0"], id="from-a-template-and-an-alternative"),
    ],
)
def test_where_a_container_finds_it(made: Plan, paths: list[str]) -> None:
    assert [file.container_path for file in metadata_of(made, {})] == [
        f"/var/run/kubernetes.io/dra-device-attributes/{path}/gpu.tessera.dev-metadata.json" for path in paths
    ]


def test_devices_of_a_request() -> None:
    first, second = metadata_of(TWO_REQUESTS, attributes())
    assert [device["name"] for device in first.content["requests"][0]["devices"]] == [
        RTX_4090.name,
        A100.name,
    ]
    share, uncapped = (device["attributes"] for device in first.content["requests"][0]["devices"])
    assert share["uuid"] == {"string": RTX_4090.uuid}
    assert (share["memoryLimitBytes"], share["coresLimitPercent"]) == ({"int": 3000 << 20}, {"int": 30})
    assert uncapped["memoryLimitBytes"] == {"int": 1 << 30}
    assert "coresLimitPercent" not in uncapped
    (whole,) = second.content["requests"][0]["devices"]
    assert "memoryLimitBytes" not in whole["attributes"]
    for device in (*first.content["requests"][0]["devices"], whole):
        assert len(device["attributes"]) <= 32  # the API's limit


@pytest.fixture
def files(tmp_path: Path) -> MetadataFiles:
    return MetadataFiles(GrantDirectories(tmp_path), attributes)


def generation(files: MetadataFiles) -> int:
    return int(objects(files.path(REF.uid, "g0").read_text())[0]["metadata"]["generation"])


def test_written_and_found_again(files: MetadataFiles) -> None:
    wanted = files.of(SHARE)
    assert not files.are_written(REF.uid, wanted)
    files.write(REF.uid, wanted)
    assert files.are_written(REF.uid, wanted)
    path = files.path(REF.uid, "g0")
    assert path.stat().st_mode & 0o777 == 0o444
    assert path.parent.stat().st_mode & 0o777 == 0o755
    mount = files.mount(REF.uid, wanted[0])
    assert mount.host_path == str(path)
    assert "ro" in mount.options


def test_the_same_is_not_written_again(files: MetadataFiles) -> None:
    wanted = files.of(SHARE)
    files.write(REF.uid, wanted)
    before = files.path(REF.uid, "g0").stat().st_ino
    files.write(REF.uid, wanted)
    assert files.path(REF.uid, "g0").stat().st_ino == before
    assert generation(files) == 1


def test_a_change_has_a_higher_generation(files: MetadataFiles) -> None:
    files.write(REF.uid, files.of(SHARE))
    files.write(REF.uid, metadata_of(SHARE, {RTX_4090.name: {"uuid": {"string": "another"}}}))
    assert generation(files) == 2


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"metadata":{"generation":"x"}}', b"\xff"])
def test_damage_is_made_good(files: MetadataFiles, damage: bytes) -> None:
    wanted = files.of(SHARE)
    files.write(REF.uid, wanted)
    path = files.path(REF.uid, "g0")
    path.unlink()
    path.write_bytes(damage)
    assert not files.are_written(REF.uid, wanted)
    files.write(REF.uid, wanted)
    assert files.are_written(REF.uid, wanted)


def test_a_tenant_with_a_lease_holds_up_nobody(files: MetadataFiles) -> None:
    wanted = files.of(SHARE)
    files.write(REF.uid, wanted)
    with leased(files.path(REF.uid, "g0"), fcntl.F_WRLCK):
        assert not files.are_written(REF.uid, wanted)
        files.write(REF.uid, wanted)
        assert files.are_written(REF.uid, wanted)


def test_stale_files_go(files: MetadataFiles) -> None:
    files.write(REF.uid, files.of(TWO_REQUESTS))
    files.write(REF.uid, files.of(SHARE))
    assert [path.name for path in files.path(REF.uid, "g0").parent.iterdir()] == ["g0.json"]


def test_switched_off_nothing_is_wanted(tmp_path: Path) -> None:
    off = MetadataFiles(GrantDirectories(tmp_path), None)
    assert off.of(SHARE) == ()
    off.write(REF.uid, ())
    assert off.are_written(REF.uid, ())
    assert list(tmp_path.iterdir()) == []


def test_it_goes_with_the_grants(files: MetadataFiles, tmp_path: Path) -> None:
    directories = GrantDirectories(tmp_path)
    directories.make(REF.uid, SHARE.grants)
    files.write(REF.uid, files.of(SHARE))
    directories.make(REF.uid, SHARE.grants)  # which removes what is stale, but not this
    assert directories.are_made(REF.uid, SHARE.grants)
    assert files.are_written(REF.uid, files.of(SHARE))
    assert directories.remove(REF.uid)
    assert list(tmp_path.rglob("*.json")) == []


def test_without_a_pods_name_for_it_a_claim_has_its_own() -> None:
    (file,) = metadata_of(replace(SHARE, pod_claim_name=None), {})
    assert "podClaimName" not in file.content
    assert "/resourceclaims/claim/" in file.container_path
