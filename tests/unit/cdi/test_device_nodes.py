from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from cdi.device_nodes import DeviceNodes
from cdi.driver_root import DriverRoot
from cdi.errors import DriverNotReadyError

NAMES = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-caps/nvidia-cap21", "nvidia-caps/nvidia-cap22")


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def rights(proc: Path, minor: int = 0, gpu_instance: int = 2, compute_instance: int = 0) -> None:
    """What the driver says of an instance in /proc."""
    directory = proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
    for path, number in ((directory / "access", 21), (directory / f"ci{compute_instance}/access", 22)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")


def nodes(root: Path, host: str = "/") -> DeviceNodes:
    return DeviceNodes(DriverRoot(PurePosixPath(host), root / "driver"), root / "dev", root / "proc")


@pytest.mark.parametrize("below_the_root", [True, False], ids=["driver-root", "own-dev-and-proc"])
def test_an_instance_has_its_card_and_two_rights(tmp_path: Path, below_the_root: bool) -> None:
    base = tmp_path / "driver" if below_the_root else tmp_path
    for name in NAMES:
        touch(base / "dev" / name)
    rights(base / "proc")
    found = nodes(tmp_path, "/run/nvidia/driver").instance(0, 2, 0)
    assert [node.path for node in found] == [
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap21",
        "/dev/nvidia-caps/nvidia-cap22",
    ]
    prefix = "/run/nvidia/driver" if below_the_root else None
    assert [node.host_path for node in found] == [
        f"{prefix}{node.path}" if prefix else None for node in found
    ]


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        pytest.param("dev/nvidia0", "/dev/nvidia0 is missing", id="no-card"),
        pytest.param(
            "dev/nvidia-caps/nvidia-cap22", "/dev/nvidia-caps/nvidia-cap22 is missing", id="no-right"
        ),
        pytest.param(
            "proc/driver/nvidia/capabilities/gpu0/mig/gi2/ci0/access",
            "gpu0/mig/gi2/ci0/access is missing",
            id="no-such-instance",
        ),
    ],
)
def test_an_instance_that_is_not_whole(tmp_path: Path, remove: str, message: str) -> None:
    for name in NAMES:
        touch(tmp_path / "dev" / name)
    rights(tmp_path / "proc")
    (tmp_path / remove).unlink()
    with pytest.raises(DriverNotReadyError, match=message):
        nodes(tmp_path).instance(0, 2, 0)


@pytest.mark.parametrize("text", ["", "DeviceFileMode: 292\n", "DeviceFileMinor: many\n"])
def test_a_right_without_a_number(tmp_path: Path, text: str) -> None:
    for name in NAMES:
        touch(tmp_path / "dev" / name)
    rights(tmp_path / "proc")
    (tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi2/access").write_text(text)
    with pytest.raises(DriverNotReadyError, match="names no DeviceFileMinor"):
        nodes(tmp_path).instance(0, 2, 0)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("/dev/nvidia0", True, id="our-own-dev"),
        pytest.param("/run/nvidia/driver/dev/nvidiactl", True, id="below-the-driver-root"),
        pytest.param("/dev/nvidia7", False, id="absent"),
        pytest.param("/run/nvidia/driver/dev/nvidia7", False, id="absent-below-the-root"),
        pytest.param("/somewhere/else", False, id="elsewhere"),
    ],
)
def test_exists(tmp_path: Path, path: str, expected: bool) -> None:
    touch(tmp_path / "dev/nvidia0")
    touch(tmp_path / "driver/dev/nvidiactl")
    assert nodes(tmp_path, "/run/nvidia/driver").exists(PurePosixPath(path)) is expected
