# SPDX-License-Identifier: Apache-2.0
"""A card in MIG mode: what NVML, the driver's files and CUDA say of its instances."""

from __future__ import annotations

import stat
import uuid
from collections.abc import Callable

import pytest

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, Driver
from tests.integration.fakegpu.test_nvml import attempts

CARD = "GPU-5c3a9e71-7f20-4d84-a6b9-12e8d3c47f60"
WHOLE = "GPU-6d4bafe2-8031-4e95-b7ca-23f9e4d58071"
THREE = "MIG-0a1f6c52-1d3b-5e47-8c90-2b7d4e5f6a11"
FIRST = "MIG-1b2e7d63-2e4c-5f58-9da1-3c8e5f607b22"
SECOND = "MIG-2c3d8e74-3f5d-5069-aeb2-4d9f60718c33"
MIB = 1 << 20
INVALID, UNSUPPORTED, NOT_FOUND = -2, -3, -6

DESCRIBE = """[{
    "uuid": n.nvmlDeviceGetUUID(m), "name": n.nvmlDeviceGetName(m), "index": n.nvmlDeviceGetIndex(m),
    "gi": n.nvmlDeviceGetGpuInstanceId(m), "ci": n.nvmlDeviceGetComputeInstanceId(m),
    "total": n.nvmlDeviceGetMemoryInfo(m).total,
    "second": n.nvmlDeviceGetMemoryInfo(m, version=n.nvmlMemory_v2).total,
    "sms": a.multiprocessorCount, "slices": [a.gpuInstanceSliceCount, a.computeInstanceSliceCount],
    "mib": a.memorySizeMB, "is": n.nvmlDeviceIsMigDeviceHandle(m).value,
    "parent": n.nvmlDeviceGetUUID(n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(m)),
} for i in range(3) for m in [n.nvmlDeviceGetMigDeviceHandleByIndex(n.nvmlDeviceGetHandleByIndex(0), i)]
  for a in [n.nvmlDeviceGetAttributes_v2(m)]]"""

SEEN = """
cuda.cuInit(0)
count, name, size, sms = ctypes.c_int(), ctypes.create_string_buffer(96), ctypes.c_size_t(), ctypes.c_int()
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
seen = []
for device in range(count.value):
    card, own = ctypes.create_string_buffer(16), ctypes.create_string_buffer(16)
    check(cuda.cuDeviceGetName(name, 96, device)); check(cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device))
    check(cuda.cuDeviceGetAttribute(ctypes.byref(sms), 16, device))
    check(cuda.cuDeviceGetUuid(card, device)); check(cuda.cuDeviceGetUuid_v2(own, device))
    seen.append([name.value.decode(), size.value, sms.value, card.raw.hex(), own.raw.hex()])
answer(seen=seen)"""


@pytest.fixture
def node(make_driver: Callable[[str], Driver]) -> Driver:
    return make_driver("mig.ini")


def capability(gi: int, ci: int | None = None) -> str:
    """The node of an instance of card 0, by the driver's numbering."""
    return f"nvidia-cap{3 + gi * 9 + (0 if ci is None else 1 + ci)}"


def give_only(driver: Driver, *gpu_instances: int) -> None:
    """Leaves what a container has that was given these instances of card 0."""
    keep = {capability(gi, ci) for gi in gpu_instances for ci in (None, 0)}
    for node in (driver.root / "dev" / "nvidia-caps").iterdir():
        if node.name not in keep:
            node.unlink()


def test_nvml_tells_the_instances_of_a_card(node: Driver) -> None:
    three, first, second = node.nvml(DESCRIBE)
    assert three == {
        "uuid": THREE,
        "name": "NVIDIA A100-SXM4-80GB MIG 3g.40gb",
        "index": 0,
        "gi": 1,
        "ci": 0,
        "total": 40192 * MIB,
        "second": 40192 * MIB,
        "sms": 42,
        "slices": [3, 3],
        "mib": 40192,
        "is": 1,
        "parent": CARD,
    }
    assert (first["uuid"], first["gi"], first["index"]) == (FIRST, 9, 1)
    assert (second["uuid"], second["gi"], second["index"]) == (SECOND, 10, 2)


def test_nvml_keeps_cards_and_instances_apart(node: Driver) -> None:
    found = attempts(
        node,
        {
            "count": "n.nvmlDeviceGetCount()",
            "mode": "n.nvmlDeviceGetMigMode(h(0))",
            "most": "n.nvmlDeviceGetMaxMigDeviceCount(h(0))",
            "mode of the whole": "n.nvmlDeviceGetMigMode(h(1))",
            "whole's": "n.nvmlDeviceGetMigDeviceHandleByIndex(h(1), 0) and 0",
            "fourth": "n.nvmlDeviceGetMigDeviceHandleByIndex(h(0), 3) and 0",
            "gi of a card": "n.nvmlDeviceGetGpuInstanceId(h(0))",
            "parent of a card": "n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(h(0)) and 0",
            "card is": "n.nvmlDeviceIsMigDeviceHandle(h(0)).value",
            "by uuid": f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID('{SECOND}'))",
            "by its old name": f"n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID('MIG-{CARD}/9/0'))",
            "minor": f"n.nvmlDeviceGetMinorNumber(n.nvmlDeviceGetHandleByUUID('{FIRST}'))",
            "mode of an instance": f"n.nvmlDeviceGetMigMode(n.nvmlDeviceGetHandleByUUID('{FIRST}'))",
            "utilization": "n.nvmlDeviceGetUtilizationRates(h(0)).gpu",
        },
    )
    assert found == {
        "count": 2,
        "mode": [1, 1],
        "most": 7,
        "mode of the whole": [0, 0],
        "whole's": NOT_FOUND,
        "fourth": NOT_FOUND,
        "gi of a card": INVALID,
        "parent of a card": INVALID,
        "card is": 0,
        "by uuid": 2,
        "by its old name": FIRST,
        "minor": UNSUPPORTED,
        "mode of an instance": UNSUPPORTED,
        "utilization": UNSUPPORTED,
    }


def test_the_driver_root_has_the_capabilities_of_each_instance(node: Driver) -> None:
    proc = node.root / "proc" / "driver"
    below = proc / "nvidia" / "capabilities" / "gpu0" / "mig"
    assert sorted(str(path.relative_to(below)) for path in below.rglob("access")) == [
        "gi1/access",
        "gi1/ci0/access",
        "gi10/access",
        "gi10/ci0/access",
        "gi9/access",
        "gi9/ci0/access",
    ]
    access = "DeviceFileMinor: 85\nDeviceFileMode: 292\nDeviceFileModify: 1\n"
    assert (below / "gi9" / "ci0" / "access").read_text() == access
    assert "gpu0/gi9/ci0/access 85\n" in (proc / "nvidia-caps" / "mig-minors").read_text()
    nodes = {path.name: path.stat().st_mode for path in (node.root / "dev" / "nvidia-caps").iterdir()}
    expected = {capability(gi, ci) for gi in (1, 9, 10) for ci in (None, 0)}
    assert set(nodes) == expected | {"nvidia-cap1", "nvidia-cap2"}
    assert all(stat.S_ISCHR(mode) for mode in nodes.values())
    assert stat.S_IMODE(nodes["nvidia-cap1"]) == 0o400
    assert stat.S_IMODE(nodes["nvidia-cap85"]) == 0o444


def test_cuda_sees_the_one_instance_of_its_container(node: Driver) -> None:
    give_only(node, 9)
    (node.root / "dev" / "nvidia1").unlink()
    instance, card = (uuid.UUID(text[4:]).hex for text in (FIRST, CARD))
    expected = [["NVIDIA A100-SXM4-80GB MIG 1g.10gb", 9728 * MIB, 14, card, instance]]
    assert node.cuda(SEEN)["seen"] == expected
    assert node.nvml(
        "[n.nvmlDeviceGetUUID(n.nvmlDeviceGetMigDeviceHandleByIndex(n.nvmlDeviceGetHandleByIndex(0), 0))]"
    ) == [FIRST]


@pytest.mark.parametrize(
    ("value", "sizes"),
    [
        (None, [40192 * MIB]),
        ("0", [40192 * MIB]),
        ("1", []),
        (FIRST, [9728 * MIB]),
        (FIRST[:9], [9728 * MIB]),
        (f"{FIRST},{SECOND}", [9728 * MIB]),
        (WHOLE, [80 * GIB]),
        (CARD, []),
    ],
)
def test_cuda_visible_devices_name_instances(node: Driver, value: str | None, sizes: list[int]) -> None:
    """Where all nodes are there: one instance, the first if none is named, and no whole card beside it."""
    env = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    code = "answer(seen=[])" if not sizes else SEEN
    assert [device[1] for device in node.cuda(code, env=env)["seen"]] == sizes
    if not sizes:
        assert node.cuda("answer(error=cuda.cuInit(0))", env=env)["error"] == 100


def test_a_card_without_an_instance_of_ours_is_no_device(node: Driver) -> None:
    give_only(node)
    (node.root / "dev" / "nvidia1").unlink()
    assert node.cuda("answer(error=cuda.cuInit(0))")["error"] == 100


def test_memory_is_the_instance_s_own(node: Driver) -> None:
    alloc = str(program("cuda-alloc"))
    env = {"CUDA_VISIBLE_DEVICES": FIRST}
    used = (
        "[n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByUUID(u)).used >> 20 for u in"
        f" ('{CARD}', '{THREE}', '{FIRST}', '{SECOND}', '{WHOLE}')]"
    )
    processes = (
        "[[(p.pid, p.gpuInstanceId, p.computeInstanceId) for p in"
        f" n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByUUID(u))]"
        f" for u in ('{CARD}', '{FIRST}', '{THREE}')]"
    )
    with node.spawn(alloc, "--total", "3000Mi", "--hold", "30", env=env) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert node.nvml(used) == [3000, 0, 3000, 0, 0]
        assert node.nvml(processes) == [[[holder.pid, 9, 0]], [[holder.pid, 9, 0]], []]
    node.cuda("start(); answer(error=allocate(9729 << 20)[0])", env=env)
    assert node.cuda("start(); answer(error=allocate(9729 << 20)[0])", env=env)["error"] == 2
    assert node.cuda("start(); answer(error=allocate(9728 << 20)[0])", env=env)["error"] == 0


def test_nvidia_smi_lists_instances(node: Driver) -> None:
    assert node.tool("nvidia-smi", "-L").splitlines() == [
        f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {CARD})",
        f"  MIG 3g.40gb     Device  0: (UUID: {THREE})",
        f"  MIG 1g.10gb     Device  1: (UUID: {FIRST})",
        f"  MIG 1g.10gb     Device  2: (UUID: {SECOND})",
        f"GPU 1: NVIDIA A100-SXM4-80GB (UUID: {WHOLE})",
    ]
