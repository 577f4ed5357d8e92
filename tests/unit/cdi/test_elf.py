from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cdi import elf
from tests.unit.cdi.elf_files import AARCH64, I386, shared_object

WHOLE = shared_object("libcuda.so.1")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(WHOLE, elf.SharedObject("x86_64", "libcuda.so.1"), id="x86_64"),
        pytest.param(
            shared_object("libcuda.so.1", machine=AARCH64),
            elf.SharedObject("aarch64", "libcuda.so.1"),
            id="aarch64",
        ),
        pytest.param(shared_object(None), elf.SharedObject("x86_64", None), id="no-soname"),
        pytest.param(shared_object("libcuda.so.1", machine=I386), None, id="32-bit-machine"),
        pytest.param(shared_object("libcuda.so.1", elf_class=1), None, id="32-bit-class"),
        pytest.param(b"", None, id="empty"),
        pytest.param(b"/* GNU ld script */ GROUP ( libc.so.6 )" + b" " * 64, None, id="linker-script"),
        pytest.param(WHOLE[:-1], None, id="string-without-end"),
    ],
)
def test_read(tmp_path: Path, content: bytes, expected: elf.SharedObject | None) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    assert elf.read(path) == expected


def test_a_real_program() -> None:
    found = elf.read(Path(sys.executable).resolve())
    assert found is not None
    assert found.machine in elf.MACHINES.values()


@example(cut=160, position=135, byte=128)  # an offset of 2^63
@given(cut=st.integers(0, len(WHOLE)), position=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255))
def test_damage_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory, cut: int, position: int, byte: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.so"
    damaged = bytearray(WHOLE)
    damaged[position] = byte
    path.write_bytes(bytes(damaged[:cut]))
    found = elf.read(path)
    assert found is None or isinstance(found, elf.SharedObject)
