"""Files that appear whole, and files that change where they lie."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from cdi import durable
from tests.unit.leases import leased


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    durable.write(path, b"first", mode=0o640)
    return path


def test_written_whole_with_its_mode(file: Path) -> None:
    durable.write(file, b"second", mode=0o444, survives_power_cut=False)
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"second", 0o444)
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_reading_waits_for_nobody(file: Path) -> None:
    assert durable.read(file) == b"first"
    with leased(file, fcntl.F_WRLCK), pytest.raises(BlockingIOError):
        durable.read(file)


def test_a_disk_that_is_full_after_some_bytes(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write takes what fits, and only the next one says why not more."""

    def opened(path: str, mode: str, buffering: int) -> Any:
        real = open(path, mode, buffering=buffering)  # noqa: PTH123, SIM115

        class Full:
            fileno = real.fileno
            written = 0

            def write(self, content: bytes) -> int:
                if self.written:
                    raise OSError(errno.ENOSPC, "No space left on device")
                self.written = real.write(content[:3])
                return self.written

            def __enter__(self) -> Full:
                return self

            def __exit__(self, *_exc: object) -> None:
                real.close()

        return Full()

    monkeypatch.setattr(durable, "open", opened, raising=False)
    with pytest.raises(OSError, match="No space left"):
        durable.write(file, b"second")
    assert file.read_bytes() == b"first"
    assert [path.name for path in file.parent.iterdir()] == ["file"]


def test_overwritten_in_place(file: Path) -> None:
    inode = file.stat().st_ino
    assert durable.overwrite(file, b"other")
    assert (file.read_bytes(), file.stat().st_ino) == (b"other", inode)


@pytest.mark.parametrize("length", [4, 6, 4097], ids=["shorter", "longer", "more than a page"])
def test_not_overwritten(file: Path, length: int) -> None:
    if length > 4096:
        durable.write(file, b"-" * length)
    before = file.read_bytes()
    assert not durable.overwrite(file, b"x" * length)
    assert file.read_bytes() == before


def test_not_through_a_link(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        durable.overwrite(link, b"other")
    assert file.read_bytes() == b"first"
