"""Flags and files of the components, by what the machine allows and a person chooses."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from tests.cluster import configuration, credentials
from tests.cluster.configuration import Machine, Settings
from tests.cluster.credentials import Credentials

PKI = Credentials(Path("/pki"))
ABLE = Machine(cgroup_v2=True, sys_resource=True, open_files=1 << 20, nat=True)
POOR = Machine(cgroup_v2=False, sys_resource=False, open_files=20000, nat=False)


def kubelet(machine: Machine, settings: Settings = Settings()) -> dict[str, Any]:  # noqa: B008 - frozen
    text = configuration.kubelet_configuration(1, "/tessera-x/node-1", PKI, machine, settings)
    document: dict[str, Any] = json.loads(text)
    return document


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(ABLE, {}, id="able"),
        pytest.param(
            POOR, {"failCgroupV1": False, "oomScoreAdj": 0, "maxOpenFiles": 20000}, id="v1, limited"
        ),
    ],
)
def test_kubelet_on_machines(machine: Machine, expected: dict[str, Any]) -> None:
    document = kubelet(machine)
    wanted = ("failCgroupV1", "oomScoreAdj", "maxOpenFiles")
    assert {key: document[key] for key in wanted if key in document} == expected
    assert document["cgroupRoot"] == "/tessera-x/node-1"
    assert document["tlsCertFile"] == "/pki/node-1.crt"


def test_kubelet_fields_of_a_person_win() -> None:
    document = kubelet(ABLE, Settings(feature_gates={"A": True}, kubelet={"cpuManagerPolicy": "static"}))
    assert document["featureGates"] == {"A": True}
    assert document["cpuManagerPolicy"] == "static"


NEEDED = {"DRAConsumableCapacity": True, "DRADeviceTaints": True, "ResourceHealthStatus": True}


@pytest.mark.parametrize(
    ("minor", "chosen", "expected"),
    [
        (35, {}, NEEDED),
        (35, {"A": True}, NEEDED | {"A": True}),
        (35, {"DRADeviceTaints": False}, NEEDED | {"DRADeviceTaints": False}),
        (36, {}, {}),
        (37, {"A": True}, {"A": True}),
    ],
    ids=["1.35", "1.35, one more", "1.35, off all the same", "1.36", "1.37, one more"],
)
def test_gates_of_a_version(minor: int, chosen: dict[str, bool], expected: dict[str, bool]) -> None:
    assert Settings(feature_gates=chosen).on(minor).feature_gates == expected


def test_gates_reach_every_component_that_takes_them() -> None:
    settings = Settings(feature_gates={"B": False, "A": True}, runtime_config={"g/v1": True})
    for flags in (
        configuration.apiserver(PKI, settings),
        configuration.controller_manager(PKI, settings),
        configuration.scheduler(PKI, settings),
    ):
        assert "--feature-gates=A=true,B=false" in flags
    assert "--runtime-config=g/v1=true" in configuration.apiserver(PKI, settings)
    plain = configuration.apiserver(PKI, Settings())
    assert not [flag for flag in plain if flag.startswith(("--feature-gates", "--runtime-config"))]


@pytest.mark.parametrize("machine", [ABLE, POOR])
def test_containerd(machine: Machine) -> None:
    text = configuration.containerd(Path("/b/runc"), Path("/b"), Path("/w/spec.json"), machine)
    runtime = tomllib.loads(text)["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is not machine.sys_resource
    assert runtime["enable_cdi"] is True
    runc = runtime["containerd"]["runtimes"]["runc"]
    assert (runc["base_runtime_spec"], runc["options"]["BinaryName"]) == ("/w/spec.json", "/b/runc")


@pytest.mark.parametrize(("machine", "plugins"), [(ABLE, ["bridge", "portmap"]), (POOR, ["bridge"])])
def test_pod_network(machine: Machine, plugins: list[str]) -> None:
    document = json.loads(configuration.cni(2, machine))
    assert [plugin["type"] for plugin in document["plugins"]] == plugins
    assert document["plugins"][0]["ipMasq"] is machine.nat
    assert document["plugins"][0]["ipam"]["ranges"] == [[{"subnet": "10.88.2.0/24"}]]


def test_base_spec_adds_the_fake_driver_and_keeps_the_rest() -> None:
    default = {"process": {"rlimits": [1], "cwd": "/"}, "mounts": [{"destination": "/proc"}], "hostname": "h"}
    spec = json.loads(configuration.base_runtime_spec(json.dumps(default)))
    assert [mount["destination"] for mount in spec["mounts"]] == ["/proc", "/run/fakegpu"]
    assert spec["process"] == {"cwd": "/"}
    assert spec["hostname"] == "h"


def test_credentials(tmp_path: Path) -> None:
    issued = credentials.issue(tmp_path, nodes=2)
    authority = x509.load_pem_x509_certificate(issued.file("ca.crt").read_bytes())
    for name, common, organization in (
        ("admin", "admin", "system:masters"),
        ("node-1", "system:node:node-1", "system:nodes"),
        ("scheduler", "system:kube-scheduler", None),
    ):
        certificate = x509.load_pem_x509_certificate(issued.file(f"{name}.crt").read_bytes())
        certificate.verify_directly_issued_by(authority)
        subject = {attribute.oid: attribute.value for attribute in certificate.subject}
        assert subject[NameOID.COMMON_NAME] == common
        assert subject.get(NameOID.ORGANIZATION_NAME) == organization
    server = x509.load_pem_x509_certificate(issued.file("apiserver.crt").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = {str(ip) for ip in names.get_values_for_type(x509.IPAddress)}
    assert addresses == {"10.96.0.1", "10.99.0.1", "127.0.0.1"}
    kubeconfig = yaml.safe_load(issued.file("node-1.conf").read_text())
    assert kubeconfig["users"][0]["user"]["client-key"] == str(tmp_path / "node-1.key")
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
