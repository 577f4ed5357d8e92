"""Keeps the node's rules as the node configuration file has them, while both may change.

The file is a mounted ConfigMap's, which is replaced by swapping a link, so its content is what is compared,
every few seconds. One that can't be used changes nothing: what held before still holds, and a condition, the
log and a metric say why. If nothing held before, since the agent has just started, then nothing is published
or prepared until the file is mended; but Pods can be torn down, which an agent that ended itself would hold
up. The Node's labels are read only where the file asks for them, and are waited for in the same way.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NoReturn

from dra_driver.cards.rules import Rules
from dra_driver.conditions import Condition, Conditions
from dra_driver.configuration.node_configuration import (
    NodeConfiguration,
    NodeConfigurationError,
    parse,
    resolve,
)
from dra_driver.node import Node
from kube import paths
from kube.client import Client
from kube.errors import ApiError

_log = logging.getLogger(__name__)
_PERIOD = 5.0  # seconds; the kubelet takes up to a minute to bring a ConfigMap's change


async def node_labels(client: Client, name: str) -> Mapping[str, str]:
    """Raises ApiError."""
    node = await client.get(paths.node(name))
    return dict(node["metadata"].get("labels") or {})


class NodeConfigurationFile:
    """`defaults`: of what the file leaves out. `labels`: reads the Node's labels, raises ApiError.

    `loaded` is told of each new content whether it could be used. `labels_period`: seconds from one look at
    the labels to the next.
    """

    def __init__(
        self,
        *,
        path: Path,
        node: Node,
        defaults: Rules,
        labels: Callable[[], Awaitable[Mapping[str, str]]],
        conditions: Conditions,
        loaded: Callable[[bool], None],
        labels_period: float = 30.0,
        period: float = _PERIOD,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._node = node
        self._defaults = defaults
        self._read_labels = labels
        self._conditions = conditions
        self._loaded = loaded
        self._labels_period = labels_period
        self._period = period
        self._clock = clock
        self._content: bytes | None = None
        self._configuration: NodeConfiguration | None = None
        self._problem: str | None = None
        self._labels: Mapping[str, str] | None = None
        self._labels_read = 0.0

    def start(self) -> None:
        """Reads the file for the first time; it holds at once, unless it needs the Node's labels."""
        self._look_at_file()
        configuration = self._configuration
        if configuration is None:
            self._wait()
        elif not configuration.needs_labels:
            self._configure(configuration)

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(self._period)

    async def look(self) -> None:
        """Once, at the file and, where it needs them, at the labels."""
        await asyncio.to_thread(self._look_at_file)
        configuration = self._configuration
        if configuration is None:
            self._wait()
        elif not configuration.needs_labels or await self._look_at_labels():
            self._configure(configuration)

    def _look_at_file(self) -> None:
        try:
            content = self._path.read_bytes()
            if content == self._content:
                return
            self._content = content
            self._configuration = parse(content, str(self._path))
        except (OSError, NodeConfigurationError) as error:
            if isinstance(error, OSError):
                self._content = None
                problem = f"{self._path}: can't be read: {error.strerror}"
            else:
                problem = "; ".join(str(error).splitlines())
            if problem != self._problem:
                self._problem = problem
                self._loaded(False)
        else:
            self._problem = None
            self._loaded(True)

    async def _look_at_labels(self) -> bool:
        """Whether labels are known; old ones are better than none."""
        now = self._clock()
        if self._labels is not None and now - self._labels_read < self._labels_period:
            return True
        try:
            self._labels = await self._read_labels()
            self._labels_read = now
        except ApiError as error:
            why = f"the labels of Node {self._node.name} can't be read, and {self._path} needs them: {error}"
            if self._labels is None:
                self._wait_for(why)
            else:
                _log.warning("%s", why)
        return self._labels is not None

    def _wait(self) -> None:
        self._wait_for(f"{self._problem}; until it can be used nothing is published or prepared here")

    def _wait_for(self, why: str) -> None:
        self._node.not_configured(why)
        self._conditions.fail(Condition.CONFIGURATION, why)

    def _configure(self, configuration: NodeConfiguration) -> None:
        resolved = resolve(configuration, self._node.name, self._labels or {}, self._defaults)
        self._node.configure(resolved.rules)
        if self._problem is not None:
            self._conditions.fail(Condition.CONFIGURATION, f"{self._problem}; what held before still holds")
            return
        applied = ", ".join(f"overrides[{index}]" for index in resolved.applied)
        self._conditions.hold(
            Condition.CONFIGURATION, f"{self._path} holds" + (f", with {applied}" if applied else "")
        )
