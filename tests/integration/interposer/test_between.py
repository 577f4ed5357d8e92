# SPDX-License-Identifier: Apache-2.0
"""What a thread does while another one's call is in the driver, done but not yet answered."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.interposer.bench import FAKE, MI, Bench
from tests.integration.interposer.families import CUDA, LIMIT

DRIVER = FAKE / "libcuda.so.570.124.06"

MEANWHILE = (
    CUDA
    + """
import threading
Act, threads = ctypes.CFUNCTYPE(None, ctypes.c_char_p), []
def meanwhile(symbol, act):
    # The next time only. Whoever has to wait for the call to return goes on then.
    def come(name):
        if name.decode() != symbol: return
        cuda.driver_between(None)
        threads.append(threading.Thread(target=act))
        threads[-1].start()
        threads[-1].join(1)
    keep.append(Act(come))
    cuda.driver_between(keep[-1])
def inside(symbol, act):
    # The next time only, by the driver itself.
    def come(name):
        if name.decode() != symbol: return
        cuda.driver_between(None)
        act()
    keep.append(Act(come))
    cuda.driver_between(keep[-1])
keep = []
threading.excepthook = lambda failed: out.update(failed=str(failed.exc_value))
def end():
    for thread in threads: thread.join()
    out["acts"] = len(threads)
def allocated(bytes):
    code, address = alloc(bytes)
    must(code)
"""
)


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a libcuda.so.1 that leads to the fake driver's by its path."""
    directory = tmp_path_factory.mktemp("between")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-shared", "-fPIC"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", f'-DDRIVER="{DRIVER}"']
    (directory / "stand-in.c").write_text("int stand_in;\n")
    stand_in = directory / "stand-in.so"
    subprocess.run([*compiler, directory / "stand-in.c", "-o", stand_in, f"-Wl,-soname,{DRIVER}"], check=True)
    source, made = Path(__file__).with_name("between.c"), directory / "libcuda.so.1"
    links = ["-ldl", "-Wl,-soname,libcuda.so.1", "-Wl,--no-as-needed", str(stand_in)]
    subprocess.run([*compiler, *flags, source, "-o", made, *links], check=True)
    return directory


@pytest.fixture
def run(make_bench: Callable[..., Bench], driver: Path) -> Callable[..., dict[str, Any]]:
    """Runs a program with that driver; what it found, and what the fake driver holds while it still runs."""

    def run(script: str, **values: str) -> dict[str, Any]:
        bench = make_bench(driver=values)
        bench.grant(memory=LIMIT)
        bench.environment["LD_LIBRARY_PATH"] = f"{driver}:{FAKE}"
        tail = "\nend()\nprint(json.dumps(out), flush=True)\nimport sys; sys.stdin.read()\n"
        process = bench.start(sys.executable, "-c", MEANWHILE + script + tail)
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=60)[1]
        found: dict[str, Any] = json.loads(line)
        return found | {"held": bench.held() // MI, "charged": bench.usage().memory_bytes // MI}

    return run


Run = Callable[..., dict[str, Any]]


def test_the_next_context_has_the_handle_of_one_that_just_ends(run: Run) -> None:
    found = run(
        """
use(0)
ending, beginning = P(), P()
must(cuda.cuCtxCreate_v2(ref(ending), 0, 0))
allocated(100 * MI)
def begin():
    must(cuda.cuCtxCreate_v2(ref(beginning), 0, 0))
    allocated(200 * MI)
meanwhile("cuCtxDestroy_v2", begin)
must(cuda.cuCtxDestroy_v2(ending))
out["same"] = ending.value == beginning.value
"""
    )
    assert found == {"acts": 1, "same": True, "held": 200, "charged": 200}


def test_a_context_that_does_not_end_keeps_what_it_holds(run: Run) -> None:
    found = run(
        """
use(0)
allocated(100 * MI)
out["refused"] = cuda.cuCtxDestroy_v2(contexts[0])
out["again"] = alloc(201 * MI)[0]
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
"""
    )
    assert found == {"acts": 0, "refused": 201, "again": 2, "held": 0, "charged": 0}


@pytest.mark.parametrize("call", ["cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxGetState"])
def test_a_primary_context_begins_again_just_as_it_ends(run: Run, call: str) -> None:
    found = run(
        f"""
use(0)
allocated(100 * MI)
def begin():
    use(0)
    allocated(200 * MI)
meanwhile("{call}", begin)
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
"""
    )
    assert found == {"acts": 1, "held": 200, "charged": 200}


@pytest.mark.parametrize("device", [0, 1])
@pytest.mark.parametrize("end", ["Release_v2", "Reset_v2"])
def test_another_context_has_the_handle_of_a_primary_one_that_just_ends(
    run: Run, end: str, device: int
) -> None:
    found = run(
        f"""
use(0); use(1)
for context in contexts:
    must(cuda.cuCtxSetCurrent(context))
    allocated(40 * MI)
beginning = P()
def begin():
    must(cuda.cuCtxCreate_v2(ref(beginning), 0, 0))
    allocated(200 * MI)
meanwhile("cuDevicePrimaryCtx{end}", begin)
must(cuda.cuDevicePrimaryCtx{end}({device}))
must(cuda.cuDevicePrimaryCtxReset_v2({device})) # there is none any more
out["same"] = contexts[{device}].value == beginning.value
"""
    )
    held = 200 if device == 0 else 240
    assert found == {"acts": 1, "same": True, "held": held, "charged": held}


def test_a_primary_context_that_others_retain_keeps_what_it_holds(run: Run) -> None:
    """Others that are seen to, or only known to the driver."""
    found = run(
        """
use(0); use(0)
allocated(100 * MI)
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
out["retained"] = alloc(201 * MI)[0]
cuda.driver_retains(0)
must(cuda.cuDevicePrimaryCtxRelease_v2(0))
out["retained-unseen"] = alloc(201 * MI)[0]
threads.append(threading.Thread(target=lambda: must(cuda.cuDevicePrimaryCtxRelease_v2(0))))
threads[-1].start()
"""
    )
    assert found == {"acts": 1, "retained": 2, "retained-unseen": 2, "held": 0, "charged": 0}


POOLS = """
use(0)
keeping, address = pool(2**64 - 1), u64()
def change(): must(cuda.cuDeviceSetMemPool(0, keeping))
def take():
    must(cuda.cuCtxSetCurrent(contexts[0]))
    must(cuda.cuMemAllocAsync(ref(address), S(100 * MI), P()))
"""
FIRST_LOOK = "meanwhile('cuDeviceGetMemPool', change)\ntake()\n"
CHANGE = "take()\nmust(cuda.cuMemFreeAsync(address, P()))\nmeanwhile('cuDeviceSetMemPool', take)\nchange()\n"


@pytest.mark.parametrize("what", [FIRST_LOOK, CHANGE], ids=["looks", "changes"])
def test_a_device_takes_from_another_pool_just_as_somebody_takes(run: Run, what: str) -> None:
    """Who looks for the pool finds the former one; or allocates where it has just changed."""
    found = run(
        f"""
{POOLS}
{what}
end()
out["full"] = alloc(201 * MI)[0]
"""
    )
    assert found == {"acts": 1, "full": 2, "held": 100, "charged": 100}


def test_what_a_function_loads_goes_with_its_module(run: Run) -> None:
    found = run(
        r"""
use(0)
module, function, code = P(), P(), u64()
image = b".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry spin_ns(.param .u64 n)\n{ ret; }\n"
def take(): must(cuda.cuMemAlloc_v2(ref(code), S(100 * MI)))
def give(): must(cuda.cuMemFree_v2(code))
must(cuda.cuModuleLoadData(ref(module), image))
must(cuda.cuModuleGetFunction(ref(function), module, b"spin_ns"))
inside("cuFuncLoad", take)
must(cuda.cuFuncLoad(function))
out["loaded"] = used()
inside("cuModuleUnload", give)
must(cuda.cuModuleUnload(module))
"""
    )
    assert found == {"acts": 0, "loaded": 100, "held": 0, "charged": 0}
