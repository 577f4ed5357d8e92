"""One cluster per Kubernetes version, with the chart installed, shared by the tests of a run.

`make test-cluster` runs several at once, by pytest-xdist: tests of one group (see `group`) stay in one
process and in their order, so that they share their cluster. Clusters share nothing with each other.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.cluster import binaries
from tests.cluster.cluster import Cluster
from tests.cluster.rack import TWO, Rack, new_namespace

VERSIONS = binaries.tested()
ALONE = ("test_claims", "test_corpus")  # with clusters of their own; so many tests that they get one


@pytest.fixture(scope="session", params=VERSIONS)
def installed_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(version=request.param) as cluster:
        cluster.install_chart()
        yield cluster


# Of modules that have a `rack`: its cluster with such cards in the node, and a namespace there.


@pytest.fixture
def two(rack: Rack) -> Cluster:
    return rack.holding(TWO)


@pytest.fixture
def one(rack: Rack) -> Cluster:
    return rack.holding("one")


@pytest.fixture
def eight(rack: Rack) -> Cluster:
    return rack.holding("eight")


@pytest.fixture
def mixed(rack: Rack) -> Cluster:
    return rack.holding("mixed")


@pytest.fixture
def instances(rack: Rack) -> Cluster:
    return rack.holding("instances")


@pytest.fixture
def namespace(rack: Rack, request: pytest.FixtureRequest) -> Iterator[str]:
    name = new_namespace(rack.cluster, request.node.name)
    yield name
    rack.cluster.kubectl("delete", "namespace", name, "--wait=false")


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out tests by `group`."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster:
    return ByCluster(config, log)


def group(nodeid: str) -> str:
    """The version of the shared cluster; the module's name where that is better off alone."""
    module = Path(nodeid.partition("::")[0]).stem
    versions = [part for part in re.split(r"[\[\]-]", nodeid) if part in VERSIONS]
    return " ".join(versions if versions and module not in ALONE else [module, *versions])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed on a cluster, or in getting ready there, shows the ends of the cluster's logs."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        clusters = {id(value): value for value in item.funcargs.values() if isinstance(value, Cluster)}
        for cluster in clusters.values():
            report.sections.append((f"cluster, logs in {cluster.logs}", cluster.describe()))
    return report
