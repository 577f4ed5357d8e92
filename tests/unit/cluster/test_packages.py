"""What is missing on a machine: installed, or said in one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.cluster import packages
from tests.cluster.errors import MissingError
from tests.cluster.packages import Need

ABSENT = Need("no-such-package", command="no-such-command")


@pytest.fixture(autouse=True)
def as_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("need", "met"),
    [
        (Need("dash", command="sh"), True),
        (ABSENT, False),
        (Need("base-files", file="/etc/passwd"), True),
        (Need("none", file="no/such.h"), False),
    ],
)
def test_met(need: Need, met: bool) -> None:
    assert need.met() is met


def test_nothing_is_asked_of_apt_where_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("something was run"))
    packages.require((Need("dash", command="sh"),))


def test_machine_without_apt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packages, "PATH", "/no/such")
    with pytest.raises(MissingError, match=r"^please install \(Debian's names\): dash no-such-package; .*$"):
        packages.require((Need("dash", command="sh"), ABSENT, ABSENT))


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(MissingError, match="needs root"):
        packages.require(())


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param(
            'case $2 in update) exit 1;; esac; echo "E: Unable to locate package x" >&2; exit 100',
            r"^apt can't install no-such-package: E: Unable to locate package x$",
            id="unknown package, update failed",
        ),
        pytest.param(
            "exit 0", r"^apt installed no-such-package, and still something", id="installs another thing"
        ),
    ],
)
def test_apt_fails(script: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\n{script}\n")
    apt.chmod(0o755)
    monkeypatch.setattr(packages, "PATH", str(tmp_path))
    with pytest.raises(MissingError, match=message):
        packages.require((ABSENT,))
