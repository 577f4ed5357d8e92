"""Usage files, which tenants write: nothing in them breaks the reader."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interposer import _abi, abi
from tests.unit.interposer.damaged import U32, older, patched

ROOT = Path(__file__).resolve().parents[3]


def test_spans_are_those_that_end_later(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    offset = _abi.ffi.offsetof("struct tessera_usage", "spans")
    with path.open("r+b") as file:
        file.seek(offset)
        for start, length, slot in ((1000, 5, 1), (2000, 0, 2), (9000, 3, 3)):
            file.write(struct.pack("<QII", start, length, slot))
    assert abi.read_usage(path).spans == ()
    assert abi.read_usage(path, 0).spans == (abi.Span(1, 1000, 6000), abi.Span(3, 9000, 12000))
    assert abi.read_usage(path, 6000).spans == (abi.Span(3, 9000, 12000),)


def test_a_usage_file_of_the_first_release_has_none(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    size = older(path, "usage")
    abi.create_usage(path)
    assert path.stat().st_size == size
    assert abi.read_usage(path, 0) == abi.Usage(memory_bytes=0, peak_memory_bytes=0, processes=(), spans=())


def test_new_usage_is_sparse_and_open_to_the_tenant(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    status = path.stat()
    assert (status.st_mode & 0o777, status.st_size) == (0o666, _abi.ffi.sizeof("struct tessera_usage"))
    assert status.st_blocks * 512 <= 16384
    assert abi.read_usage(path) == abi.Usage(memory_bytes=0, peak_memory_bytes=0, processes=())


def _enter(path: Path, slot: int, held: int) -> None:
    """A slot as the library fills it."""
    offset = _abi.ffi.offsetof("struct tessera_usage", "process") + slot * _abi.ffi.sizeof(
        "struct tessera_process"
    )
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<IIQQ", 4711, 0, 1, held))
    high = struct.unpack("<I", _read(path, "slots_high", 4))[0]
    patched(path, "tessera_usage", "slots_high", U32.pack(max(high, slot + 1)))


def _read(path: Path, field: str, size: int) -> bytes:
    start = _abi.ffi.offsetof("struct tessera_usage", field)
    return path.read_bytes()[start : start + size]


HOLDER = """
import fcntl, os, sys
descriptor = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))
print("locked", flush=True)
sys.stdin.read()
"""


@contextmanager
def _held(path: Path, slot: int) -> Iterator[int]:
    """The pid of a process that holds the slot's record lock."""
    command = [sys.executable, "-c", HOLDER, str(path), str(slot)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder.pid
        holder.kill()


def test_the_living_are_those_who_hold_their_record_lock(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    _enter(path, 0, 512)  # dead
    _enter(path, 2, 1024)
    with _held(path, 2) as pid:
        (process,) = abi.read_usage(path).processes
        assert (process.slot, process.pid, process.memory_bytes) == (2, pid, 1024)
        assert abi.read_usage(path).memory_bytes == 1024
    assert abi.read_usage(path).processes == ()


def _last_operation(path: Path, number: int, slot: int, held: int, total: int) -> None:
    """The header as an operation leaves it; in granules."""
    low = _abi.ffi.integer_const("TESSERA_TOTAL_SHIFT")
    values = (number << 20 | slot << 8 | held >> low, total << low | held & ((1 << low) - 1))
    patched(path, "tessera_usage", "last_operation", struct.pack("<QQ", *values))


def test_what_the_last_operation_did_stands_in_the_header(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    _enter(path, 2, 512)
    _enter(path, 3, 1024)
    patched(path, "tessera_usage", "peak_memory_bytes", struct.pack("<Q", 4096))
    many = (1 << 33) + 5  # more than the lower bits hold
    _last_operation(path, 7, 2, many, many + 2)
    with _held(path, 2), _held(path, 3):
        usage = abi.read_usage(path)
    assert [each.memory_bytes for each in usage.processes] == [many * 512, 1024]
    assert (usage.memory_bytes, usage.peak_memory_bytes) == (many * 512 + 1024, (many + 2) * 512)


def test_a_file_that_counts_in_another_way_is_left_to_those_who_use_it(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    _enter(path, 2, 512)
    patched(path, "tessera_usage", "version", U32.pack(1))
    before = path.read_bytes()
    with pytest.raises(abi.AbiError, match=r"version is 1, expected 2$"):
        abi.read_usage(path)
    with _held(path, 2), pytest.raises(abi.AbiError, match=r"version is 1, expected 2: .* delete these pods"):
        abi.create_usage(path)
    assert path.read_bytes() == before
    with path.open("rb") as old:
        abi.create_usage(path)  # whoever still has the old one has it alone
        assert os.fstat(old.fileno()).st_ino != path.stat().st_ino
        assert old.read() == before
    assert abi.read_usage(path).processes == ()


def test_a_valid_usage_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    _enter(path, 0, 512)
    before = path.read_bytes()
    abi.create_usage(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: patched(path, "tessera_usage", "magic", U32.pack(1)),
        lambda path: patched(path, "tessera_usage", "slots", U32.pack(1 << 30)),
        lambda path: os.truncate(path, 10),
        lambda path: path.write_bytes(b"\xff" * 600000),
    ],
    ids=["magic", "slots", "short", "garbage"],
)
def test_damaged_usage_is_refused_and_repaired_in_place(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    inode = path.stat().st_ino
    damage(path)
    with pytest.raises(abi.AbiError, match=re.escape(str(path))):
        abi.read_usage(path)
    abi.create_usage(path)
    assert path.stat().st_ino == inode
    assert abi.read_usage(path).processes == ()


@given(noise=st.binary(min_size=256, max_size=256))
def test_no_content_of_the_tenants_breaks_the_reader(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes
) -> None:
    path = tmp_path_factory.mktemp("grant") / "usage"
    abi.create_usage(path)
    with path.open("r+b") as file:
        file.seek(16)  # the constant fields stay
        file.write(noise)
    with path.open("rb") as held:
        fcntl.lockf(held, fcntl.LOCK_SH, 1, 0)
        assert abi.read_usage(path).processes == ()


_SHORTENS = """
import os, sys
path, size = sys.argv[1], os.stat(sys.argv[1]).st_size
print("ready", flush=True)
while True:
    os.truncate(path, 0)
    os.truncate(path, size)
"""
_READS = """
import pathlib, sys
from interposer import abi
path = pathlib.Path(sys.argv[1])
for _ in range(2000):
    try:
        abi.read_usage(path, since_ns=0)
    except abi.AbiError:
        pass
"""


def test_a_tenant_who_shortens_the_file_does_not_end_the_reader(tmp_path: Path) -> None:
    path = tmp_path / "usage"
    abi.create_usage(path)
    tenant = subprocess.Popen([sys.executable, "-c", _SHORTENS, path], stdout=subprocess.PIPE)
    try:
        assert tenant.stdout is not None
        tenant.stdout.readline()
        assert subprocess.run([sys.executable, "-c", _READS, path], cwd=ROOT, check=False).returncode == 0
    finally:
        tenant.kill()
        tenant.communicate()
