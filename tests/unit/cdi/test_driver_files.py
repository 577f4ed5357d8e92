from __future__ import annotations

import json
from pathlib import Path, PurePosixPath

import msgspec
import pytest

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.errors import DriverNotReadyError
from cdi.model import ContainerEdits, Device, Spec
from tests.unit.cdi.elf_files import AARCH64, I386, write
from tests.unit.cdi.loader_cache import ld_cache
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


def aarch64(root: Path) -> None:
    """A Grace machine: Debian's directories, under the name of its own architecture."""
    libraries(root / "usr/lib/aarch64-linux-gnu", machine=AARCH64)
    libraries(root / "usr/lib/x86_64-linux-gnu")  # a multiarch tree; not ours
    touch(root / "usr/bin/nvidia-smi")
    touch(root / "usr/bin/nvidia-imex")
    nodes(root / "dev")


def talos(root: Path) -> None:
    """An immutable system: the driver is an extension, below /usr/local; nodes are the host's."""
    libraries(root / "usr/local/glibc/usr/lib")
    touch(root / "usr/local/bin/nvidia-smi")
    touch(root / f"usr/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin")


def nixos(root: Path) -> None:
    """Everything is a link into the store, the firmware too."""
    store = f"nix/store/0c7xg-nvidia-x11-{VERSION}"
    libraries(root / store / "lib")
    touch(root / store / "bin/nvidia-smi")
    touch(root / store / f"lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")
    link(root / "run/opengl-driver", f"/{store}")
    link(root / "run/current-system/sw/bin/nvidia-smi", f"/{store}/bin/nvidia-smi")
    link(root / "run/current-system/firmware/nvidia", f"/{store}/lib/firmware/nvidia")
    nodes(root / "dev")


def only_in_the_cache(root: Path) -> None:
    """A directory that nobody would guess; the root's own loader knows it."""
    libraries(root / "opt/vendor/nvidia/lib")
    cache = ld_cache(("libcuda.so.1", "/opt/vendor/nvidia/lib/libcuda.so.1"))
    (root / "etc").mkdir()
    (root / "etc/ld.so.cache").write_bytes(cache)
    nodes(root / "dev")


def odd_libraries(root: Path) -> None:
    """No soname, a number of its own, one soname twice, text, a link to nowhere, another machine."""
    directory = root / "usr/lib64"
    libraries(directory)
    write(directory / f"libnvidia-allocator.so.{VERSION}", None)
    write(directory / "libnvidia-nvvm70.so.4", "libnvidia-nvvm70.so.4")
    write(directory / f"libnvidia-ml-again.so.{VERSION}", "libnvidia-ml.so.1")
    touch(directory / f"libnvidia-notes.so.{VERSION}")
    link(directory / f"libnvidia-lost.so.{VERSION}", "/nowhere")
    write(directory / f"libnvidia-arm.so.{VERSION}", "libnvidia-arm.so.1", machine=AARCH64)
    write(directory / "libnvidia-old.so.535.104.05", "libnvidia-old.so.1")
    nodes(root / "dev")


def everything(root: Path) -> None:
    """All that is handed out, and beside it what is not: MPS's pipe, what draws, Xorg's module."""
    debian(root)
    for name in ("nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-server", "nvidia-imex-ctl"):
        touch(root / "usr/bin" / name)
    touch(root / "run/nvidia-fabricmanager/socket")
    touch(root / f"usr/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin")
    touch(root / "dev/nvidia-modeset")
    touch(root / "dev/dri/renderD128")
    touch(root / "tmp/nvidia-mps/control")
    touch(root / "etc/vulkan/icd.d/nvidia_icd.json")
    touch(root / "usr/lib/x86_64-linux-gnu/nvidia/xorg/nvidia_drv.so")


def driver(
    root: Path, host: str, devices: Path, proc: Path = Path("/nowhere"), *, machine: str = "x86_64"
) -> Driver:
    return Driver(DriverRoot(PurePosixPath(host), root), devices=devices, proc=proc, machine=machine)


@pytest.mark.parametrize(
    ("layout", "host"),
    [
        pytest.param(debian, "/", id="debian"),
        pytest.param(red_hat, "/", id="red-hat"),
        pytest.param(container, "/run/nvidia/driver", id="driver-container"),
        pytest.param(aarch64, "/", id="aarch64"),
        pytest.param(talos, "/", id="talos"),
        pytest.param(nixos, "/", id="nixos"),
        pytest.param(only_in_the_cache, "/", id="only-in-the-loaders-cache"),
        pytest.param(odd_libraries, "/", id="odd-libraries"),
        pytest.param(everything, "/", id="everything"),
    ],
)
def test_golden(tmp_path: Path, request: pytest.FixtureRequest, layout: object, host: str) -> None:
    assert callable(layout)
    layout(tmp_path / "root")
    nodes(tmp_path / "dev")
    machine = "aarch64" if layout is aarch64 else "x86_64"
    found = driver(tmp_path / "root", host, tmp_path / "dev", machine=machine)
    spec = Spec(
        kind="gpu.tessera.dev/grant",
        devices=(Device(name="card", container_edits=ContainerEdits(device_nodes=(found.card(3),))),),
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


def capabilities(
    proc: Path, text: str = "DeviceFileMinor: {}\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
) -> None:
    """Of card 3: a compute instance of GPU instance 9."""
    directory = proc / "driver/nvidia/capabilities/gpu3/mig/gi9"
    (directory / "ci0").mkdir(parents=True)
    (directory / "access").write_text(text.format(84))
    (directory / "ci0/access").write_text(text.format(85))


@pytest.mark.parametrize("below_root", [True, False], ids=["of-the-driver-root", "our-own"])
def test_nodes_of_an_instance(tmp_path: Path, below_root: bool) -> None:
    container(tmp_path / "root")
    capabilities(tmp_path / "root/proc" if below_root else tmp_path / "proc")
    devices = tmp_path / "root/dev" if below_root else tmp_path / "dev"
    nodes(devices, ("nvidia-caps/nvidia-cap84", "nvidia-caps/nvidia-cap85"))
    found = driver(tmp_path / "root", "/run/drv", tmp_path / "dev", tmp_path / "proc").nodes.instance(3, 9, 0)
    names = ["/dev/nvidia3", "/dev/nvidia-caps/nvidia-cap84", "/dev/nvidia-caps/nvidia-cap85"]
    assert [node.path for node in found] == names
    hosts = [f"/run/drv{name}" for name in names]
    assert [node.host_path for node in found] == (hosts if below_root else [hosts[0], None, None])


@pytest.mark.parametrize(
    ("text", "made", "message"),
    [
        pytest.param(None, (), r"gpu3/mig/gi9/access is missing.*still exist\?", id="no-instance"),
        pytest.param("DeviceFileMode: 292\n", (), "names no DeviceFileMinor", id="no-minor"),
        pytest.param(
            "DeviceFileMinor: {}\n",
            ("nvidia-caps/nvidia-cap84",),
            "/dev/nvidia-caps/nvidia-cap85 is missing",
            id="no-node",
        ),
    ],
)
def test_an_instance_that_is_not_ready(
    tmp_path: Path, text: str | None, made: tuple[str, ...], message: str
) -> None:
    container(tmp_path / "root")
    nodes(tmp_path / "root/dev", made)
    if text is not None:
        capabilities(tmp_path / "root/proc", text)
    with pytest.raises(DriverNotReadyError, match=message):
        driver(tmp_path / "root", "/", tmp_path / "dev").nodes.instance(3, 9, 0)


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
        devices=(Device(name="a", container_edits=ContainerEdits(env=("A=b",))),),
        container_edits=driver(tmp_path / "root", "/", tmp_path / "dev").files().edits,
    )
    document = json.loads(written.to_json())
    document.pop("cdiVersion")
    assert msgspec.convert(document, Spec) == written
