"""interposer.abi: the binding is the header's, files round-trip, damaged ones are refused by name."""

from __future__ import annotations

import dataclasses
import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer import _abi, abi, abi_files
from tests.unit.interposer.damaged import U32, older, patched

ROOT = Path(__file__).resolve().parents[3]
HEADER = ROOT / "interposer" / "include" / "tessera_abi.h"
STRUCTS = ("tessera_cap", "tessera_limits", "tessera_process", "tessera_span", "tessera_usage")
UUID = "GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6"
LIMITS = abi.Limits(
    uuid=UUID,
    claim="5f0c1d1e-0000-4000-8000-000000000000",
    memory_bytes=3000 << 20,
    card_memory_bytes=24 << 30,
    guaranteed_cores=30,
    effective_cores=45,
    policy=abi.Policy.FORCE,
    priority=1,
    spill=True,
    caps=(abi.Cap("trainer", 1 << 30, 20), abi.Cap("sidecar", 0, 0)),
)


# --- the layout --------------------------------------------------------------------------------------------


def test_layout_is_the_compilers(tmp_path: Path) -> None:
    """cffi's offsets against those of the compiler that builds the library."""
    lines = []
    for name in STRUCTS:
        fields = [field for field, _ in _abi.ffi.typeof(f"struct {name}").fields]
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [f'printf("{name}.{each} %zu\\n", offsetof(struct {name}, {each}));' for each in fields]
    source = tmp_path / "layout.c"
    body = "\n".join(lines)
    includes = f'#include "{HEADER}"\n#include <stddef.h>\n#include <stdio.h>\n'
    source.write_text(f"{includes}int main(void) {{\n{body}\nreturn 0; }}\n")
    program = tmp_path / "layout"
    target = ["-target", "x86_64-linux-gnu.2.17"]
    subprocess.run([sys.executable, "-m", "ziglang", "cc", *target, source, "-o", program], check=True)
    listed = subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout
    compiled = dict(line.split() for line in listed.splitlines())
    for name in STRUCTS:
        assert compiled.pop(name) == str(_abi.ffi.sizeof(f"struct {name}"))
    for name, offset in compiled.items():
        owner, field = name.split(".")
        assert offset == str(_abi.ffi.offsetof(f"struct {owner}", field)), name


def test_no_field_is_without_a_use_or_padded() -> None:
    """Every byte of a struct is in a field, so both machines lay it out alike."""
    for name in STRUCTS:
        end = 0
        for field, description in _abi.ffi.typeof(f"struct {name}").fields:
            assert description.offset == end, f"hole before {name}.{field}"
            end += _abi.ffi.sizeof(description.type)
        assert end == _abi.ffi.sizeof(f"struct {name}")


def test_compute_has_a_cache_line_of_its_own() -> None:
    assert _abi.ffi.offsetof("struct tessera_usage", "time_ready_ns") % 64 == 0


def test_constants_are_the_headers() -> None:
    constants = dict(re.findall(r"^#define (TESSERA_\w+) (\w+)", HEADER.read_text(), re.MULTILINE))
    assert len(constants) > 10
    for name, value in constants.items():
        assert _abi.ffi.integer_const(name) == int(value, 0)
    for policy in abi.Policy:
        assert _abi.ffi.integer_const(f"TESSERA_POLICY_{policy.name}") == policy


# --- limits ------------------------------------------------------------------------------------------------


def test_limits_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    assert abi.read_limits(path) == LIMITS
    assert path.stat().st_mode & 0o777 == 0o444
    assert [each.name for each in tmp_path.iterdir()] == ["limits"]


_NUMBERS = st.integers(min_value=0, max_value=2**32 - 1)
_NAMES = st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


@given(
    limits=st.builds(
        abi.Limits,
        uuid=st.sampled_from([UUID, UUID.replace("GPU", "MIG"), UUID.upper()]),
        claim=st.uuids().map(str) | st.just(""),
        memory_bytes=st.integers(min_value=1, max_value=2**64 - 1),
        card_memory_bytes=st.integers(min_value=0, max_value=2**64 - 1),
        guaranteed_cores=_NUMBERS,
        effective_cores=_NUMBERS,
        policy=st.sampled_from(abi.Policy),
        priority=st.integers(min_value=0, max_value=1),
        spill=st.booleans(),
        caps=st.lists(
            st.builds(abi.Cap, container=_NAMES, memory_bytes=_NUMBERS, cores=_NUMBERS), max_size=16
        ).map(tuple),
    )
)
def test_any_limits_round_trip(tmp_path_factory: pytest.TempPathFactory, limits: abi.Limits) -> None:
    path = tmp_path_factory.mktemp("grant") / "limits"
    abi.write_limits(path, limits)
    assert abi.read_limits(path) == limits


def test_valid_limits_change_in_place(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    before = path.stat()
    changed = dataclasses.replace(LIMITS, memory_bytes=1 << 30, effective_cores=10, caps=())
    abi.write_limits(path, changed)
    assert abi.read_limits(path) == changed
    assert (path.stat().st_ino, path.stat().st_mode) == (before.st_ino, before.st_mode)


@pytest.mark.parametrize("change", [{"uuid": UUID.replace("4e", "5e")}, {"claim": ""}], ids=["card", "claim"])
def test_another_grants_file_is_replaced(tmp_path: Path, change: dict[str, str]) -> None:
    """Whoever has the old one mapped keeps the limits of the card that it was for."""
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    with path.open("rb") as old:
        abi.write_limits(path, dataclasses.replace(LIMITS, **change))  # type: ignore[arg-type]
        assert os.fstat(old.fileno()).st_ino != path.stat().st_ino


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"uuid": "0"}, "uuid is '0', expected GPU- or MIG- and a UUID"),
        ({"memory_bytes": 0}, "memory_bytes is 0, expected 1 to"),
        ({"memory_bytes": 2**64}, "memory_bytes is 18446744073709551616"),
        ({"guaranteed_cores": -1}, "guaranteed_cores is -1"),
        ({"priority": 2}, "priority is 2, expected 0 to 1"),
        ({"claim": "x" * 40}, "claim is 'xxx"),
        ({"caps": (abi.Cap("c", 1, 1),) * 17}, "number of caps is 17, expected 0 to 16"),
        ({"caps": (abi.Cap("c" * 64, 1, 1),)}, r"caps\[0\].container is 'ccc"),
        ({"caps": (abi.Cap("c", -1, 1),)}, r"caps\[0\].memory_bytes is -1"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_no_file_can_hold_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    with pytest.raises(abi.AbiError, match=message):
        abi.write_limits(tmp_path / "limits", dataclasses.replace(LIMITS, **change))  # type: ignore[arg-type]
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("magic", U32.pack(0x55535354), "magic is 0x55535354, expected 0x4c535354"),
        ("version", U32.pack(2), "version is 2, expected 1"),
        ("version", U32.pack(0), "version is 0, expected 1"),
        ("size", U32.pack(8), "size is 8, expected at least 1424"),
        ("sequence", U32.pack(7), "sequence is 7: a write was not finished"),
        ("policy", U32.pack(3), "policy is 3, expected 0 to 2"),
        ("cap_count", U32.pack(17), "number of caps is 17, expected 0 to 16"),
        ("uuid", b"nothing\0", "uuid is 'nothing"),
        ("memory_bytes", bytes(8), "memory_bytes is 0, expected 1 to"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_damaged_limits_are_refused_by_name(tmp_path: Path, field: str, value: bytes, message: str) -> None:
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    patched(path, "tessera_limits", field, value)
    with pytest.raises(abi.AbiError, match=f"{re.escape(str(path))}: .*{message}"):
        abi.read_limits(path)


def test_an_unfinished_write_is_repaired_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    patched(path, "tessera_limits", "sequence", U32.pack(7))
    abi.write_limits(path, LIMITS)
    assert abi.read_limits(path) == LIMITS


@pytest.mark.parametrize("read", [abi.read_limits, abi.read_usage], ids=["limits", "usage"])
def test_no_file_and_short_files(tmp_path: Path, read: Callable[[Path], object]) -> None:
    path = tmp_path / "file"
    with pytest.raises(abi.AbiError, match="file: No such file or directory"):
        read(path)
    path.write_bytes(b"x" * 100)
    with pytest.raises(abi.AbiError, match="file: 100 bytes, expected"):
        read(path)


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "fchmod", refuse)
    with pytest.raises(OSError, match="disk full"):
        abi.write_limits(tmp_path / "limits", LIMITS)
    assert not any(tmp_path.iterdir())


@pytest.fixture
def limits_file(tmp_path: Path) -> Path:
    """As the agent lays it: in the grant's directory in the claim's."""
    path = tmp_path / "claim" / "grant" / "limits"
    path.parent.mkdir(parents=True)
    abi.write_limits(path, LIMITS)
    return path


def lend_some(path: Path) -> None:
    assert abi.lend(path, 60, 1500, 1200, 10**9)


@pytest.mark.parametrize(
    "write", [lambda path: abi.write_limits(path, LIMITS), lend_some], ids=["limits", "what-is-lent"]
)
def test_two_agents_write_one_after_the_other(
    limits_file: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], None]
) -> None:
    """One that is in the middle of it keeps the other out, and may not do so for ever."""
    monkeypatch.setattr(abi_files, "_PATIENCE", 0.02)
    before = limits_file.read_bytes()
    other = os.open(limits_file.parents[1], os.O_RDONLY)
    try:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(abi.AbiError, match="another process has been writing here"):
            write(limits_file)
        assert limits_file.read_bytes() == before
        fcntl.flock(other, fcntl.LOCK_UN)
        write(limits_file)
        assert limits_file.read_bytes() != before
    finally:
        os.close(other)


def test_a_tenant_holds_up_no_writer(limits_file: Path) -> None:
    """He can lock what he can open: his limits, and the directory that they are in if he is shown it."""
    tenants = [os.open(path, os.O_RDONLY) for path in (limits_file, limits_file.parent)]
    try:
        for each in tenants:
            fcntl.flock(each, fcntl.LOCK_EX)
        lend_some(limits_file)
    finally:
        for each in tenants:
            os.close(each)


def test_what_is_lent_is_all_that_changes(tmp_path: Path) -> None:
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    assert abi.lend(path, 70, 1400, 1100, 10**15)
    assert abi.read_limits(path) == dataclasses.replace(
        LIMITS, effective_cores=70, stretch=1400, stretch_unlent=1100, lease_until_ns=10**15
    )
    abi.write_limits(path, LIMITS)
    assert abi.read_limits(path) == LIMITS


@pytest.mark.parametrize(
    ("policy", "lease", "cores"),
    [
        (abi.Policy.DEFAULT, 101, 45),
        (abi.Policy.DEFAULT, 100, 30),
        (abi.Policy.FORCE, 101, 30),
        (abi.Policy.DISABLE, 101, 0),
    ],
)
def test_cores_in_force(policy: abi.Policy, lease: int, cores: int) -> None:
    limits = dataclasses.replace(LIMITS, policy=policy, lease_until_ns=lease)
    assert limits.cores_at(100) == cores


def test_to_who_knows_no_end_nothing_is_lent(tmp_path: Path) -> None:
    """Limits of the first release are read and changed, but a library of that age would never give back."""
    path = tmp_path / "limits"
    abi.write_limits(path, LIMITS)
    older(path, "limits")
    assert abi.read_limits(path) == LIMITS
    assert not abi.lend(path, 70, 1400, 1100, 10**15)
    assert abi.read_limits(path) == LIMITS
    inode = path.stat().st_ino
    changed = dataclasses.replace(LIMITS, memory_bytes=5)
    abi.write_limits(path, changed)
    assert (abi.read_limits(path), path.stat().st_ino) == (changed, inode)
    assert not abi.lend(path, 70, 1400, 1100, 10**15)


def test_library_paths() -> None:
    assert abi.library_path().name == "libtessera.so"
    assert abi.access_library_path().parent == abi.library_path().parent
