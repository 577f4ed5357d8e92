from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from dra_driver.cards.xid_files import XidFiles
from dra_driver.cards.xids import Xid

A = Xid(uuid="GPU-a", gpu_uuid="GPU-a", number=79, first=1.5, last=2.5, life="boot-1/77", gone=True)
B = Xid(uuid="MIG-b", gpu_uuid="GPU-b", number=48, first=1.0, last=2.0, life="boot-1")


def test_there_and_back(tmp_path: Path) -> None:
    files = XidFiles(tmp_path / "xids")
    assert files.read() == {}
    files.write({}, {A.uuid: A, B.uuid: B})
    assert XidFiles(tmp_path / "xids").read() == {A.uuid: A, B.uuid: B}
    files.write({A.uuid: A, B.uuid: B}, {A.uuid: replace(A, last=9.0)})
    assert files.read() == {A.uuid: replace(A, last=9.0)}
    assert [path.name for path in files.directory.iterdir()] == ["GPU-a.json"]


def test_only_what_changed_is_written(tmp_path: Path) -> None:
    files = XidFiles(tmp_path)
    files.write({}, {A.uuid: A})
    files.path(A.uuid).unlink()
    files.write({A.uuid: A}, {A.uuid: A})
    assert files.read() == {}
    files.write({A.uuid: A}, {})  # somebody was faster


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"uuid": "GPU-a"', id="cut-off"),
        pytest.param(b'{"uuid": "GPU-a"}', id="fields-missing"),
        pytest.param(b"[]", id="not-an-object"),
        pytest.param(b"\xff\xfe", id="not-text"),
        pytest.param(
            b'{"uuid":"GPU-z","gpu_uuid":"GPU-z","number":1,"first":1,"last":1,"life":"x"}', id="another-name"
        ),
    ],
)
def test_a_damaged_file_counts_for_nothing_and_harms_no_other(tmp_path: Path, content: bytes) -> None:
    files = XidFiles(tmp_path)
    files.write({}, {B.uuid: B})
    files.path(A.uuid).write_bytes(content)
    assert files.read() == {B.uuid: B}
    files.write({}, {A.uuid: A})
    assert files.read() == {A.uuid: A, B.uuid: B}


def test_fields_of_a_later_release_are_no_harm(tmp_path: Path) -> None:
    files = XidFiles(tmp_path)
    files.write({}, {A.uuid: A})
    path = files.path(A.uuid)
    path.write_bytes(path.read_bytes().replace(b"{", b'{"later":[1],', 1))
    assert files.read() == {A.uuid: A}


@pytest.mark.parametrize("uuid", ["../GPU-a", "GPU-a/../../b", "GPU-", "", "GPU-" + "a" * 200])
def test_a_strange_uuid_names_no_file(tmp_path: Path, uuid: str) -> None:
    files = XidFiles(tmp_path / "xids")
    files.write({}, {uuid: replace(A, uuid=uuid)})
    files.write({uuid: replace(A, uuid=uuid)}, {})
    assert list(tmp_path.rglob("*.json")) == []


def test_a_disk_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "xids").write_text("a file")
    with pytest.raises(OSError, match="xids"):
        XidFiles(tmp_path / "xids").write({}, {A.uuid: A})
