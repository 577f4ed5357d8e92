# SPDX-License-Identifier: Apache-2.0
"""NVML through pynvml, nvidia-smi, and who sees which card."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakegpu import driver_root
from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, Driver
from tests.integration.headers import RELEASES, header

DESCRIBE = """[{
    "name": n.nvmlDeviceGetName(h), "uuid": n.nvmlDeviceGetUUID(h), "minor": n.nvmlDeviceGetMinorNumber(h),
    "index": n.nvmlDeviceGetIndex(h), "bus": n.nvmlDeviceGetPciInfo(h).busId,
    "brand": n.nvmlDeviceGetBrand(h),
    "architecture": n.nvmlDeviceGetArchitecture(h),
    "capability": n.nvmlDeviceGetCudaComputeCapability(h),
    "total": n.nvmlDeviceGetMemoryInfo(h).total,
    "second": n.nvmlDeviceGetMemoryInfo(h, version=n.nvmlMemory_v2).total,
    "by uuid": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(n.nvmlDeviceGetUUID(h))),
    "by bus": n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId(n.nvmlDeviceGetPciInfo(h).busId)),
    "device id": n.nvmlDeviceGetPciInfo(h).pciDeviceId,
} for i in range(n.nvmlDeviceGetCount()) for h in [n.nvmlDeviceGetHandleByIndex(i)]]"""


def attempts(driver: Driver, calls: dict[str, str]) -> dict[str, object]:
    """What each pynvml call answers: its value, or its error as a number."""
    code = "import json, pynvml as n\nn.nvmlInit()\nh = n.nvmlDeviceGetHandleByIndex\nout = {}\n"
    for name, call in calls.items():
        code += f"try: out[{name!r}] = {call}\nexcept n.NVMLError as e: out[{name!r}] = -e.value\n"
    found: dict[str, object] = json.loads(driver.run(sys.executable, "-c", code + "print(json.dumps(out))"))
    return found


def test_cards_are_what_the_inventory_says(driver: Driver) -> None:
    first, second = driver.nvml(DESCRIBE)
    assert first == {
        "name": "NVIDIA GeForce RTX 4090",
        "uuid": "GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6",
        "minor": 0,
        "index": 0,
        "bus": "00000000:01:00.0",
        "brand": 5,
        "architecture": 8,
        "capability": [8, 9],
        "total": 24 * GIB,
        "second": 24 * GIB,
        "by uuid": 0,
        "by bus": 0,
        "device id": 0x268410DE,
    }
    assert (second["name"], second["capability"], second["total"]) == (
        "NVIDIA A100-SXM4-80GB",
        [8, 0],
        80 * GIB,
    )
    assert (second["minor"], second["by uuid"], second["by bus"]) == (1, 1, 1)
    assert driver.nvml("[n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetCudaDriverVersion_v2()]") == [
        "570.124.06",
        12080,
    ]


def test_answers_of_cards_without_a_feature(driver: Driver) -> None:
    unsupported, not_found, invalid = -3, -6, -2
    found = attempts(
        driver,
        {
            "mig of a GeForce": "n.nvmlDeviceGetMigMode(h(0))",
            "mig of an A100": "n.nvmlDeviceGetMigMode(h(1))",
            "serial of a GeForce": "n.nvmlDeviceGetSerial(h(0))",
            "numa": "n.nvmlDeviceGetNumaNodeId(h(0))",
            "nvlink": "n.nvmlDeviceGetNvLinkState(h(0), 0)",
            "index": "n.nvmlDeviceGetHandleByIndex(2)",
            "uuid": "n.nvmlDeviceGetHandleByUUID('GPU-none')",
            "idle": "n.nvmlDeviceGetProcessUtilization(h(0), 0)",
            "processes": "n.nvmlDeviceGetComputeRunningProcesses(h(0))",
            "graphics": "n.nvmlDeviceGetGraphicsRunningProcesses(h(0))",
            "topology": "n.nvmlDeviceGetTopologyCommonAncestor(h(0), h(1))",
            "virtual": "n.nvmlDeviceGetVgpuMetadata(h(0))",
        },
    )
    assert found == {
        "mig of a GeForce": unsupported,
        "mig of an A100": [0, 0],
        "serial of a GeForce": unsupported,
        "numa": unsupported,
        "nvlink": unsupported,
        "index": invalid,
        "uuid": not_found,
        "idle": not_found,
        "processes": [],
        "graphics": [],
        "topology": 50,
        "virtual": unsupported,
    }


def test_links_join_the_cards_of_one_domain(make_driver: Callable[[str], Driver]) -> None:
    driver = make_driver("four-cards.ini")
    links = driver.nvml(
        "[[n.nvmlDeviceGetNvLinkState(n.nvmlDeviceGetHandleByIndex(i), link) for link in range(2)]"
        " + [n.nvmlDeviceGetNvLinkRemotePciInfo(n.nvmlDeviceGetHandleByIndex(i), 0).busId] for i in range(4)]"
    )
    assert links == [
        [1, 0, "00000000:0F:00.0"],
        [1, 0, "00000000:07:00.0"],
        [1, 0, "00000000:90:00.0"],
        [1, 0, "00000000:87:00.0"],
    ]


def test_what_a_communication_library_asks_of_links(make_driver: Callable[[str], Driver]) -> None:
    """Peers over the first link only; two cards of a NUMA node are a host bridge apart, the others more."""
    driver = make_driver("four-cards.ini")
    nearest = "[[n.nvmlDeviceGetIndex(d) for d in n.nvmlDeviceGetTopologyNearestGpus(h(0), level)]"
    found = attempts(
        driver,
        {
            "peers": "[n.nvmlDeviceGetNvLinkCapability(h(0), 0, what) for what in range(6)]",
            "unused": "n.nvmlDeviceGetNvLinkCapability(h(0), 1, 0)",
            "no such": "n.nvmlDeviceGetNvLinkCapability(h(0), 0, 6)",
            "errors": "n.nvmlDeviceGetNvLinkErrorCounter(h(0), 0, 0)",
            "nearest": f"{nearest} for level in (0, 30, 50)]",
            "node": "list(n.nvmlDeviceGetMemoryAffinity(h(3), 1, 0))",
            "cpus": "list(n.nvmlDeviceGetCpuAffinity(h(0), 1))[0] & 1",
        },
    )
    assert found == {
        "peers": [1, 1, 1, 1, 0, 1],
        "unused": 0,
        "no such": -2,
        "errors": 0,
        "nearest": [[], [1], [1, 2, 3]],
        "node": [2],
        "cpus": 1,
    }


def test_figures_of_the_board(driver: Driver) -> None:
    found = attempts(
        driver,
        {
            "clock": "[n.nvmlDeviceGetClock(h(0), kind, 0) for kind in (0, 2)]",
            "no such clock": "n.nvmlDeviceGetClock(h(0), 9, 0)",
            "power": "n.nvmlDeviceGetPowerManagementDefaultLimit(h(0))",
            "limits": "n.nvmlDeviceGetPowerManagementLimitConstraints(h(0))",
            "energy": "n.nvmlDeviceGetTotalEnergyConsumption(h(0))",
            "reasons": "n.nvmlDeviceGetCurrentClocksThrottleReasons(h(0))",
            "link": "[n.nvmlDeviceGetMaxPcieLinkGeneration(h(0)), n.nvmlDeviceGetCurrPcieLinkWidth(h(0))]",
            "bar": "n.nvmlDeviceGetBAR1MemoryInfo(h(0)).bar1Total",
            "rows": "n.nvmlDeviceGetRemappedRows(h(0))",
            "units": "n.nvmlUnitGetCount()",
        },
    )
    limit = driver.nvml("n.nvmlDeviceGetEnforcedPowerLimit(n.nvmlDeviceGetHandleByIndex(0))")
    clocks = "[n.nvmlDeviceGetMaxClockInfo(n.nvmlDeviceGetHandleByIndex(0), kind) for kind in (0, 2)]"
    assert found == {
        "clock": driver.nvml(clocks),
        "no such clock": -2,
        "power": limit,
        "limits": [limit // 4, limit],
        "energy": 0,
        "reasons": 1,
        "link": [4, 16],
        "bar": 256 << 20,
        "rows": -3,  # no memory errors are counted on a GeForce
        "units": 0,
    }


def test_an_event_set_waits_and_hears_of_an_error(driver: Driver) -> None:
    code = """
import pynvml as n
n.nvmlInit()
s = n.nvmlEventSetCreate()
for i in (0, 1):
    n.nvmlDeviceRegisterEvents(n.nvmlDeviceGetHandleByIndex(i), n.nvmlEventTypeXidCriticalError, s)
begin = time.monotonic()
try: n.nvmlEventSetWait(s, 100)
except n.NVMLError_Timeout: answer(waited=time.monotonic() - begin)
event = n.nvmlEventSetWait(s, 60000)
answer(index=n.nvmlDeviceGetIndex(event.device), type=event.eventType, code=event.eventData)"""
    with driver.spawn(*driver.client(code)) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["waited"] >= 0.1
        driver.tool("fakegpu-ctl", "xid", driver.state, "1", "48")
        assert json.loads(process.stdout.readline()) == {"index": 1, "type": 8, "code": 48}


def test_a_card_off_the_bus_is_lost_until_reset(driver: Driver) -> None:
    calls = {
        "count": "n.nvmlDeviceGetCount()",
        "other": "n.nvmlDeviceGetMinorNumber(h(0))",
        "lost": "n.nvmlDeviceGetUUID(h(1))",
    }
    driver.tool("fakegpu-ctl", "xid", driver.state, "1", "79")
    assert attempts(driver, calls) == {"count": 2, "other": 0, "lost": -15}
    driver.tool("fakegpu-ctl", "reset", driver.state)
    assert str(attempts(driver, calls)["lost"]).startswith("GPU-")


def test_a_process_sees_the_cards_whose_nodes_it_can_open(driver: Driver) -> None:
    (driver.root / "dev" / "nvidia0").unlink()
    assert driver.nvml("[d['name'] for d in " + DESCRIBE + "]") == ["NVIDIA A100-SXM4-80GB"]
    found = driver.cuda("""
start()
name = ctypes.create_string_buffer(64)
check(cuda.cuDeviceGetName(name, 64, 0))
count = ctypes.c_int()
check(cuda.cuDeviceGetCount(ctypes.byref(count)))
answer(count=count.value, name=name.value.decode(), total=free_total()[1])""")
    assert found == {"count": 1, "name": "NVIDIA A100-SXM4-80GB", "total": 80 * GIB}


@pytest.mark.parametrize(
    ("missing", "cuda", "smi"),
    [("nvidiactl", 100, 9), ("nvidia-uvm", 999, 0), ("state", 100, 9)],
)
def test_without_a_driver(driver: Driver, missing: str, cuda: int, smi: int) -> None:
    ((driver.root / "dev" / missing) if missing != "state" else driver.state / "state").unlink()
    assert driver.cuda("answer(error=cuda.cuInit(0))")["error"] == cuda
    with driver.spawn(program("nvidia-smi")) as process:
        process.communicate(timeout=120)
    assert process.returncode == smi


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("0", [24]),
        ("1,0", [80, 24]),
        ("GPU-b7d3", [80]),
        ("1,7,0", [80]),
        ("0,0", [24]),
        ("", []),
        ("-1", []),
        ("GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6,GPU-b7d3a850-61c4-4f2e-9e3d-7a5508c9f1d2", [24, 80]),
    ],
)
def test_cuda_visible_devices(driver: Driver, value: str, expected: list[int]) -> None:
    code = """
error = cuda.cuInit(0)
sizes, size, count = [], ctypes.c_size_t(), ctypes.c_int()
if error == 0:
    check(cuda.cuDeviceGetCount(ctypes.byref(count)))
for device in range(count.value):
    check(cuda.cuDeviceTotalMem_v2(ctypes.byref(size), device))
    sizes.append(size.value >> 30)
answer(error=error, sizes=sizes)"""
    found = driver.cuda(code, env={"CUDA_VISIBLE_DEVICES": value})
    assert found == {"error": 0 if expected else 100, "sizes": expected}


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has cards of its own")
def test_cards_are_found_beside_the_library(driver: Driver) -> None:
    assert driver.nvml("n.nvmlDeviceGetCount()", env={"FAKEGPU_DEV": ""}) == 2


def test_nvidia_smi_lists_and_queries(driver: Driver) -> None:
    assert driver.tool("nvidia-smi", "-L").splitlines() == [
        "GPU 0: NVIDIA GeForce RTX 4090 (UUID: GPU-4e6c1f2a-9d0b-4c5e-8a17-30f1b2c4d5e6)",
        "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-b7d3a850-61c4-4f2e-9e3d-7a5508c9f1d2)",
    ]
    names = "index name memory.total memory.used memory.free utilization.gpu driver_version compute_cap"
    fields = "--query-gpu=" + ",".join(names.split())
    assert driver.tool("nvidia-smi", fields, "--format=csv").splitlines() == [
        "index, name, memory.total [MiB], memory.used [MiB], memory.free [MiB], utilization.gpu [%], "
        "driver_version, compute_cap",
        "0, NVIDIA GeForce RTX 4090, 24576 MiB, 0 MiB, 24576 MiB, 0 %, 570.124.06, 8.9",
        "1, NVIDIA A100-SXM4-80GB, 81920 MiB, 0 MiB, 81920 MiB, 0 %, 570.124.06, 8.0",
    ]
    assert (
        driver.tool("nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits")
        == "24576\n81920\n"
    )
    assert "NVML version        : 12.570.124.06" in driver.tool("nvidia-smi", "--version")


def test_nvidia_smi_shows_memory_and_processes(driver: Driver) -> None:
    alloc = str(program("cuda-alloc"))
    with driver.spawn(alloc, "--total", "3000Mi", "--hold", "600") as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        table = driver.tool("nvidia-smi")
        assert "|    3000MiB /  24576MiB |" in table
        assert f"{holder.pid}" in table
        apps = "--query-compute-apps=pid,process_name,used_memory"
        assert driver.tool("nvidia-smi", apps, "--format=csv").splitlines() == [
            "pid, process_name, used_memory [MiB]",
            f"{holder.pid}, {alloc}, 3000 MiB",
        ]
        widths = {len(line) for line in table.splitlines() if line.startswith(("|", "+"))}
        assert widths == {91}


@pytest.mark.parametrize("fields", ["--query-gpu=index,nonsense", "--nonsense"])
def test_nvidia_smi_refuses_what_it_does_not_know(driver: Driver, fields: str) -> None:
    with driver.spawn(program("nvidia-smi"), fields, "--format=csv") as process:
        out, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "not a valid field" in out or "Invalid combination" in out


NVML_TABLES = sorted((Path(driver_root.__file__).parent / "src").glob("nvml_table*.h"))


def test_every_function_of_the_tables_is_exported() -> None:
    """And every function of NVIDIA's headers is there."""
    (library,) = driver_root.build_directory().glob("libnvidia-ml.so.[0-9]*.*")
    dump = subprocess.run(["nm", "-D", library], capture_output=True, text=True, check=True).stdout
    exported = {line.split()[2] for line in dump.splitlines() if " T " in line}
    table = {name for path in NVML_TABLES for name in re.findall(r"FUNCTION\((nvml\w+)", path.read_text())}
    assert exported == table | {"nvmlErrorString"}
    assert len(table) > 400
    for release in RELEASES:
        declared = set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", header("nvml.h", release)))
        assert len(declared) > 300
        assert declared <= exported


def test_what_is_only_there_refuses_politely(driver: Driver) -> None:
    code = """
library = ctypes.CDLL("libnvidia-ml.so.1")
early = library.nvmlDeviceGetVgpuMetadata(None, None, None)
check(library.nvmlInit_v2())
answer(early=early, late=library.nvmlDeviceGetVgpuMetadata(None, None, None))"""
    assert driver.cuda(code) == {"early": 1, "late": 3}
