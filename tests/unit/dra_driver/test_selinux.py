from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.library import install
from dra_driver.claims.selinux import ATTRIBUTE, FOR_CONTAINERS, label_for_containers, label_of, leave

Attributes = dict[str, bytes]


@pytest.fixture
def attributes(monkeypatch: pytest.MonkeyPatch) -> Attributes:
    """Labels by path, of a kernel that has some for whoever asks."""
    labels: Attributes = {}

    def get(path: Path, name: str) -> bytes:
        assert name == ATTRIBUTE
        if str(path) not in labels:
            raise OSError(errno.ENODATA, "No data available")
        return labels[str(path)] + b"\0"

    def put(path: Path, name: str, value: bytes) -> None:
        assert name == ATTRIBUTE
        labels[str(path)] = value

    monkeypatch.setattr(os, "getxattr", get)
    monkeypatch.setattr(os, "setxattr", put)
    return labels


def test_where_selinux_is_on(tmp_path: Path) -> None:
    assert label_of(tmp_path) is leave
    (tmp_path / "fs/selinux").mkdir(parents=True)
    assert label_of(tmp_path) is label_for_containers


@pytest.mark.parametrize("before", [None, b"system_u:object_r:var_lib_t:s0"], ids=["none", "the-directory's"])
def test_a_label(tmp_path: Path, attributes: Attributes, before: bytes | None) -> None:
    if before is not None:
        attributes[str(tmp_path)] = before
    label_for_containers(tmp_path)
    assert attributes == {str(tmp_path): FOR_CONTAINERS}


def test_a_label_that_is_there_is_left_alone(
    tmp_path: Path, attributes: Attributes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also on a disk that can't be written."""
    label_for_containers(tmp_path)

    def fail(*_args: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "setxattr", fail)
    label_for_containers(tmp_path)
    attributes.clear()
    with pytest.raises(OSError, match="Read-only"):
        label_for_containers(tmp_path)


def test_a_library_of_an_earlier_agent_is_labelled(tmp_path: Path, attributes: Attributes) -> None:
    source = tmp_path / "libtessera.so"
    source.write_bytes(b"library")
    installed = install(source, {}, "0.1.0", tmp_path / "state")
    assert attributes == {}
    assert install(source, {}, "0.1.0", tmp_path / "state", label_for_containers) == installed
    assert set(attributes) == {str(installed.library), str(installed.preload)}
