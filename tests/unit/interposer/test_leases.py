"""Leases, which root in a container may take on the grant's files, its own: nobody waits for one."""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from interposer.abi_glance import glance
from tests.unit.interposer.damaged import older
from tests.unit.interposer.test_abi import LIMITS
from tests.unit.leases import leased


def shortened(path: Path) -> None:
    os.truncate(path, 10)


@pytest.mark.parametrize(
    "look",
    [abi.read_usage, abi.create_usage, lambda path: glance(str(path))],
    ids=["read", "create", "glance"],
)
def test_usage(tmp_path: Path, look: Callable[[Path], object]) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    before = path.stat().st_ino
    with leased(path, fcntl.F_WRLCK), pytest.raises(abi.AbiError, match=re.escape(str(path))):
        look(path)
    look(path)
    assert path.stat().st_ino == before


@pytest.mark.parametrize("damage", [shortened, lambda path: path.write_bytes(b"\xff" * 600000)])
def test_usage_that_is_to_be_repaired(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    damage(path)
    before = path.read_bytes()
    with leased(path, fcntl.F_RDLCK), pytest.raises(abi.AbiError, match="has a lease on it"):
        abi.create_usage(path)
    assert path.read_bytes() == before
    abi.create_usage(path)
    assert abi.read_usage(path).processes == ()


@pytest.mark.parametrize("kind", [fcntl.F_RDLCK, fcntl.F_WRLCK], ids=["read", "write"])
@pytest.mark.parametrize("release", [None, "first"])
def test_limits(tmp_path: Path, kind: int, release: str | None) -> None:
    """The file stays the one that containers have mapped."""
    path = tmp_path / "claim" / "grant" / "limits"
    path.parent.mkdir(parents=True)
    abi.write_limits(path, LIMITS)
    if release is not None:
        older(path, "limits")
    before = (path.stat().st_ino, path.read_bytes())
    with leased(path, kind), pytest.raises(abi.AbiError, match="has a lease on it"):
        abi.write_limits(path, LIMITS)
    assert (path.stat().st_ino, path.read_bytes()) == before
    abi.write_limits(path, LIMITS)
    assert path.stat().st_ino == before[0]
    assert abi.read_limits(path) == LIMITS


def test_what_is_lent(tmp_path: Path) -> None:
    path = tmp_path / "claim" / "grant" / "limits"
    path.parent.mkdir(parents=True)
    abi.write_limits(path, LIMITS)
    with leased(path, fcntl.F_RDLCK):
        assert abi.read_limits(path) == LIMITS
        with pytest.raises(abi.AbiError, match="has a lease on it"):
            abi.lend(path, 60, 1500, 1200, 10**9)
    with leased(path, fcntl.F_WRLCK), pytest.raises(abi.AbiError, match="has a lease on it"):
        abi.read_limits(path)
    assert abi.lend(path, 60, 1500, 1200, 10**9)
