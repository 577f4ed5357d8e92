"""YAML as Kubernetes reads it, with places and texts."""

from __future__ import annotations

import io
from typing import Any

import pytest

from tessera import manifests
from tessera.manifests import Unreadable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("22:22", "22:22"),
        ("8080:80", "8080:80"),
        ("1:30.5", "1:30.5"),
        ("2026-11-29", "2026-11-29"),
        ("1e3", "1e3"),
        ("3000", 3000),
        ("-7", -7),
        ("0x10", 16),
        ("0o17", "0o17"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("true", True),
        ("y", "y"),
        ("~", None),
        ("'3000'", "3000"),
    ],
)
def test_scalars(text: str, value: Any) -> None:
    (document,) = manifests.read(f"a: {text}\n", "f")
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


TEXT = """\
# before the first
a:
  - b: 1
    c: {d: 2}
---
  # indented, and with a merge
  base: &base {x: 1, y: 2}
  derived:
    <<: *base
    y: 3
---
{"json": [1]}"""


@pytest.mark.parametrize(
    ("index", "pointer", "line"),
    [
        (0, (), 2),
        (0, ("a", 0, "c", "d"), 4),
        (0, ("a", 0, "nowhere", "d"), 3),
        (0, ("a", 7), 2),
        (1, ("derived", "y"), 10),
        (1, ("derived", "x"), 7),
        (2, ("json", 0), 12),
    ],
)
def test_places(index: int, pointer: tuple[str | int, ...], line: int) -> None:
    assert manifests.read(TEXT, "f")[index].place(pointer) == f"f:{line}"


def test_texts_say_the_same_as_the_file() -> None:
    stream = io.StringIO()
    found = manifests.read(TEXT, "f")
    manifests.write(found, stream)
    again = manifests.read(stream.getvalue(), "f")
    assert [document.value for document in again] == [document.value for document in found]
    assert "---\n# before the first\na:" in stream.getvalue()
    assert "  # indented, and with a merge\n  base:" in stream.getvalue()
    assert "base: &base {x: 1, y: 2}" in stream.getvalue()


def test_merges_are_resolved() -> None:
    assert manifests.read(TEXT, "f")[1].value["derived"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "f:3: a is there twice"),
        ("a:\n\tb: 1\n", "f:2:1: "),
        ("a: [1\n", "f:2:1: "),
        ("[1]\n", "f:1: a document is not an object, but list"),
        ("a: &b {c: *d}\n", "f:1:11: "),
        ("a: !!python/object:x {}\n", "f:1:4: "),
        ("[" * 3000, "f: "),
    ],
    ids=["twice", "tab", "cut", "list", "alias", "tag", "deep"],
)
def test_unreadable(text: str, message: str) -> None:
    with pytest.raises(Unreadable) as caught:
        manifests.read(text, "f")
    assert str(caught.value).startswith(message)


def test_nothing() -> None:
    assert manifests.read("", "f") == []
    assert manifests.read("---\n# nothing\n---\n", "f") == []
