from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from cdi.driver_shim import SONAMES, Covered, covered_by, is_named, shim_mounts
from cdi.errors import DriverNotReadyError
from cdi.model import Mount

CUDA, NVML = SONAMES
OWN = {CUDA: "/drv/libcuda.so.570.124.06", NVML: "/drv/libnvidia-ml.so.570.124.06"}


def mounts(*container_paths: str) -> tuple[Mount, ...]:
    return tuple(Mount(host_path="/drv/file", container_path=path) for path in container_paths)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/usr/lib64/libcuda.so.1", CUDA),
        ("/usr/lib64/libcuda.so", CUDA),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", CUDA),
        ("/usr/lib/i386-linux-gnu/libcuda.so.570.124.06", CUDA),
        ("/usr/lib64/libnvidia-ml.so.1", NVML),
        ("/usr/lib64/libcudadebugger.so.1", None),
        ("/usr/lib64/libcudart.so.12", None),
        ("/usr/lib64/libnvidia-ptxjitcompiler.so.1", None),
        ("/usr/lib64/libcuda.so.1/file", None),
        ("/usr/lib64/libcuda.sorry", None),
    ],
)
def test_which_library_a_path_is(path: str, expected: str | None) -> None:
    assert [soname for soname in SONAMES if is_named(path, soname)] == ([expected] if expected else [])


def test_everything_by_which_a_library_is_found_is_covered() -> None:
    given = mounts(
        "/a/libcuda.so.1", "/b/libcuda.so.1", "/a/libnvidia-ml.so.1", "/a/libcuda.so", "/a/other.so"
    )
    assert covered_by(OWN, (*given, *given)) == (
        Covered(CUDA, OWN[CUDA], ("/a/libcuda.so.1", "/b/libcuda.so.1", "/a/libcuda.so")),
        Covered(NVML, OWN[NVML], ("/a/libnvidia-ml.so.1",)),
    )


@pytest.mark.parametrize(
    ("own", "given", "message"),
    [
        pytest.param(
            {CUDA: "/c"}, mounts("/a/libcuda.so.1", "/a/libnvidia-ml.so.1"), f"{NVML}: the driver has none"
        ),
        pytest.param(OWN, mounts("/a/libcuda.so.1"), f"{NVML}: no document mounts it"),
        pytest.param(OWN, (), f"{CUDA}: no document mounts it"),
    ],
    ids=["no-nvml", "nvml-not-mounted", "nothing-mounted"],
)
def test_what_cant_be_covered_is_no_smaller_shim(
    own: dict[str, str], given: tuple[Mount, ...], message: str
) -> None:
    with pytest.raises(DriverNotReadyError, match=message):
        covered_by(own, given)


def test_the_drivers_own_are_mounted_where_the_shims_look() -> None:
    covered = (Covered(CUDA, OWN[CUDA], ("/a/libcuda.so.1", "/b/libcuda.so.1")),)
    found = [
        (mount.host_path, mount.container_path, mount.options[0])
        for mount in shim_mounts(covered, {CUDA: "/lib/shim.so"}, PurePosixPath("/run/tessera/driver"))
    ]
    assert found == [
        (OWN[CUDA], "/run/tessera/driver/libcuda.so.1", "ro"),
        ("/lib/shim.so", "/a/libcuda.so.1", "ro"),
        ("/lib/shim.so", "/b/libcuda.so.1", "ro"),
    ]
