"""One cluster per Kubernetes version, with the chart installed, shared by the tests of a run."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest

from tests.cluster import binaries
from tests.cluster.cluster import Cluster

VERSIONS = os.environ.get("TESSERA_TEST_VERSIONS", ",".join(binaries.offered())).split(",")


@pytest.fixture(scope="session", params=VERSIONS)
def installed_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(version=request.param) as cluster:
        cluster.install_chart()
        yield cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test on a cluster shows the ends of the cluster's logs."""
    report = yield
    if report.failed and report.when == "call" and isinstance(item, pytest.Function):
        for value in item.funcargs.values():
            if isinstance(value, Cluster):
                report.sections.append((f"cluster, logs in {value.logs}", value.describe()))
    return report
