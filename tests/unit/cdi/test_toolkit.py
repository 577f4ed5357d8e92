from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdi.device_nodes import DeviceNodes
from cdi.driver_root import DriverRoot
from cdi.model import Mount
from cdi.toolkit import Found, Judged, Toolkit, device_ids, judge

VERSION = "570.124.06"
ONE, TWO = "GPU-6f1e5d3a-0001-4c3b-9a55-2b7f0e9d4090", "GPU-6f1e5d3a-0002-4c3b-9a55-2b7f0e9da100"
INSTANCE = "MIG-6f1e5d3a-0003-4c3b-9a55-2b7f0e9da100"


def device(name: str, *nodes: str) -> dict[str, Any]:
    return {"name": name, "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}


def document(*devices: dict[str, Any], libcuda: str = f"/usr/lib64/libcuda.so.{VERSION}") -> dict[str, Any]:
    """As nvidia-ctk 1.17 writes it, shortened; hooks are of no matter here, and must not be in the way."""
    given = devices or (
        device("0", "/dev/nvidia0"),
        device(ONE, "/dev/nvidia0", "/dev/dri/card1"),
        device(TWO, "/dev/nvidia1"),
        device(INSTANCE, "/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap21"),
        device("all", "/dev/nvidia0", "/dev/nvidia1"),
    )
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": list(given),
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook"}],
            "mounts": [
                {"hostPath": "/usr/bin/nvidia-smi", "containerPath": "/usr/bin/nvidia-smi"},
                {"hostPath": libcuda, "containerPath": libcuda, "options": ["ro"]},
            ],
            "additionalGids": [44],
        },
    }


@pytest.fixture
def root(tmp_path: Path) -> DriverRoot:
    library = tmp_path / f"root/usr/lib64/libcuda.so.{VERSION}"
    library.parent.mkdir(parents=True)
    library.touch()
    for name in ("nvidia0", "nvidia1", "dri/card1", "nvidia-caps/nvidia-cap21"):
        node = tmp_path / "root/dev" / name
        node.parent.mkdir(parents=True, exist_ok=True)
        node.touch()
    return DriverRoot(PurePosixPath("/"), tmp_path / "root")


def nodes(root: DriverRoot, tmp_path: Path) -> DeviceNodes:
    return DeviceNodes(root, tmp_path / "none", tmp_path / "none")


def test_a_good_document(root: DriverRoot, tmp_path: Path) -> None:
    judged = judge(document(), VERSION, root, nodes(root, tmp_path).exists)
    libcuda = f"/usr/lib64/libcuda.so.{VERSION}"
    assert judged == Judged(
        {
            ONE: frozenset({"/dev/nvidia0", "/dev/dri/card1"}),
            TWO: frozenset({"/dev/nvidia1"}),
            INSTANCE: frozenset({"/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap21"}),
        },
        libraries=(Mount(host_path=libcuda, container_path=libcuda),),
    )


def test_what_a_shim_covers(directories: Directories) -> None:
    """Of each card what its own document mounts, at the document's or the card's level."""
    libcuda, old = f"/usr/lib64/libcuda.so.{VERSION}", f"/usr/lib/i386-linux-gnu/libcuda.so.{VERSION}"
    nvml = f"/usr/lib64/libnvidia-ml.so.{VERSION}"
    first, second = document(device(ONE, "/dev/nvidia0")), document(device(TWO, "/dev/nvidia1"))
    first["containerEdits"]["mounts"].append({"hostPath": "/x", "containerPath": old})
    second["devices"][0]["containerEdits"]["mounts"] = [{"hostPath": nvml, "containerPath": nvml}]
    (directories.high / "a.json").write_text(json.dumps(first))
    (directories.high / "b.json").write_text(json.dumps(second))
    found = directories.look().libraries
    assert {uuid: [mount.container_path for mount in mounts] for uuid, mounts in found.items()} == {
        ONE: [libcuda, old],
        TWO: [libcuda, nvml],
    }


def changed(change: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
    found = copy.deepcopy(document())
    change(found)
    return found


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param(
            document(libcuda="/usr/lib64/libcuda.so.535.104.05"),
            r"it is for driver 535\.104\.05, and 570\.124\.06 is installed",
            id="of-another-driver",
        ),
        pytest.param(
            document(libcuda=f"/usr/lib/x86_64-linux-gnu/libcuda.so.{VERSION}"),
            "there is no /usr/lib/x86_64-linux-gnu/libcuda",
            id="of-another-place",
        ),
        pytest.param(document(device("0", "/dev/nvidia0")), "names no card by UUID", id="by-index-only"),
        pytest.param(document(device(ONE)), f"gives {ONE} no device node", id="empty-edits"),
        pytest.param(
            document(device(ONE, "/dev/nvidia7")), "there is no /dev/nvidia7", id="a-node-that-is-gone"
        ),
        pytest.param(
            changed(lambda found: found["containerEdits"]["mounts"].pop()),
            "mounts no libcuda",
            id="no-libcuda",
        ),
        pytest.param(changed(lambda found: found.pop("containerEdits")), "mounts no libcuda", id="no-edits"),
        pytest.param(
            changed(lambda found: found.update(devices=None)), "can't be understood", id="no-devices"
        ),
        pytest.param(
            changed(lambda found: found["containerEdits"].update(mounts=["text"])),
            "can't be understood",
            id="not-a-mount",
        ),
    ],
)
def test_not_to_be_relied_on(root: DriverRoot, tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    judged = judge(given, VERSION, root, nodes(root, tmp_path).exists)
    assert judged.devices == {}
    assert judged.problem is not None
    assert problem.replace("\\", "") in judged.problem


def test_files_outside_of_the_driver_root(tmp_path: Path) -> None:
    root = DriverRoot(PurePosixPath("/run/nvidia/driver"), tmp_path)
    judged = judge(document(), VERSION, root, lambda _path: True)
    assert judged.problem == (
        "it takes the driver from /usr/lib64, which is outside of the driver root /run/nvidia/driver"
    )


def test_host_paths_of_nodes_count(root: DriverRoot, tmp_path: Path) -> None:
    given = document(device(ONE, "/dev/nvidia0"))
    given["devices"][0]["containerEdits"]["deviceNodes"][0]["hostPath"] = "/gone/dev/nvidia0"
    judged = judge(given, VERSION, root, nodes(root, tmp_path).exists)
    assert judged.problem is not None
    assert "there is no /gone/dev/nvidia0" in judged.problem


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(
    part=st.sampled_from(["devices", "containerEdits", "kind", "cdiVersion"]),
    value=json_like,
    whole=st.booleans(),
)
def test_whatever_is_in_it_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory, part: str, value: Any, whole: bool
) -> None:
    root = tmp_path_factory.getbasetemp() / "root"
    library = root / f"usr/lib64/libcuda.so.{VERSION}"
    library.parent.mkdir(parents=True, exist_ok=True)
    library.touch()
    given = value if whole else document() | {part: value}
    judged = judge(given, VERSION, DriverRoot(PurePosixPath("/"), root), lambda _path: True)
    assert (judged.problem is None) == bool(judged.devices)
    assert all(judged.devices.values())


class Directories:
    """The two directories of a node, and who reads them."""

    def __init__(self, root: DriverRoot, tmp_path: Path) -> None:
        self.low, self.high = tmp_path / "etc", tmp_path / "run"
        self.high.mkdir()
        self.toolkit = Toolkit(
            (self.low, self.high), root=root, nodes=nodes(root, tmp_path), ours="gpu.tessera.dev"
        )

    def look(self) -> Found:
        return self.toolkit.look(VERSION)


@pytest.fixture
def directories(root: DriverRoot, tmp_path: Path) -> Directories:
    return Directories(root, tmp_path)


YAML = """\
---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "{uuid}"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
containerEdits:
  mounts:
  - hostPath: /usr/lib64/libcuda.so.{version}
    containerPath: /usr/lib64/libcuda.so.{version}
"""


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.yml", "nvidia.json"])
def test_json_and_yaml(directories: Directories, name: str) -> None:
    text = (
        json.dumps(document(device(ONE, "/dev/nvidia0")))
        if name.endswith("json")
        else YAML.format(uuid=ONE, version=VERSION)
    )
    (directories.high / name).write_text(text)
    found = directories.look()
    assert found.devices == {ONE: frozenset({"/dev/nvidia0"})}
    assert found.files == (directories.high / name,)
    assert found.problems == ()


def test_no_directory_and_no_document(directories: Directories) -> None:
    assert directories.look() == Found()
    (directories.high / "nvidia.txt").write_text("nvidia.com/gpu")
    (directories.high / "gpu.tessera.dev-grant_uid.json").write_text(json.dumps(document()))
    (directories.high / "other.json").write_text(json.dumps(document() | {"kind": "vendor.example/gpu"}))
    (directories.high / "management.json").write_text(
        json.dumps(document() | {"kind": "management.nvidia.com/gpu"})
    )
    assert directories.look() == Found()


def test_the_higher_directory_counts_more(directories: Directories) -> None:
    directories.low.mkdir()
    (directories.low / "nvidia.json").write_text(
        json.dumps(document(device(ONE, "/dev/nvidia1"), device(TWO, "/dev/nvidia1")))
    )
    (directories.high / "nvidia.json").write_text(json.dumps(document(device(ONE, "/dev/nvidia0"))))
    assert directories.look().devices == {
        ONE: frozenset({"/dev/nvidia0"}),
        TWO: frozenset({"/dev/nvidia1"}),
    }


def test_a_name_twice_in_one_directory_is_no_name(directories: Directories) -> None:
    (directories.high / "a.json").write_text(json.dumps(document(device(ONE, "/dev/nvidia0"))))
    (directories.high / "b.json").write_text(
        json.dumps(document(device(ONE, "/dev/nvidia0"), device(TWO, "/dev/nvidia1")))
    )
    found = directories.look()
    assert found.devices == {TWO: frozenset({"/dev/nvidia1"})}
    assert [problem.endswith(f"both name {ONE}: remove one of them") for problem in found.problems] == [True]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        pytest.param("nvidia.json", b'{"kind": "nvidia.com/gpu"', id="cut"),
        pytest.param("nvidia.yaml", b"kind: nvidia.com/gpu\n\t- x: [", id="no-yaml"),
        pytest.param("nvidia.json", b'"nvidia.com/gpu\xff"', id="no-text"),
    ],
)
def test_a_file_that_can_not_be_read_is_said(directories: Directories, name: str, content: bytes) -> None:
    (directories.high / name).write_bytes(content)
    found = directories.look()
    assert found.devices == {}
    assert len(found.problems) == 1
    assert f"{directories.high / name} can't be read" in found.problems[0]


def test_read_again_when_it_has_changed(directories: Directories, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directories.high / "nvidia.json"
    path.write_text(json.dumps(document(device(ONE, "/dev/nvidia0"))))
    assert directories.look().has(ONE, 0)
    reads: list[Path] = []
    read_bytes = Path.read_bytes

    def counted(self: Path) -> bytes:
        reads.append(self)
        return read_bytes(self)

    monkeypatch.setattr(Path, "read_bytes", counted)
    assert directories.look().has(ONE, 0)
    assert reads == []
    path.write_text(json.dumps(document(device(TWO, "/dev/nvidia1"))))
    os.utime(path, ns=(1, 1))
    found = directories.look()
    assert (found.has(ONE, 0), found.has(TWO, 1)) == (False, True)
    path.unlink()
    assert directories.look() == Found()


def test_a_card_that_has_another_number_now(directories: Directories) -> None:
    """After a reboot minors move; the document of before names the other card's node."""
    (directories.high / "nvidia.json").write_text(json.dumps(document(device(ONE, "/dev/nvidia0"))))
    found = directories.look()
    assert found.has(ONE, 0)
    assert not found.has(ONE, 1)
    assert not found.has(TWO, 0)


def test_device_ids() -> None:
    assert device_ids([ONE, INSTANCE]) == (f"nvidia.com/gpu={ONE}", f"nvidia.com/gpu={INSTANCE}")
