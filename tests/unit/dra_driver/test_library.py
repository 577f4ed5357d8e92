from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.library import install, remove_unused


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.so"
    path.write_bytes(b"\x7fELF one")
    return path


def test_installed_under_release_and_hash(tmp_path: Path, source: Path) -> None:
    installed = install(source, "0.1.0", tmp_path / "state")
    assert installed.version.startswith("0.1.0-")
    assert len(installed.version) == len("0.1.0-") + 12
    assert installed.library == tmp_path / "state/lib" / installed.version / "libtessera.so"
    assert installed.library.read_bytes() == source.read_bytes()
    assert installed.preload.read_text() == "/usr/lib/tessera/libtessera.so\n"
    assert [installed.library.stat().st_mode & 0o777, installed.preload.stat().st_mode & 0o777] == [
        0o755,
        0o644,
    ]
    assert installed.library.parent.stat().st_mode & 0o777 == 0o755


def test_what_is_there_is_not_touched(tmp_path: Path, source: Path) -> None:
    first = install(source, "0.1.0", tmp_path / "state")
    before = first.library.stat()
    assert install(source, "0.1.0", tmp_path / "state") == first
    assert first.library.stat().st_ino == before.st_ino


def test_what_is_damaged_is_replaced(tmp_path: Path, source: Path) -> None:
    first = install(source, "0.1.0", tmp_path / "state")
    first.preload.unlink()
    install(source, "0.1.0", tmp_path / "state")
    assert first.preload.exists()


def test_unused_versions_go(tmp_path: Path, source: Path) -> None:
    old = install(source, "0.1.0", tmp_path / "state")
    used = install(source, "0.1.1", tmp_path / "state")
    source.write_bytes(b"\x7fELF two")
    new = install(source, "0.1.1", tmp_path / "state")
    assert remove_unused(tmp_path / "state", {used.version, new.version}) == (old.version,)
    assert not old.library.exists()
    assert used.library.exists()
    assert new.library.exists()


@pytest.mark.parametrize("call", ["replace", "chmod"])
def test_a_failure_leaves_nothing(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(Path, call, fail)
        with pytest.raises(OSError, match="Read-only"):
            install(source, "0.1.0", tmp_path / "state")
    assert list((tmp_path / "state/lib").iterdir()) == []
    assert install(source, "0.1.0", tmp_path / "state").library.exists()
