from __future__ import annotations

import errno
import fcntl
from pathlib import Path
from typing import Any

import pytest

from dra_driver.claims.library import InstalledLibrary, install, occupy, remove_unused
from tests.unit.leases import leased

SHIMS = {"libcuda.so.1": "libtessera-shim.so", "libnvidia-ml.so.1": "libtessera-shim-nvml.so"}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    for name in ("source.so", *SHIMS.values()):
        (tmp_path / name).write_bytes(b"\x7fELF one, " + name.encode())
    return tmp_path / "source.so"


def put(source: Path, release: str, state: Path) -> InstalledLibrary:
    return install(source, {soname: source.with_name(name) for soname, name in SHIMS.items()}, release, state)


def test_installed_under_release_and_hash(tmp_path: Path, source: Path) -> None:
    installed = put(source, "0.1.0", tmp_path / "state")
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
    for soname, name in SHIMS.items():
        shim = installed.shims[soname]
        assert shim == installed.library.with_name(name)
        assert (shim.read_bytes(), shim.stat().st_mode & 0o777) == (
            source.with_name(name).read_bytes(),
            0o755,
        )


def test_what_is_there_is_not_touched(tmp_path: Path, source: Path) -> None:
    first = put(source, "0.1.0", tmp_path / "state")
    before = first.library.stat()
    assert put(source, "0.1.0", tmp_path / "state") == first
    assert first.library.stat().st_ino == before.st_ino


@pytest.mark.parametrize("name", ["ld.so.preload", "libtessera.so", *SHIMS.values()])
def test_what_is_damaged_is_replaced(tmp_path: Path, source: Path, name: str) -> None:
    first = put(source, "0.1.0", tmp_path / "state")
    damaged = first.library.with_name(name)
    before = damaged.read_bytes()
    damaged.unlink()
    assert put(source, "0.1.0", tmp_path / "state") == first
    assert damaged.read_bytes() == before


@pytest.mark.parametrize("name", ["ld.so.preload", "libtessera.so", *SHIMS.values()])
def test_no_tenant_holds_up_others(tmp_path: Path, source: Path, name: str) -> None:
    """All containers have the same files mounted. One that has a lease already gets a file of its own."""
    first, second = (put(source, release, tmp_path / "state") for release in ("0.1.0", "0.1.1"))
    path = first.library.with_name(name)
    for agent in (first, second):
        with occupy(agent), pytest.raises(BlockingIOError), leased(path, fcntl.F_WRLCK):
            pass
    before = path.stat().st_ino
    with leased(path, fcntl.F_WRLCK):
        with occupy(first):
            pass
        assert put(source, "0.1.0", tmp_path / "state") == first
        assert path.stat().st_ino != before
        assert path.read_bytes()


@pytest.mark.parametrize("name", ["source.so", *SHIMS.values()])
def test_another_library_or_shim_is_another_version(tmp_path: Path, source: Path, name: str) -> None:
    first = put(source, "0.1.0", tmp_path / "state")
    source.with_name(name).write_bytes(b"\x7fELF two")
    second = put(source, "0.1.0", tmp_path / "state")
    assert first.version != second.version


def test_unused_versions_go(tmp_path: Path, source: Path) -> None:
    old = put(source, "0.1.0", tmp_path / "state")
    used = put(source, "0.1.1", tmp_path / "state")
    source.write_bytes(b"\x7fELF two")
    new = put(source, "0.1.1", tmp_path / "state")
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
            put(source, "0.1.0", tmp_path / "state")
    assert list((tmp_path / "state/lib").iterdir()) == []
    assert put(source, "0.1.0", tmp_path / "state").library.exists()
