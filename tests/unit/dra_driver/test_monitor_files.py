# SPDX-License-Identifier: Apache-2.0
"""What the monitor reads of grants' files, and when; the loop itself is in test_monitor.py.

`Tenant` is a process of a grant: it holds its slot's record lock, as the library does, and the test writes in
its name.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.monitor import grant_files
from dra_driver.monitor.monitor import Monitor, by_card
from dra_driver.names import ClaimUID, DeviceName
from interposer import abi
from interposer.abi_files import ffi
from interposer.abi_glance import glance

MS = 1_000_000
PERIOD = 100 * MS
FIRST, SECOND = (f"GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e{n}" for n in range(2))
LIMITS = abi.Limits(
    uuid=FIRST,
    claim="",
    memory_bytes=1,
    card_memory_bytes=1,
    guaranteed_cores=30,
    effective_cores=30,
    policy=abi.Policy.DEFAULT,
    priority=1,
    spill=False,
    caps=(),
)
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2]))
print(flush=True)
sys.stdin.read()
"""


class Tenant:
    """A process of a grant, in one slot."""

    def __init__(self, usage: Path, slot: int) -> None:
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", HOLD, str(usage), str(slot)]
        self.process = subprocess.Popen(words, stdin=pipe, stdout=pipe)
        assert self.process.stdout is not None
        self.process.stdout.readline()
        with usage.open("r+b") as file:
            self._mapping = mmap.mmap(file.fileno(), 0)
        self._buffer = ffi.from_buffer(self._mapping)
        usage_file: Any = ffi.cast("struct tessera_usage *", self._buffer)
        self.slot, self.spans = usage_file.process[slot], usage_file.spans
        self.slot.start_ns = 1
        usage_file.slots_high = max(usage_file.slots_high, slot + 1)

    def works(self, nanoseconds: int) -> None:
        self.slot.launches += 1
        self.slot.busy_ns += nanoseconds

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


class Home:
    """A node's grants, and one look after another at them."""

    def __init__(self, run: Path) -> None:
        self.directories = GrantDirectories(run)
        self.entries: dict[ClaimUID, Entry] = {}
        self.now = 1000 * PERIOD
        self.monitor = Monitor(
            entries=lambda: self.entries,
            directories=self.directories,
            leads=lambda: True,
            clock=lambda: self.now,
        )

    def grant(self, name: str, uuid: str = FIRST) -> Path:
        uid, device = ClaimUID(name), DeviceName("gpu")
        grant = GrantEntry(
            name=name, request="g", device=device, uuid=uuid, memory=1, cores=30, shares=1, limited=True
        )
        self.entries[uid] = Entry(
            uid=uid, namespace="default", name=name, boot_id="b", state=State.PREPARED, grants=(grant,)
        )
        directory = self.directories.directory(uid, name)
        directory.mkdir(parents=True)
        abi.create_usage(directory / "usage")
        abi.write_limits(directory / "limits", replace(LIMITS, uuid=uuid))
        return directory

    def look(self) -> bool:
        self.now += PERIOD
        return self.monitor.look(by_card(self.entries.values()))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def tenant() -> Iterator[Callable[..., Tenant]]:
    """Makes a process of the grant of a directory."""
    with ExitStack() as stack:

        def make(directory: Path, slot: int = 0) -> Tenant:
            found = Tenant(directory / "usage", slot)
            stack.callback(found.end)
            return found

        yield make


@pytest.fixture
def glances(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grants that were looked at."""
    seen: list[str] = []

    def noting(path: str) -> int:
        seen.append(Path(path).parent.name)
        return glance(path)

    monkeypatch.setattr(grant_files, "glance", noting)
    return seen


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The grants that were read in full."""
    seen: list[str] = []
    read = abi.read_usage

    def noting(path: Path, since_ns: int | None = None) -> abi.Usage:
        seen.append(path.parent.name)
        return read(path, since_ns)

    monkeypatch.setattr(abi, "read_usage", noting)
    return seen


def test_only_grants_that_do_something_are_read(
    home: Home, tenant: Callable[..., Tenant], reads: list[str]
) -> None:
    for name in ("idle", "used", "other"):
        home.grant(name)
    process = tenant(home.directories.directory(ClaimUID("used"), "used"), slot=20)
    for _ in range(20):
        home.look()
    reads.clear()
    for _ in range(20):
        assert home.look()
    assert reads == []
    process.works(MS)
    for _ in range(10):
        home.look()
    assert reads == ["used"]


def test_a_quiet_card_is_looked_at_twice_a_second_and_another_one_ten_times(
    home: Home, tenant: Callable[..., Tenant], glances: list[str]
) -> None:
    busy, quiet = home.grant("busy", FIRST), home.grant("quiet", SECOND)
    working, idle = tenant(busy), tenant(quiet)
    for _ in range(10):
        working.works(MS)
        home.look()
    glances.clear()
    for _ in range(20):
        working.works(MS)
        assert not home.look()
    assert [glances.count(name) for name in ("busy", "quiet")] == [20, 4]
    idle.works(MS)
    for _ in range(7):
        home.look()
    assert glances[-1] == "quiet"  # ten times a second, as soon as it was seen
    for _ in range(10):
        home.look()
    glances.clear()
    for _ in range(20):
        assert home.look()
    assert [glances.count(name) for name in ("busy", "quiet")] == [4, 4]


def test_who_dies_while_it_waits_is_noticed(home: Home, tenant: Callable[..., Tenant]) -> None:
    """Its death writes nothing."""
    process = tenant(home.grant("a"))
    process.slot.waiting = 1
    for _ in range(10):
        home.look()
    assert not home.look()
    process.end()
    home.look()
    assert home.look()


def test_spans_are_shown_until_their_time_is_known(home: Home, tenant: Callable[..., Tenant]) -> None:
    directory = home.grant("a")
    process = tenant(directory)
    files = grant_files.GrantFiles("a", directory)
    files.look(0)
    process.works(MS)
    process.spans[7].start_ns, process.spans[7].length_us = 5 * MS, 1000
    for since, count in ((0, 1), (5 * MS, 1), (6 * MS, 0), (7 * MS, 0)):
        seen = files.look(since)
        assert seen is not None
        assert len(seen.spans) == count


@pytest.mark.parametrize("rest", [1, 7, 600])
def test_a_rest_changes_no_terms(
    tmp_path: Path, tenant: Callable[..., Tenant], monkeypatch: pytest.MonkeyPatch, rest: int
) -> None:
    """Whoever reckons at each look comes to the same."""

    def written(home: Home) -> list[tuple[int, int]]:
        process, other = tenant(home.grant("a")), tenant(home.grant("b"))
        found: list[tuple[int, int]] = []
        monkeypatch.setattr(abi, "lend", lambda _path, cores, *_: found.append((home.now, cores)))
        for works in [True] * 20 + [False] * rest * 5 + [True] * 20:
            if works:
                process.works(60 * MS)
                other.slot.launches += 1
            home.look()
        return found

    found = written(Home(tmp_path / "as-it-is"))
    monkeypatch.setattr(grant_files.GrantFiles, "_may_change_unseen", lambda _: True)
    assert found == written(Home(tmp_path / "always"))
    assert len(found) > 4


def test_a_file_that_cannot_be_read_harms_no_other(home: Home) -> None:
    for name in ("well", "broken"):
        home.grant(name)
    home.grant("lost").joinpath("usage").unlink()
    (home.directories.directory(ClaimUID("broken"), "broken") / "usage").write_bytes(b"x" * 600_000)
    assert [home.look() for _ in range(12)] == [True] * 12
    assert home.monitor.known(FIRST) == {"well"}
    home.directories.directory(ClaimUID("well"), "well").joinpath("limits").unlink()
    home.directories.directory(ClaimUID("well"), "well").joinpath("usage").write_bytes(b"")
    for _ in range(10):
        home.look()
    assert home.monitor.known(FIRST) == frozenset()
    home.monitor.look({})
    assert home.monitor.known(FIRST) == frozenset()


def test_a_claim_that_is_gone_is_forgotten(home: Home) -> None:
    for name in ("stays", "goes"):
        home.grant(name)
    for _ in range(10):
        home.look()
    assert home.monitor.known(FIRST) == {"stays", "goes"}
    del home.entries[ClaimUID("goes")]
    for _ in range(10):
        home.look()
    assert home.monitor.known(FIRST) == {"stays"}
