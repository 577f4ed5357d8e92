"""What kind is told: the committed configurations, and what a machine adds to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import configuration, kind
from tests.cluster.configuration import Machine
from tests.cluster.errors import MissingError

ABLE = Machine(cgroup_v2=True, sys_resource=True, open_files=1 << 20, nat=True)
POOR = Machine(cgroup_v2=False, sys_resource=False, open_files=20000, nat=False)
MINORS = ("1.35", "1.36", "1.37")


def read(version: str) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(kind.committed(version).read_text())
    return document


@pytest.mark.parametrize("minor", MINORS)
def test_committed_configurations(minor: str) -> None:
    document = read(minor)
    assert document["name"] == kind.NAME
    assert [node["role"] for node in document["nodes"]] == ["control-plane", "worker"]
    assert {node["image"].split(":v")[1].rsplit(".", 1)[0] for node in document["nodes"]} == {minor}
    assert document["nodes"][1]["labels"] == kind.CARDS_LABEL
    gates = configuration.NEEDED_GATES.get(int(minor.split(".")[1]), {})
    assert document.get("featureGates", {}) == gates


@pytest.mark.parametrize(
    ("wanted", "expected"), [("1.37", "1.37.yaml"), ("v1.36", "1.36.yaml"), ("1.35.8", "1.35.yaml")]
)
def test_version_names_a_configuration(wanted: str, expected: str) -> None:
    assert kind.committed(wanted).name == expected


def test_unknown_version_is_refused_in_one_line() -> None:
    with pytest.raises(MissingError, match=r"^Kubernetes 1\.34: kind-configs has 1\.35, 1\.36, 1\.37$"):
        kind.committed("1.34")


def test_driver_is_mounted_on_the_worker_only() -> None:
    document = kind.complete(read("1.37"), Path("/checkout/.cluster/kind"), ABLE)
    control_plane, worker = document["nodes"]
    assert "extraMounts" not in control_plane
    assert worker["extraMounts"] == [
        {"hostPath": "/checkout/.cluster/kind/driver", "containerPath": "/run/nvidia/driver"},
        {"hostPath": "/checkout/.cluster/kind/state", "containerPath": "/run/fakegpu"},
    ]


def test_able_machine_needs_no_concessions() -> None:
    committed = read("1.37")
    document = kind.complete(committed, Path("/x"), ABLE)
    assert document["kubeadmConfigPatches"] == []
    assert document["containerdConfigPatches"] == committed["containerdConfigPatches"]


def test_poor_machine_gets_concessions() -> None:
    document = kind.complete(read("1.35"), Path("/x"), POOR)
    kubelet, proxy = (json.loads(patch) for patch in document["kubeadmConfigPatches"])
    assert kubelet == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
    }
    assert (proxy["kind"], proxy["oomScoreAdj"]) == ("KubeProxyConfiguration", 0)
    assert "restrict_oom_score_adj = true" in document["containerdConfigPatches"][-1]
    assert document["featureGates"] == configuration.NEEDED_GATES[35]


def test_missing_programs_are_named_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(MissingError, match=r"^please install docker, kind, helm: .*$"):
        kind.require()


def test_docker_that_does_not_run_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in kind.PROGRAMS:
        program = tmp_path / name
        program.write_text("#!/bin/sh\necho 'Client: 1'\necho 'no daemon at x' >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    with pytest.raises(MissingError, match=r"^docker is not running: no daemon at x$"):
        kind.require()
