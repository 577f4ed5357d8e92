from __future__ import annotations

import errno
import itertools
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.kubelet.lead import Lead, is_listening


@pytest.fixture
def root() -> Iterator[Path]:
    """Not tmp_path: that is too long for a Unix socket's path."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as name:
        yield Path(name)


class Agent:
    """Serves on a socket of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.path = root / f"dra-{name}.sock"
        self.socket.bind(str(self.path))
        self.socket.listen(1)
        self.changes = 0
        self.lead = Lead(root / "leader", self.path)
        self.lead.listen(self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def die(self, *, leaves_its_socket: bool = True) -> None:
        self.socket.close()
        if not leaves_its_socket:
            self.path.unlink()


def test_the_agent_that_was_registered_last_leads(root: Path) -> None:
    old = Agent(root, "old")
    assert old.lead.holds()
    old.lead.take()
    new = Agent(root, "new")
    assert (old.lead.holds(), new.lead.holds()) == (True, False)
    new.lead.take()
    assert (old.lead.holds(), new.lead.holds()) == (False, True)
    assert (old.changes, new.changes) == (2, 2)
    assert not old.lead.holds()
    assert old.changes == 2
    new.die()
    old.die()


@pytest.mark.parametrize("leaves_its_socket", [True, False])
def test_when_the_leader_is_gone_the_other_leads(root: Path, leaves_its_socket: bool) -> None:
    old, new = Agent(root, "old"), Agent(root, "new")
    new.lead.take()
    assert not old.lead.holds()
    new.die(leaves_its_socket=leaves_its_socket)
    assert old.lead.holds()
    assert (root / "leader").read_text() == str(old.path)
    old.die()


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"relative"])
def test_a_file_that_says_nothing_is_nobodys(root: Path, content: bytes) -> None:
    (root / "leader").write_bytes(content)
    agent = Agent(root, "one")
    assert agent.lead.holds()
    assert (root / "leader").read_text() == str(agent.path)
    agent.die()


def test_an_agent_alone_leads_also_on_a_full_disk(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_args: Any, **_options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", f"temporary-{next(numbers)}")

    numbers = itertools.count()

    agent = Agent(root, "one")
    with monkeypatch.context() as full:
        full.setattr("cdi.durable.write", fail)
        agent.lead.take()
        for _ in range(3):
            assert agent.lead.holds()
    (line,) = (line for line in caplog.messages if "leader" in line)
    assert "No space left on device" in line
    agent.lead.take()
    (root / "leader").unlink()
    with monkeypatch.context() as full_again:
        full_again.setattr("cdi.durable.write", fail)
        assert agent.lead.holds()
    assert len([line for line in caplog.messages if "leader" in line]) == 2
    agent.die()


def test_listening(root: Path) -> None:
    agent = Agent(root, "one")
    for _ in range(5):  # more than the backlog: nobody accepts
        assert is_listening(agent.path)
    agent.die()
    assert not is_listening(agent.path)
    assert not is_listening(root / "missing")
    assert not is_listening(root / ("x" * 200))
