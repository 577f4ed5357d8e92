"""What the chart renders: golden files, and values that are refused with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from dra_driver.configuration.node_configuration import parse
from tests.cluster import binaries
from tests.cluster.cluster import CHART
from tests.unit.golden import assert_golden

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "golden"
CONFIGURED = Path(__file__).parent / "values" / "node-configuration.yaml"


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(binaries.obtain()["helm"]), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    return helm("template", "tessera", str(CHART), "--namespace", "tessera-system", *arguments)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        pytest.param("chart-default", (), id="default"),
        pytest.param(
            "chart-renamed",
            (
                *("--set-string", r"resourceNames.count=example.com/gpu\,example.com/vgpu"),
                *("--set", "driver.driverRoot=/run/nvidia/driver", "--set", "policies.enabled=false"),
                *("--set", "image.repository=registry.example/tessera", "--set", "image.tag=v1"),
            ),
            id="renamed",
        ),
        pytest.param(
            "chart-cert-manager",
            ("--set", "mutator.certManager.enabled=true,policies.enabled=false"),
            id="cert-manager",
        ),
        pytest.param("chart-driver-only", ("--set", "mutator.enabled=false"), id="driver-only"),
        pytest.param(
            "chart-node-configuration",
            ("--set", "mutator.enabled=false,policies.enabled=false", "--values", str(CONFIGURED)),
            id="node-configuration",
        ),
    ],
)
def test_rendered(name: str, options: tuple[str, ...]) -> None:
    rendered = template(*options)
    assert rendered.returncode == 0, rendered.stderr
    assert_golden(GOLDEN / f"{name}.yaml", rendered.stdout)


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        pytest.param("driver.splitcount=3", "splitcount", id="unknown-value"),
        pytest.param("driver.splitCount=0", "/driver/splitCount", id="no-share"),
        pytest.param(
            "driver.updateStrategy.rollingUpdate.maxUnavailable=1",
            "/driver/updateStrategy/rollingUpdate",
            id="surge-and-unavailable",
        ),
        pytest.param(
            "driver.updateStrategy.rollingUpdate.maxSurge=0",
            "/driver/updateStrategy/rollingUpdate",
            id="neither-surge-nor-unavailable",
        ),
        pytest.param(
            "driver.updateStrategy.rollingUpdate.maxSurge=half",
            "/driver/updateStrategy/rollingUpdate/maxSurge",
            id="half-an-agent",
        ),
        pytest.param("driver.memoryScaling=0", "/driver/memoryScaling", id="no-memory"),
        pytest.param(
            "driver.nodeConfiguration.splitcount=3", "/driver/nodeConfiguration", id="unknown-node-field"
        ),
        pytest.param(
            "driver.nodeConfiguration.overrides[0].splitCount=3",
            "/driver/nodeConfiguration/overrides/0",
            id="override-for-no-nodes",
        ),
        pytest.param(
            "driver.nodeConfiguration.reservedMemory=1GB",
            "/driver/nodeConfiguration/reservedMemory",
            id="no-quantity",
        ),
        pytest.param(
            "driver.nodeConfiguration.placement=pack",
            "/driver/nodeConfiguration/placement",
            id="unknown-placement",
        ),
        pytest.param("driver.interposition=hook", "/driver/interposition", id="unknown-interposition"),
        pytest.param("resourceNames.count=gpu", "/resourceNames/count", id="no-domain"),
        pytest.param("driver.driverRoot=run/nvidia", "/driver/driverRoot", id="relative-path"),
    ],
)
def test_refused(value: str, answer: str) -> None:
    rendered = template("--set", value)
    assert rendered.returncode != 0
    assert answer in rendered.stderr


def test_the_agent_understands_what_is_rendered() -> None:
    documents = yaml.safe_load_all(template("--values", str(CONFIGURED)).stdout)
    (text,) = (
        document["data"]["node-configuration.yaml"]
        for document in documents
        if document["metadata"]["name"] == "tessera-node-configuration"
    )
    configuration = parse(text.encode(), "rendered")
    given = yaml.safe_load(CONFIGURED.read_text())["driver"]["nodeConfiguration"]
    assert None not in vars(configuration.layer).values()  # every field that there is
    assert len(configuration.overrides) == len(given["overrides"])
    assert configuration.layer.reserved_memory == 512 << 20


def test_lint() -> None:
    linted = helm("lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout + linted.stderr
