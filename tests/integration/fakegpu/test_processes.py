# SPDX-License-Identifier: Apache-2.0
"""Processes: forks, other users, other PID namespaces, and kills at any moment."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.fakegpu.driver_root import program
from tests.integration.fakegpu.conftest import GIB, Driver, eventually


def test_a_forked_child_is_refused_and_leaves_the_parents_memory_alone(driver: Driver) -> None:
    found = driver.cuda("""
start()
allocate(1 << 30)
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, json.dumps([cuda.cuInit(0), allocate(1)[0], cuda.cuCtxSynchronize()]).encode())
    os._exit(0)
child = json.loads(os.read(read, 100))
os.wait()
answer(child=child, used=free_total()[1] - free_total()[0], parent=allocate(1)[0])""")
    assert found == {"child": [3, 3, 3], "used": GIB, "parent": 0}


def test_nvml_goes_on_in_a_forked_child(driver: Driver) -> None:
    code = """
import ctypes, json, os
import pynvml as n
n.nvmlInit()
used = lambda: n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
read, write = os.pipe()
if os.fork() == 0:
    os.write(write, str(used()).encode())
    os._exit(0)
child = int(os.read(read, 100))
os.wait()
n.nvmlShutdown()
n.nvmlInit()
print(json.dumps([child, used()]))"""
    assert json.loads(driver.run(*driver.client(code))) == [GIB, GIB]


def test_both_libraries_of_one_process_keep_to_their_own_slots(driver: Driver) -> None:
    code = """
import ctypes, json, threading
import pynvml as n
start()
n.nvmlInit()
allocate(1 << 30)
used = [n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex(0)).used for _ in range(3)]
answer(used=used, pids=[p.pid == os.getpid() for p in
       n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))])"""
    assert driver.cuda(code) == {"used": [GIB] * 3, "pids": [True]}


def test_exec_gives_the_memory_back(driver: Driver) -> None:
    code = 'start(); allocate(1 << 30); os.execvp("sleep", ["sleep", "600"])'
    with driver.spawn(*driver.client(code)) as process:
        cmdline = Path(f"/proc/{process.pid}/cmdline")
        assert eventually(lambda: cmdline.read_text().startswith("sleep"))
        assert driver.used() == 0


def test_another_user_can_use_the_card(driver: Driver) -> None:
    for directory in (driver.root, *driver.root.parents):
        if str(directory).startswith(str(driver.root.parent)) or directory.stat().st_uid == os.getuid():
            directory.chmod(directory.stat().st_mode | 0o755)
    # A copy, since a checkout may lie where other users can't look.
    copy = shutil.copy(program("cuda-alloc"), driver.root / "cuda-alloc")
    found = json.loads(driver.run(copy, "--total", "1Gi", "--json", user=12345, group=12345))
    assert found["held_bytes"] == GIB


@pytest.mark.skipif(shutil.which("unshare") is None, reason="needs util-linux")
def test_pids_are_the_askers_own(driver: Driver) -> None:
    """A container's process has the host's pid for the host, its own inside, and none for a sibling."""
    listing = "[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses(n.nvmlDeviceGetHandleByIndex(0))]"
    inside = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    holder = driver.client(
        "import pynvml as n; start(); allocate(1 << 30); n.nvmlInit();"
        f"answer(pid=os.getpid(), seen={listing}); time.sleep(600)"
    )
    with driver.spawn(*inside, *holder) as process:
        assert process.stdout is not None
        found = json.loads(process.stdout.readline())
        assert found == {"pid": 1, "seen": [1]}
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert driver.nvml(listing) == [int(child)]
        sibling = f"import json, pynvml as n; n.nvmlInit(); print(json.dumps({listing}))"
        assert json.loads(driver.run(*inside, driver.client("")[0], "-c", sibling)) == []
        assert driver.used() == GIB
        os.kill(int(child), signal.SIGKILL)
        process.wait()
        assert driver.used() == 0


STORM = """
import random
start()
function = kernel()
answer(ready=True)
while True:
    live = [allocate(random.randrange(1, 1 << 24))[1] for _ in range(20)]
    for _ in range(5): launch(function, 0.01)
    free_total()
    for address in live: cuda.cuMemFree_v2(address)
"""

SURVIVOR = """
start()
function = kernel()
allocate(1 << 30)
slowest = 0
for _ in range(300):
    begin = time.monotonic()
    check(allocate(1 << 20)[0], "allocate")
    check(launch(function, 0.01), "launch")
    check(cuda.cuCtxSynchronize(), "synchronize")
    free_total()
    slowest = max(slowest, time.monotonic() - begin)
    time.sleep(0.005)
answer(slowest=slowest)
"""


def test_kills_at_any_moment_harm_nobody(driver: Driver) -> None:
    """Processes die in the middle of allocations, launches and start-up while another one works."""
    chance = random.Random(3)  # noqa: S311
    with driver.spawn(*driver.client(SURVIVOR)) as survivor:
        for _ in range(25):
            with driver.spawn(*driver.client(STORM)) as victim:
                assert victim.stdout is not None
                if chance.random() < 0.7:
                    victim.stdout.readline()
                time.sleep(chance.random() * 0.04)
        out, _ = survivor.communicate(timeout=120)
        assert survivor.returncode == 0, out
        assert json.loads(out)["slowest"] < 30  # nobody waits for the dead
    assert driver.used() == 0
    assert driver.json("cuda-alloc", "--block", "1Gi")["held_bytes"] == 24 * GIB


def test_many_processes_start_at_once(driver: Driver) -> None:
    command = [str(program("cuda-alloc")), "--total", "1Gi", "--hold", "1", "--json"]
    processes = [
        subprocess.Popen(command, env=driver.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(40)
    ]
    held = [json.loads(process.communicate(timeout=120)[0])["held_bytes"] for process in processes]
    shown = driver.tool("fakegpu-ctl", "show", driver.state)
    assert int(re.findall(r"peak (\d+)", shown)[0]) <= 24 * GIB
    assert sorted(held)[-20:] == [GIB] * 20
    assert driver.used() == 0
