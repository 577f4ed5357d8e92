"""What the chart renders: golden files, and values that are refused with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from claim_mutator import settings as mutator
from dra_driver.configuration import settings as driver
from dra_driver.configuration.node_configuration import parse
from kube.settings import fields
from kube.settings.sources import unknown_variables
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
                *("--set", "hamiDeviceClass=true,corePolicy=force"),
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
        pytest.param("mutator.runtimeClassName=Nvidia", "/mutator/runtimeClassName", id="no-runtime-class"),
        pytest.param(
            "mutator.replacedSchedulers[0]=a scheduler", "/mutator/replacedSchedulers/0", id="no-scheduler"
        ),
        pytest.param("driver.driverRoot=run/nvidia", "/driver/driverRoot", id="relative-path"),
    ],
)
def test_refused(value: str, answer: str) -> None:
    rendered = template("--set", value)
    assert rendered.returncode != 0
    assert answer in rendered.stderr


def environments(rendered: str) -> dict[str, dict[str, str]]:
    """By workload, the variables of its program; what Kubernetes fills in is `x`."""
    return {
        document["metadata"]["name"]: {
            each["name"]: each.get("value", "x")
            for each in document["spec"]["template"]["spec"]["containers"][0]["env"]
        }
        for document in yaml.safe_load_all(rendered)
        if document["kind"] in ("DaemonSet", "Deployment")
    }


@pytest.mark.parametrize(
    ("value", "least", "most"),
    [
        pytest.param("defaultCount", "0", "32", id="default-count"),
        pytest.param("defaultMemory", "0", "2147483648", id="default-memory"),
        pytest.param("defaultCores", "0", "100", id="default-cores"),
        pytest.param("memoryFactor", "1", "1048576", id="memory-factor"),
        pytest.param("mutator.templates.period", "0.1", "86400", id="keeper-period"),
        pytest.param("mutator.templates.keep", "0", "86400", id="keep"),
        pytest.param("mutator.quotaPeriod", "0.1", "86400", id="quota-period"),
        pytest.param("driver.splitCount", "1", "1000", id="split-count"),
        pytest.param("driver.memoryScaling", "0.01", "100", id="memory-scaling"),
        pytest.param("driver.coreScaling", "0.01", "100", id="core-scaling"),
        pytest.param("driver.lookPeriod", "0.1", "3600", id="look-period"),
        pytest.param("driver.reconcilePeriod", "0.1", "3600", id="reconcile-period"),
        pytest.param("driver.ignoredXids[0]", "1", "9999", id="ignored-xids"),
    ],
)
def test_the_schema_lets_through_what_the_programs_take(value: str, least: str, most: str) -> None:
    for number in (least, most):
        rendered = template("--set-json", f"{value}={number}")
        assert rendered.returncode == 0, rendered.stderr
        found = environments(rendered.stdout)
        driver.load([], found["tessera-driver"])
        mutator.load([], found["tessera-mutator"])
    below = float(least) / 2 if "." in least else int(least) - 1
    for beyond in (below, int(most) + 1):
        assert template("--set-json", f"{value}={beyond}").returncode != 0


def test_every_variable_is_a_setting() -> None:
    rendered = template("--set", "mutator.certManager.enabled=true", "--values", str(CONFIGURED))
    found = environments(rendered.stdout)
    for program, known in (("tessera-driver", driver.Settings), ("tessera-mutator", mutator.Settings)):
        assert unknown_variables(found[program], fields(known)) == []


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
