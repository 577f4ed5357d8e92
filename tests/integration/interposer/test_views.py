"""What a container sees of its card: CUDA, NVML and nvidia-smi agree with each other and with the share."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.interposer.bench import FAKE, LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import CUDA

LIMIT = 300 * MI + 512

NVML = """
import json, os, pynvml, time
pynvml.nvmlInit()
found = []
for index in range(pynvml.nvmlDeviceGetCount()):
    device = pynvml.nvmlDeviceGetHandleByIndex(index)
    v1 = pynvml.nvmlDeviceGetMemoryInfo(device)
    v2 = pynvml.nvmlDeviceGetMemoryInfo(device, pynvml.nvmlMemory_v2)
    compute = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
    old = pynvml.nvmlDeviceGetComputeRunningProcesses_v2(device)
    graphics = pynvml.nvmlDeviceGetGraphicsRunningProcesses(device)
    try:
        samples = [each.pid for each in pynvml.nvmlDeviceGetProcessUtilization(device, 0)]
    except pynvml.NVMLError_NotFound:
        samples = []
    details = [pynvml.nvmlDeviceGetRunningProcessDetailList(device, pynvml.nvmlProcessDetailList_v1, mode)
               for mode in (0, 1, 2)]
    found.append({
        "uuid": pynvml.nvmlDeviceGetUUID(device),
        "memory": [v1.total, v1.used, v1.free],
        "memory_v2": [v2.total, v2.used, v2.free],
        "processes": [[each.pid, each.usedGpuMemory] for each in compute],
        "processes_v2": [[each.pid, each.usedGpuMemory] for each in old],
        "details": [[[each.pid, each.usedGpuMemory] for each in mode] for mode in details],
        "graphics": len(graphics),
        "samples": samples,
    })
print(json.dumps(found))
"""


def nvml(bench: Bench) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = bench.answer(sys.executable, "-c", NVML)
    return found


def holding(bench: Bench, roads: Path, block: int) -> int:
    """A process that fills its share with blocks; its pid."""
    process = bench.start(roads, "link", "fill", str(block))
    assert process.stdout is not None
    process.stdout.readline()
    return process.pid


def test_nvml_shows_the_share(make_bench: Callable[..., Bench], roads: Path) -> None:
    bench = make_bench("bench")
    neighbour = make_bench("neighbour", shares_cards_of=bench)
    bench.grant(uuid=SMALL, memory=LIMIT)
    neighbour.grant(uuid=SMALL, memory=8 * MI)
    holding(neighbour, roads, MI)
    pid = holding(bench, roads, MI)
    small, large = nvml(bench)
    assert (small["uuid"], large["uuid"]) == (SMALL, LARGE)
    assert small["memory"] == small["memory_v2"] == [LIMIT, 300 * MI, 512]
    assert small["processes"] == small["processes_v2"] == [[pid, 300 * MI]]  # and not the neighbour's
    assert small["details"] == [small["processes"], [], []]
    assert small["graphics"] == 0
    assert large["memory"][0] == 80 << 30


LISTS = """
import ctypes, json
nvml = ctypes.CDLL("libnvidia-ml.so.1")
class Old(ctypes.Structure): _fields_ = [("pid", ctypes.c_uint), ("bytes", ctypes.c_ulonglong)]
class New(ctypes.Structure): _fields_ = [*Old._fields_, ("instances", ctypes.c_uint * 2)]
device, found = ctypes.c_void_p(), {}
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
for which in ("Compute", "Graphics", "MPSCompute"):
    for version, entry in (("", Old), ("_v2", New), ("_v3", New)):
        ask, count = nvml[f"nvmlDeviceGet{which}RunningProcesses{version}"], ctypes.c_uint(0)
        code = ask(device, ctypes.byref(count), None)
        known, count.value, room = count.value, 8, (entry * 8)()
        assert ask(device, ctypes.byref(count), room) == 0
        found[which + version] = [code, known, [[each.pid, each.bytes] for each in room[:count.value]]]
print(json.dumps(found))
"""


def test_every_list_of_processes(make_bench: Callable[..., Bench], roads: Path) -> None:
    """Asked with no room first, as the manual says; a neighbour's process is in none of them."""
    bench = make_bench("bench")
    neighbour = make_bench("neighbour", shares_cards_of=bench)
    for each in (bench, neighbour):
        each.grant(memory=LIMIT)
    holding(neighbour, roads, MI)
    pids = [holding(bench, roads, 200 * MI), holding(bench, roads, MI)]
    held = [[pids[0], 200 * MI], [pids[1], 100 * MI]]
    found = bench.answer(sys.executable, "-c", LISTS)
    insufficient_size = 7
    for version in ("", "_v2", "_v3"):
        assert found[f"Compute{version}"] == [insufficient_size, 2, held]
        assert found[f"Graphics{version}"] == found[f"MPSCompute{version}"] == [0, 0, []]


HOLDS = (
    CUDA
    + """
count = I()
must(cuda.cuDeviceGetCount(ref(count)))
for device in range(count.value):
    use(device)
    must(alloc((device + 1) * 10 * MI)[0])
    total, old, old_total, old_free = S(), *(ctypes.c_uint() for _ in range(3))
    must(cuda.cuDeviceTotalMem_v2(ref(total), device))
    must(cuda.cuDeviceTotalMem(ref(old), device))
    must(cuda.cuMemGetInfo(ref(old_free), ref(old_total)))
    assert total.value == old.value == old_total.value == old_free.value + used() * MI
    out[device] = [total.value // MI, used()]
out = json.dumps(out)
"""
)


@pytest.mark.parametrize(
    ("visible", "cards"),
    [
        ("0,1", [SMALL, LARGE]),
        ("1,0", [LARGE, SMALL]),
        (f"{LARGE},{SMALL}", [LARGE, SMALL]),
        (f"{LARGE[:12]},{SMALL[:12]}", [LARGE, SMALL]),
        ("1", [LARGE]),
        ("1,0,7", [LARGE, SMALL]),
        ("1,-1,0", [LARGE]),
    ],
    ids=["as-is", "reversed", "by-uuid", "by-short-uuid", "one", "one-too-many", "cut-short"],
)
def test_views_agree_whatever_is_visible(bench: Bench, visible: str, cards: list[str]) -> None:
    """CUDA's numbers follow the variable, 32-bit figures too, NVML's don't; each card has its own."""
    shares = {SMALL: 300, LARGE: 200}
    for uuid, share in shares.items():
        bench.grant(uuid, uuid=uuid, memory=share * MI)
    script = f"{HOLDS}{NVML.replace('import json, os, pynvml, time', 'import os, pynvml, time')}print(out)"
    environment = {"CUDA_VISIBLE_DEVICES": visible}
    result = bench.run(sys.executable, "-c", script, environment=environment)
    assert result.returncode == 0, result.stderr
    nvml, cuda = map(json.loads, result.stdout.splitlines())
    held = {uuid: (number + 1) * 10 for number, uuid in enumerate(cards)}
    assert list(cuda.values()) == [[shares[uuid], held[uuid]] for uuid in cards]
    for card in nvml:
        share, used = shares[card["uuid"]], held.get(card["uuid"], 0)
        assert card["memory"] == card["memory_v2"] == [share * MI, used * MI, (share - used) * MI]
        assert [bytes for _, bytes in card["processes"]] == [used * MI] * (used != 0)


BUSY = """
import ctypes, json, pynvml, time
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
def once():
    samples = {each.pid: each.smUtil for each in pynvml.nvmlDeviceGetProcessUtilization(device, 0)}
    infos = {each.pid: each.smUtil for each in pynvml.nvmlDeviceGetProcessesUtilizationInfo(device, 0)}
    rates = pynvml.nvmlDeviceGetUtilizationRates(device)
    return {"samples": samples, "infos": infos, "rate": rates.gpu}
deadline = time.monotonic() + 120
while True:  # until all three are of one sampling window, and of one in which both had the card
    try:
        found = once()
    except pynvml.NVMLError_NotFound:
        found = None
    if found and found["samples"] == found["infos"] and 0 < sum(found["samples"].values()) < 90:
        if sum(found["samples"].values()) == found["rate"] or time.monotonic() > deadline:
            break
    if time.monotonic() > deadline:
        break
print(json.dumps(found))
"""


def test_utilization_is_the_grants(make_bench: Callable[..., Bench]) -> None:
    """Two containers compute side by side: each sees its own processes, and what they take of the card."""
    bench = make_bench("bench")
    neighbour = make_bench("neighbour", shares_cards_of=bench)
    pids = []
    for each in (bench, neighbour):
        each.grant(memory=LIMIT)
        pids.append(each.start(FAKE / "cuda-burn", "--kernel-ms", "1", "--seconds", "600").pid)
    for each, pid in zip((bench, neighbour), pids, strict=True):
        found = each.answer(sys.executable, "-c", BUSY)
        assert list(found["samples"]) == list(found["infos"]) == [str(pid)]
        assert found["rate"] == found["samples"][str(pid)] < 90  # the card's is 100


def test_a_container_that_computes_nothing_sees_an_idle_card(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench("bench")
    neighbour = make_bench("neighbour", shares_cards_of=bench)
    for each in (bench, neighbour):
        each.grant(memory=LIMIT)
    neighbour.start(FAKE / "cuda-burn", "--kernel-ms", "1", "--seconds", "600")
    query = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")
    bare = make_bench("bare", shares_cards_of=bench, preload=False)
    deadline = time.monotonic() + 120
    while bare.run(FAKE / "nvidia-smi", *query).stdout.splitlines()[0] == "0":
        assert time.monotonic() < deadline
    assert bench.run(FAKE / "nvidia-smi", *query).stdout.splitlines()[0] == "0"


def test_a_card_without_a_memory_of_its_own(make_bench: Callable[..., Bench], roads: Path) -> None:
    """NVML has no figure for it; of the share there is one, and it holds."""
    uuid = "GPU-0c9d8e7f-1a2b-4c3d-9e4f-5a6b7c8d9e0f"
    bench = make_bench("bench", cards="unified-memory.ini", driver={"context": "40Mi"})
    bench.grant(uuid=uuid, memory=LIMIT, card_memory_bytes=96 << 30)
    pid = holding(bench, roads, MI)
    script = NVML.replace("pynvml.nvmlDeviceGetProcessUtilization(device, 0)", "[]")
    (found,) = bench.answer(sys.executable, "-c", script)
    assert found["memory"] == found["memory_v2"] == [LIMIT, 300 * MI, 512]
    assert found["processes"] == found["details"][0] == [[pid, 300 * MI]]
    assert bench.usage().processes[0].context_bytes == 40 * MI
    assert bench.high_water() == 300 * MI
    bare = make_bench("bare", shares_cards_of=bench, preload=False)
    assert "NotSupported" in bare.run(sys.executable, "-c", script).stderr


def test_nvidia_smi_shows_the_share(bench: Bench, roads: Path) -> None:
    bench.grant(memory=3000 * MI)
    holding(bench, roads, 1000 * MI)
    query = ("--query-gpu=uuid,memory.total,memory.used", "--format=csv,noheader,nounits")
    rows = bench.run(FAKE / "nvidia-smi", *query).stdout.splitlines()
    assert rows[0].split(", ") == [SMALL, "3000", "3000"]
    assert rows[1].split(", ")[1] == str(80 << 10)


def test_looking_takes_no_slot(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    holding(bench, roads, MI)
    nvml(bench)
    assert [process.slot for process in bench.usage().processes] == [0]


def test_the_agent_sees_pids_of_its_own_namespace(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    pid = holding(bench, roads, MI)
    (process,) = bench.usage().processes
    assert (process.pid, process.memory_bytes, process.refused) == (pid, 300 * MI, 1)
    assert os.getpid() != pid


def test_the_dead_are_out_of_every_view(bench: Bench, roads: Path) -> None:
    bench.grant(memory=LIMIT)
    holding(bench, roads, MI)
    survivor = bench.start(roads, "link", "fill", "512")
    assert survivor.stdout is not None
    assert json.loads(survivor.stdout.readline())["held"] == 512
    bench.started[0].kill()
    bench.started[0].wait()
    found = nvml(bench)[0]
    assert found["memory"] == [LIMIT, 512, LIMIT - 512]
    assert found["processes"] == [[survivor.pid, 512]]
    assert bench.answer(roads, "link", "info")[0]["free"] == LIMIT - 512


def test_an_instance_of_a_card_is_a_card_of_its_own(make_bench: Callable[..., Bench], roads: Path) -> None:
    """The instance's UUID is the grant's; the card that it is cut from has none."""
    instance = "MIG-1b2e7d63-2e4c-5f58-9da1-3c8e5f607b22"
    first = 3 + 9 * 9  # the driver's numbering: GPU instance 9 of card 0
    capabilities = (f"nvidia-caps/nvidia-cap{first}", f"nvidia-caps/nvidia-cap{first + 1}")
    nodes = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia0", *capabilities)
    bench = make_bench(cards="mig.ini", nodes=nodes, driver={"context": "40Mi"})
    bench.grant(uuid=instance, memory=LIMIT)
    pid = holding(bench, roads, MI)
    script = NVML.replace(
        "nvmlDeviceGetHandleByIndex(index)",
        "nvmlDeviceGetMigDeviceHandleByIndex(pynvml.nvmlDeviceGetHandleByIndex(index), 0)",
    ).replace("pynvml.nvmlDeviceGetProcessUtilization(device, 0)", "[]")
    (found,) = bench.answer(sys.executable, "-c", script)
    assert found["uuid"] == instance
    assert found["memory"] == found["memory_v2"] == [LIMIT, 300 * MI, 512]
    assert found["processes"] == found["processes_v2"] == [[pid, 300 * MI]]
    assert bench.usage().processes[0].context_bytes == 40 * MI
    refused = bench.run(roads, "gpa2", "info")  # there is no room for another context
    assert "cuDevicePrimaryCtxRetain: 2" in refused.stderr
