from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import pytest

from cdi.driver_files import Driver, DriverNotReadyError
from cdi.driver_root import DriverRoot
from cdi.model import Device, Spec
from tests.unit.cdi.elf_files import AARCH64, I386, write
from tests.unit.golden import assert_golden

VERSION = "570.124.06"
GOLDEN = Path(__file__).parent / "golden"
NODES = ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def libraries(directory: Path, version: str = VERSION, machine: int = 62) -> None:
    write(directory / f"libcuda.so.{version}", "libcuda.so.1", machine=machine)
    write(directory / f"libnvidia-ml.so.{version}", "libnvidia-ml.so.1", machine=machine)
    write(directory / f"libnvidia-gpucomp.so.{version}", f"libnvidia-gpucomp.so.{version}", machine=machine)
    link(directory / "libcuda.so.1", f"libcuda.so.{version}")
    link(directory / "libcuda.so", "libcuda.so.1")
    link(directory / "libnvidia-ml.so.1", f"libnvidia-ml.so.{version}")


def nodes(directory: Path, names: tuple[str, ...] = NODES) -> None:
    for name in names:
        touch(directory / name)


def debian(root: Path) -> None:
    """A driver that the distribution or NVIDIA's installer put into the host itself."""
    libraries(root / "usr/lib/x86_64-linux-gnu")
    libraries(root / "usr/lib/i386-linux-gnu", machine=I386)
    touch(root / "usr/bin/nvidia-smi")
    touch(root / "usr/bin/nvidia-cuda-mps-control")
    touch(root / f"usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
    link(root / "lib", "usr/lib")
    touch(root / "run/nvidia-persistenced/socket")
    nodes(root / "dev")


def red_hat(root: Path) -> None:
    """Libraries in /usr/lib64; device nodes are the host's, not below the root."""
    libraries(root / "usr/lib64")
    link(root / "lib64", "usr/lib64")
    touch(root / "usr/bin/nvidia-smi")


def container(root: Path) -> None:
    """A driver container as gpu-operator runs it: absolute links that mean the container's own root."""
    libraries(root / "usr/lib/x86_64-linux-gnu/nvidia/current", version="535.104.05")
    link(root / "usr/lib/x86_64-linux-gnu/libcuda.so.1", "/etc/alternatives/libcuda")
    link(root / "etc/alternatives/libcuda", "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    link(root / "usr/bin/nvidia-smi", "/opt/nvidia/bin/nvidia-smi")
    touch(root / "opt/nvidia/bin/nvidia-smi")
    nodes(root / "dev", ("nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm", "nvidia-modeset"))


def driver(root: Path, host: str, devices: Path) -> Driver:
    return Driver(DriverRoot(PurePosixPath(host), root), devices=devices, machine="x86_64")


@pytest.mark.parametrize(
    ("layout", "host"),
    [
        pytest.param(debian, "/", id="debian"),
        pytest.param(red_hat, "/", id="red-hat"),
        pytest.param(container, "/run/nvidia/driver", id="driver-container"),
    ],
)
def test_golden(tmp_path: Path, request: pytest.FixtureRequest, layout: object, host: str) -> None:
    assert callable(layout)
    layout(tmp_path / "root")
    nodes(tmp_path / "dev")
    found = driver(tmp_path / "root", host, tmp_path / "dev")
    spec = Spec(
        kind="gpu.tessera.dev/grant",
        devices=(Device(name="card", container_edits={"deviceNodes": (found.card(3),)}),),
        container_edits=found.files().edits,
    )
    assert_golden(GOLDEN / f"{request.node.callspec.id}.json", spec.to_json().decode())
    assert str(tmp_path) not in spec.to_json().decode()


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        pytest.param("usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06", "no libcuda.so", id="no-libcuda"),
        pytest.param("dev/nvidiactl", "/dev/nvidiactl is missing", id="no-nvidiactl"),
        pytest.param("dev/nvidia-uvm", "/dev/nvidia-uvm is missing", id="no-uvm"),
    ],
)
def test_not_ready(tmp_path: Path, remove: str, message: str) -> None:
    debian(tmp_path / "root")
    (tmp_path / "root" / remove).unlink()
    with pytest.raises(DriverNotReadyError, match=message):
        driver(tmp_path / "root", "/", tmp_path / "dev").files()


def test_all_missing_nodes_are_named(tmp_path: Path) -> None:
    red_hat(tmp_path / "root")
    with pytest.raises(DriverNotReadyError, match=r"/dev/nvidiactl .*/dev/nvidia-uvm "):
        driver(tmp_path / "root", "/", tmp_path / "dev").files()


def test_a_missing_card_is_not_ready(tmp_path: Path) -> None:
    debian(tmp_path / "root")
    with pytest.raises(DriverNotReadyError, match="/dev/nvidia1 is missing"):
        driver(tmp_path / "root", "/", tmp_path / "dev").card(1)


def test_libraries_of_another_machine_are_none(tmp_path: Path) -> None:
    libraries(tmp_path / "root/usr/lib64", machine=AARCH64)
    nodes(tmp_path / "root/dev")
    with pytest.raises(DriverNotReadyError, match="for x86_64"):
        driver(tmp_path / "root", "/", tmp_path / "dev").files()


def test_found_once_and_again_after_an_upgrade(tmp_path: Path) -> None:
    debian(tmp_path / "root")
    found = driver(tmp_path / "root", "/", tmp_path / "dev")
    first = found.files()
    assert found.files() is first
    directory = tmp_path / "root/usr/lib/x86_64-linux-gnu"
    for path in list(directory.iterdir()):
        path.unlink()
    libraries(directory, version="580.10")
    assert found.files().version == "580.10"


def test_library_by_soname(tmp_path: Path) -> None:
    container(tmp_path / "root")
    found = driver(tmp_path / "root", "/run/nvidia/driver", tmp_path / "dev")
    expected = "root/usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-ml.so.535.104.05"
    assert found.library("libnvidia-ml.so.1") == tmp_path / expected
    assert found.library("libnothing.so.1") is None


@pytest.mark.parametrize(
    ("links", "asked", "expected"),
    [
        pytest.param({}, "/file", "/file", id="plain"),
        pytest.param({"a": "file"}, "/a", "/file", id="relative-link"),
        pytest.param({"a": "/file"}, "/a", "/file", id="absolute-link-stays-inside"),
        pytest.param({"a": "../../../file"}, "/a", "/file", id="dots-stay-inside"),
        pytest.param({"a": "/b", "b": "/a"}, "/a", None, id="loop"),
        pytest.param({"a": "/nowhere"}, "/a", None, id="dangling"),
        pytest.param({}, "/nowhere", None, id="absent"),
    ],
)
def test_resolve(tmp_path: Path, links: dict[str, str], asked: str, expected: str | None) -> None:
    (tmp_path / "file").touch()
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    found = DriverRoot(PurePosixPath("/host"), tmp_path).resolve(asked)
    assert found == (None if expected is None else PurePosixPath(expected))


def test_json_of_a_document_is_read_back(tmp_path: Path) -> None:
    debian(tmp_path / "root")
    written = Spec(
        kind="v/c",
        devices=({"name": "a", "containerEdits": {"env": ("A=b",)}},),
        container_edits=driver(tmp_path / "root", "/", tmp_path / "dev").files().edits,
    )
    document = json.loads(written.to_json())
    document.pop("cdiVersion")
    assert Spec.model_validate(document) == written
