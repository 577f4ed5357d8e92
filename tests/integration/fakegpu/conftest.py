# SPDX-License-Identifier: Apache-2.0
"""A fake driver of its own for each test, below tmp_path: root, state, device nodes; for subprocesses only.

Nothing is loaded into the test process: record locks and contexts belong to a process, and tests kill theirs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import cache
from tests.fakegpu import driver_root
from tests.fakegpu.virtual_time import VirtualTime

MI, GIB = 1 << 20, 1 << 30
INVENTORIES = driver_root.INVENTORIES

# What every Python client begins with: the driver by its soname, calls that answer (error, values).
PRELUDE = """
import ctypes, json, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
u64 = ctypes.c_ulonglong
def check(error, what=""):
    if error: raise SystemExit(f"{what}: error {error}")
def start(device=0):
    check(cuda.cuInit(0), "cuInit")
    context = ctypes.c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "retain")
    check(cuda.cuCtxSetCurrent(context), "set current")
    return context
def look_up(name, version, flags=0):
    found, status = ctypes.c_void_p(), ctypes.c_int(-1)
    outs = ctypes.byref(found), ctypes.byref(status)
    error = cuda.cuGetProcAddress_v2(name.encode(), outs[0], version, u64(flags), outs[1])
    return error, found.value, status.value
def symbol(name):
    return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
def allocate(size, call="cuMemAlloc_v2", *more):
    address = u64()
    return getattr(cuda, call)(ctypes.byref(address), ctypes.c_size_t(size), *more), address
def free_total():
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "get info")
    return free.value, total.value
PTX = b".version 6.0\\n.target sm_50\\n.global .align 4 .u32 table[16];\\n" \\
    b".visible .entry spin_ns(.param .u64 n) { ret; }\\n"
def kernel(name=b"spin_ns"):
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX), "load")
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, name), "function")
    return function
def launch(function, milliseconds, stream=None, call="cuLaunchKernel"):
    nanoseconds = u64(int(milliseconds * 1e6))
    params = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(nanoseconds), ctypes.c_void_p))
    return getattr(cuda, call)(function, 1, 1, 1, 32, 1, 1, 0, stream, params, None)
def answer(**values):
    print(json.dumps(values), flush=True)
"""


@dataclass(frozen=True)
class Driver:
    root: Path
    state: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process on this node; FAKEGPU_DEV keeps real device nodes out of it."""
        return {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(driver_root.library_directory(self.root)),
            "FAKEGPU_DIR": str(self.state),
            "FAKEGPU_DEV": str(self.root / "dev"),
        }

    @contextmanager
    def spawn(self, *command: str | Path, **more: Any) -> Iterator[subprocess.Popen[str]]:
        """A process with its stdout piped; killed and reaped at the end, whatever happens."""
        environment = {**self.environment, **more.pop("env", {})}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
        ) as process:
            try:
                yield process
            finally:
                process.kill()

    def run(self, *command: str | Path, env: Mapping[str, str] | None = None, **more: Any) -> str:
        """What a program prints; AssertionError with its output where it fails."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command,
            env={**self.environment, **(env or {})},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            **more,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def tool(self, name: str, *arguments: str | Path, **more: Any) -> str:
        return self.run(driver_root.program(name), *arguments, **more)

    def json(self, name: str, *arguments: str, **more: Any) -> dict[str, Any]:
        """The one line of JSON that cuda-alloc and cuda-burn print."""
        found: dict[str, Any] = json.loads(self.tool(name, *arguments, "--json", **more))
        return found

    def cuda(self, code: str, **more: Any) -> dict[str, Any]:
        """Runs a client against libcuda; the last line that it answers."""
        found: dict[str, Any] = json.loads(self.run(*self.client(code), **more).splitlines()[-1])
        return found

    def timed(self, code: str) -> dict[str, Any]:
        """As `cuda`, in virtual time: what is timed takes as long on any machine."""
        (output,) = self.in_virtual_time(self.client(code))
        found: dict[str, Any] = json.loads(output.splitlines()[-1])
        return found

    def in_virtual_time(self, *commands: Sequence[str], seconds: float = 60.0) -> list[str]:
        """What programs print that begin at one time, and end within so many virtual seconds."""
        clock = VirtualTime(self.state.with_name("clock"))
        with ExitStack() as started:
            processes = [
                started.enter_context(self.spawn(*command, env=clock.member())) for command in commands
            ]
            clock.wait_for_members()
            clock.advance(seconds)
            outputs = [process.communicate(timeout=300)[0] for process in processes]
            ended = [process.returncode for process in processes]
        assert not any(ended), f"ended with {ended}: {outputs}"
        return outputs

    def client(self, code: str) -> list[str]:
        return [sys.executable, "-c", PRELUDE + code]

    def nvml(self, code: str, **more: Any) -> Any:
        """Evaluates an expression with pynvml, initialised, as `n`, in a process of its own."""
        script = f"import json, pynvml as n; n.nvmlInit(); print(json.dumps({code}))"
        return json.loads(self.run(sys.executable, "-c", script, **more))

    def used(self, card: int = 0) -> int:
        found: int = self.nvml(f"n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetHandleByIndex({card})).used")
        return found


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    """`make` builds nothing twice; the tests run what the sources say."""
    make: list[str | Path] = [
        "make",
        "--no-print-directory",
        "-C",
        driver_root.BUILD.parent,
        f"PYTHON={sys.executable}",
    ]
    with cache.locked("fakegpu"):  # of several processes of pytest one builds
        done = subprocess.run(make, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def make_driver(tmp_path: Path) -> Callable[[str], Driver]:
    if os.geteuid() != 0:
        pytest.skip("device nodes need root")

    def make(inventory: str) -> Driver:
        """From the name of an inventory beside the sources, or the text of another one."""
        path = INVENTORIES / inventory
        if "\n" in inventory:
            path = tmp_path / "inventory.ini"
            path.write_text(inventory)
        driver_root.install(tmp_path / "root", tmp_path / "state", path)
        return Driver(tmp_path / "root", tmp_path / "state")

    return make


@pytest.fixture
def driver(make_driver: Callable[[str], Driver]) -> Driver:
    return make_driver("two-cards.ini")


def hopper(make_driver: Callable[[str], Driver], cuda: str = "12.8") -> Driver:
    """Cards that have tensor maps, joined by NVLink, under a driver of that version."""
    return make_driver((INVENTORIES / "eight-cards.ini").read_text().replace("cuda = 12.8", f"cuda = {cuda}"))


def eventually(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()
