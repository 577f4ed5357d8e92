from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi import ld_cache
from tests.unit.cdi.loader_cache import ld_cache as cache

CUDA = ("libcuda.so.1", "/opt/nvidia/lib/libcuda.so.1")
WHOLE = cache(CUDA, ("libm.so.6", "/lib64/libm.so.6"))
PATHS = (PurePosixPath("/opt/nvidia/lib/libcuda.so.1"), PurePosixPath("/lib64/libm.so.6"))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(WHOLE, PATHS, id="as-glibc-writes-it"),
        pytest.param(cache(CUDA, old_entries=3), PATHS[:1], id="behind-the-format-of-old-unaligned"),
        pytest.param(cache(CUDA, old_entries=2), PATHS[:1], id="behind-the-format-of-old-aligned"),
        pytest.param(cache(CUDA, CUDA), PATHS[:1], id="twice"),
        pytest.param(cache(("a", "relative/a")), (), id="no-absolute-path"),
        pytest.param(cache(), (), id="no-entries"),
        pytest.param(b"", (), id="empty"),
        pytest.param(b"ld.so-1.7.0\0", (), id="cut-after-the-old-name"),
        pytest.param(WHOLE[:-1], (), id="string-without-end"),
        pytest.param(WHOLE[:20] + b"\xff\xff\xff\xff" + WHOLE[24:], (), id="too-many-entries"),
        pytest.param(b"something else entirely, and long enough to be one" * 2, (), id="another-file"),
    ],
)
def test_libraries(content: bytes, expected: tuple[PurePosixPath, ...]) -> None:
    assert ld_cache.libraries(content) == expected


def test_this_machines_own() -> None:
    own = Path("/etc/ld.so.cache")
    if not own.exists():
        pytest.skip("no loader's cache here")
    found = ld_cache.libraries(own.read_bytes())
    assert any(path.name.startswith("libc.so") for path in found)
    assert all(path.is_absolute() for path in found)


@given(position=st.integers(0, len(WHOLE) - 1), byte=st.integers(0, 255), cut=st.integers(0, len(WHOLE)))
def test_damage_is_no_crash(position: int, byte: int, cut: int) -> None:
    damaged = bytearray(WHOLE)
    damaged[position] = byte
    assert all(path.is_absolute() for path in ld_cache.libraries(bytes(damaged[:cut])))
