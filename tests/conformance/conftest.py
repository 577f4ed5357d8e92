"""Every test runs against every driver, on every Kubernetes version: [tessera-1.37], [dra-example-1.37], …

`node` is a driver that runs as long as the tests do, for tests that leave it as it was; `fresh` is a node of
the test's own. Where a driver is known to fail a test, drivers' `expected_failures` says so and why: then the
test must fail.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kube.client import Client
from tests.cluster import binaries
from tests.conformance import drivers, host
from tests.conformance.control_plane import ControlPlane
from tests.conformance.drivers import Driver, Tessera
from tests.conformance.node import Node
from tests.conformance.peer import EXPECTED_FAILURES

VERSIONS = binaries.tested()
_peer = drivers.peer(expected_failures=EXPECTED_FAILURES)
DRIVERS: dict[str, Driver] = {"tessera": Tessera()} | ({_peer.name: _peer} if _peer else {})
_numbers = itertools.count(1)

MakeNode = Callable[[ControlPlane], Node]


@pytest.fixture(scope="session", params=VERSIONS)
def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
    with ControlPlane(request.param) as running:
        yield running


@pytest.fixture(scope="session", params=DRIVERS)
def driver(request: pytest.FixtureRequest) -> Driver:
    return DRIVERS[request.param]


@pytest.fixture
def make_node(request: pytest.FixtureRequest, driver: Driver) -> Iterator[MakeNode]:
    """A node of a given control plane, without a running driver."""
    _expect(request, driver)
    with ExitStack() as stack:
        yield lambda plane: _node(plane, driver, stack)


@pytest.fixture
def fresh(make_node: MakeNode, plane: ControlPlane) -> Node:
    """A node of the test's own, without a running driver."""
    return make_node(plane)


@pytest.fixture(scope="session")
def running(plane: ControlPlane, driver: Driver) -> Iterator[Node]:
    with ExitStack() as stack:
        made = _node(plane, driver, stack)
        made.start()
        yield made


@pytest.fixture
async def node(request: pytest.FixtureRequest, running: Node, driver: Driver) -> AsyncIterator[Node]:
    """A node whose driver is registered; what the test has prepared is unprepared after it."""
    _expect(request, driver)
    async with running.connected():
        yield running
        await running.clean()


@pytest.fixture
async def api(plane: ControlPlane) -> AsyncIterator[Client]:
    """The administrator's."""
    async with Client(plane.connection, user_agent="conformance") as client:
        yield client


def _node(plane: ControlPlane, driver: Driver, stack: ExitStack) -> Node:
    root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="t-")))
    made = Node(driver, asyncio.run(_host(plane, root)), plane)
    driver.furnish(made.host)
    stack.callback(made.end)
    return made


async def _host(plane: ControlPlane, root: Path) -> host.Host:
    async with Client(plane.connection, user_agent="conformance") as client:
        return await host.make(plane, client, f"node-{next(_numbers)}", root)


def _expect(request: pytest.FixtureRequest, driver: Driver) -> None:
    expected = driver.expected_failures.get(request.node.originalname)
    if expected is not None:
        request.node.add_marker(pytest.mark.xfail(reason=expected.reason, strict=expected.always))
