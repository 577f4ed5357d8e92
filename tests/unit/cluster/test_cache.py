"""The cache: an entry that exists is whole, a key says all that matters."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster import cache


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TESSERA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        pytest.param({"TESSERA_CACHE": "/a", "XDG_CACHE_HOME": "/b"}, "/a", id="ours first"),
        pytest.param({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/tessera", id="then XDG"),
        pytest.param({"HOME": "/c"}, "/c/.cache/tessera", id="then home"),
    ],
)
def test_root(variables: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TESSERA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(cache.root()) == expected


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_keys_differ_when_parts_differ(one: list[str], other: list[str]) -> None:
    assert (cache.key(*one) == cache.key(*other)) == (one == other)


def test_key_of_files_sees_name_bytes_and_mode(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_text("x")
    keys = [cache.key_of_files(tmp_path, [file])]
    file.chmod(0o755)
    keys.append(cache.key_of_files(tmp_path, [file]))
    file.write_text("y")
    keys.append(cache.key_of_files(tmp_path, [file]))
    file = file.rename(tmp_path / "b")
    keys.append(cache.key_of_files(tmp_path, [file]))
    keys.append(cache.key_of_files(tmp_path, [file], "flag"))
    assert len(set(keys)) == len(keys)
    file.touch()
    assert cache.key_of_files(tmp_path, [file], "flag") == keys[-1]


def test_entry_is_built_once() -> None:
    built: list[Path] = []

    def build(directory: Path) -> None:
        built.append(directory)
        (directory / "file").write_text("whole")

    first, second = cache.entry("thing", "1", build), cache.entry("thing", "1", build)
    assert first == second
    assert (first / "file").read_text() == "whole"
    assert len(built) == 1
    assert cache.entry("thing", "2", build) != first


def test_failed_build_leaves_no_entry(root: Path) -> None:
    def build(directory: Path) -> None:
        (directory / "half").write_text("")
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        cache.entry("thing", "1", build)
    assert [path.name for path in root.iterdir()] == ["locks"]


def test_killed_build_is_cleared_away_by_the_next(root: Path) -> None:
    (root / "thing-1.partial").mkdir(parents=True)
    (root / "thing-1.partial" / "half").write_text("")
    entry = cache.entry("thing", "1", lambda _: None)
    assert list(entry.iterdir()) == []


def _slow_build(directory: Path) -> None:
    time.sleep(0.3)
    with (cache.root() / "builds").open("a") as file:
        file.write("x")
    (directory / "file").write_text("whole")


def _ask(_: int) -> str:
    return (cache.entry("thing", "1", _slow_build) / "file").read_text()


def test_two_processes_build_once(root: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_ask, range(3)) == ["whole"] * 3
    assert (root / "builds").read_text() == "x"


def test_entries_used_longest_ago_go(root: Path) -> None:
    for number, key in enumerate(("a", "b", "c")):
        os.utime(cache.entry("thing", key, lambda _: None), (number, number))
    other = cache.entry("thing-else", "a", lambda _: None)
    cache.entry("thing", "a", lambda _: None)  # used again
    cache.entry("thing", "d", lambda _: None, keep=2)
    assert sorted(path.name for path in root.glob("thing-?")) == ["thing-a", "thing-d"]
    assert other.exists()


def test_remove_tree_takes_read_only_directories(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "inner").mkdir(parents=True)
    (tree / "inner" / "file").write_text("")
    (tree / "inner").chmod(0o555)
    cache.remove_tree(tree)
    assert not tree.exists()
    cache.remove_tree(tree)
