# SPDX-License-Identifier: Apache-2.0
"""A node in virtual time: containers on one card, and what each has of it, the same on every machine.

Programs run as they ship; only their clock is the test's (tests/fakegpu/virtual_time.py). The agent's loop,
where a test wants one, looks at the grants' files at its moments, with that clock.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.monitor.monitor import PERIOD, Monitor, by_card
from dra_driver.names import ClaimUID, DeviceName
from interposer import abi
from tests.fakegpu.virtual_time import VirtualTime
from tests.integration.interposer.bench import FAKE, SMALL, Bench


@dataclass
class Node:
    """A card and its containers. `agent`: whether its loop runs; may change between two moments."""

    directory: Path
    launches: Path
    """The program of launches.c."""
    agent: bool = False
    shim: bool = False
    """Whether the library stands in the driver's place in containers made from now on."""
    driver: Mapping[str, str] = field(default_factory=dict)
    multiprocessors: int = 0
    writes: int = 0
    """How often the agent has written."""
    containers: dict[str, Bench] = field(default_factory=dict)
    kernels: dict[str, float] = field(default_factory=dict)
    """How long a launch of a container takes, in ms."""

    def __post_init__(self) -> None:
        self.clock = VirtualTime(self.directory / "clock")
        self._entries: dict[ClaimUID, Entry] = {}
        self._is_starting = False
        self.restart_agent()

    def restart_agent(self) -> None:
        """Another one looks after the card from now on, and knows nothing of what was before."""
        self._monitor = Monitor(
            entries=lambda: self._entries,
            directories=GrantDirectories(self.directory),
            leads=lambda: True,
            wrote=self._wrote,
            clock=self.clock.now_ns,
        )

    def container(self, name: str, cores: int, **values: Any) -> Bench:
        """A container with one grant, of its own name."""
        directory = self.directory / name
        directory.mkdir()
        bench = Bench(
            directory,
            shim=self.shim,
            driver=self.driver,
            multiprocessors=self.multiprocessors,
            shares_cards_of=next(iter(self.containers.values()), None),
        )
        bench.grant(name, cores=cores, **values)
        self.containers[name] = bench
        self._entries[ClaimUID(name)] = _entry(name)
        (self.directory / "claims").mkdir(exist_ok=True)
        (self.directory / "claims" / name).symlink_to(bench.grants)
        return bench

    def burn(self, name: str, kernel_ms: float, processes: int = 1, blocks: int = 1) -> None:
        """Kernels back to back."""
        words = ["--kernel-ms", kernel_ms, "--blocks", blocks, "--seconds", 1_000_000]
        self.kernels[name] = kernel_ms
        for _ in range(processes):
            self.start(name, FAKE / "cuda-burn", *words)

    def launch(self, name: str, how: str, kernel_ms: float, *words: int, processes: int = 1) -> None:
        """The same by any road of launches.c; a graph has ten kernels."""
        self.kernels[name] = kernel_ms * (10 if how.startswith("graph") else 1)
        for _ in range(processes):
            self.start(name, self.launches, how, kernel_ms, *words)

    def start(self, name: str, *words: object) -> subprocess.Popen[str]:
        self._is_starting = True
        return self.containers[name].start(*map(str, words), environment=self.clock.member())

    def pass_time(self, seconds: float) -> None:
        """Time goes on; the agent looks at the card ten times a second."""
        if self._is_starting:
            self.clock.wait_for_members()
        self._is_starting = False
        if not self.agent:
            self.clock.advance(seconds)
            return
        for _ in range(round(seconds / PERIOD)):
            self._monitor.look(by_card(self._entries.values()))
            self.clock.advance(PERIOD)

    def busy(self, seconds: float) -> float:
        """Percent of the next so many seconds in which the card works, by the driver's own count."""
        before = self._busy_seconds()
        self.pass_time(seconds)
        return (self._busy_seconds() - before) / seconds * 100

    def shares(self, seconds: float) -> dict[str, float]:
        """What each container has of the card in the next so many seconds, by its launches, in percent."""
        before = self.launched()
        self.pass_time(seconds)
        return {
            name: sum(now - then for now, then in zip(counts, before[name], strict=True))
            * self.kernels[name]
            / seconds
            / 10
            for name, counts in self.launched().items()
            if name in self.kernels
        }

    def launched(self) -> dict[str, list[int]]:
        """Launches of each process of each container, so far."""
        return {
            name: [process.launches for process in self.usage(name).processes] for name in self.containers
        }

    def usage(self, name: str) -> abi.Usage:
        return self.containers[name].usage(name)

    def close(self) -> None:
        for bench in self.containers.values():
            bench.close()

    def _busy_seconds(self) -> float:
        state = next(iter(self.containers.values())).state
        shown = subprocess.run(
            [FAKE / "fakegpu-ctl", "show", state],
            env=os.environ | self.clock.observer(),
            capture_output=True,
            text=True,
            check=True,
        )
        return float(re.findall(r"busy ([\d.]+) s", shown.stdout)[0])

    def _wrote(self) -> None:
        self.writes += 1


@contextmanager
def closing(node: Node) -> Iterator[Node]:
    try:
        yield node
    finally:
        node.close()


def _entry(name: str) -> Entry:
    grant = GrantEntry(
        name=name,
        request="g",
        device=DeviceName("gpu"),
        uuid=SMALL,
        memory=1,
        cores=1,
        shares=1,
        limited=True,
    )
    return Entry(
        uid=ClaimUID(name), namespace="default", name=name, boot_id="b", state=State.PREPARED, grants=(grant,)
    )
