"""What the chart renders: golden files, and values that are refused with a reason."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cluster import binaries
from tests.cluster.cluster import CHART
from tests.unit.golden import assert_golden

pytestmark = pytest.mark.cluster

GOLDEN = Path(__file__).parent / "golden"


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
        pytest.param("chart-driver-only", ("--set", "mutator.enabled=false"), id="driver-only"),
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
            "driver.updateStrategy.rollingUpdate.maxSurge=1",
            "/driver/updateStrategy/rollingUpdate/maxSurge",
            id="two-agents-at-once",
        ),
        pytest.param("driver.memoryScaling=0", "/driver/memoryScaling", id="no-memory"),
        pytest.param("resourceNames.count=gpu", "/resourceNames/count", id="no-domain"),
        pytest.param("driver.driverRoot=run/nvidia", "/driver/driverRoot", id="relative-path"),
    ],
)
def test_refused(value: str, answer: str) -> None:
    rendered = template("--set", value)
    assert rendered.returncode != 0
    assert answer in rendered.stderr


def test_lint() -> None:
    linted = helm("lint", "--strict", str(CHART))
    assert linted.returncode == 0, linted.stdout + linted.stderr
