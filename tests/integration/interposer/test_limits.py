# SPDX-License-Identifier: Apache-2.0
"""Limits come from the grant's file alone, whatever the environment says; and what is logged of them."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, MI, SMALL, Bench
from tests.integration.interposer.test_memory import OUT_OF_MEMORY

LIMIT = 300 * MI
# Every variable that HAMi's library reads, in the sense that loosens; and ours, of the agent.
LOOSE = {
    "CUDA_DISABLE_CONTROL": "true",
    "CUDA_DEVICE_MEMORY_LIMIT": "0",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "20g",
    "CUDA_DEVICE_SM_LIMIT": "100",
    "CUDA_DEVICE_SM_LIMIT_0": "0",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/another.cache",
    "CUDA_OVERSUBSCRIBE": "true",
    "CUDA_TASK_PRIORITY": "0",
    "CUDA_REDIRECT": "/usr/lib/libcuda.so",
    "GPU_CORE_UTILIZATION_POLICY": "disable",
    "ACTIVE_OOM_KILLER": "false",
    "RECORD_KERNEL_INTERVAL": "100",
    "NVIDIA_VISIBLE_DEVICES": "all",
    "CUDA_VISIBLE_DEVICES": "0",
    "TESSERA_GRANTS": "0",
    "TESSERA_INTERPOSITION": "none",
    "TESSERA_RUN_DIR": "/nowhere",
    "TESSERA_LOG_LEVEL": "none",
}
MEMORY = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address, count = ctypes.c_void_p(), ctypes.c_uint64(), 0
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
codes = [cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)) for _ in range(int(sys.argv[1]))]
print(codes.count(0), sorted(set(codes)))
"""


@pytest.fixture(params=[False, True], ids=["preload", "shim"])
def held(request: pytest.FixtureRequest, make_bench: Callable[..., Bench]) -> Bench:
    return make_bench(shim=request.param)


@pytest.mark.parametrize("variable", LOOSE)
def test_no_variable_loosens_memory(held: Bench, roads: Path, variable: str) -> None:
    held.grant(memory=LIMIT)
    found = held.answer(roads, "gpa2", "edge", "plain", environment={variable: LOOSE[variable]})
    assert (found["held"], found["code"], found["total"]) == (LIMIT, OUT_OF_MEMORY, LIMIT)
    assert held.high_water() == LIMIT


def test_no_variable_loosens_compute(held: Bench) -> None:
    """Nor all of them together."""
    held.grant(memory=LIMIT, cores=30, policy=abi.Policy.FORCE)
    words = (FAKE / "cuda-burn", "--kernel-ms", "2", "--seconds", "3", "--json")
    share = held.answer(*words, environment=LOOSE)["share"]
    assert share < 0.4


@pytest.mark.parametrize("damage", ["gone", "empty", "of-another-kind", "unreadable"])
def test_a_grant_that_cant_be_read_keeps_cuda_from_starting(held: Bench, roads: Path, damage: str) -> None:
    limits = held.grant(memory=LIMIT) / "limits"
    user: tuple[str, ...] = ()
    match damage:
        case "gone":
            limits.unlink()
        case "empty":
            limits.write_bytes(b"")
        case "of-another-kind":
            limits.write_bytes(b"x" * 4096)
        case _:
            limits.chmod(0)
            user = ("setpriv", "--reuid=12345", "--regid=12345", "--clear-groups", "--inh-caps=-all")
            _let_others_look(held, roads)
    result = held.run(*user, roads, "link", "info")
    assert (result.returncode, "cuInit: 802" in result.stderr) == (3, True)
    assert re.search(r"tessera: /run/tessera/grants/grant/limits: \w", result.stderr)


def _let_others_look(bench: Bench, program: Path) -> None:
    """A checkout, and pytest's directories, may lie where other users can't look."""
    for directory in (*bench.directory.parents, *program.parents):
        if directory.is_relative_to("/tmp") and directory != Path("/tmp"):
            directory.chmod(0o755)
    for path in (bench.directory, *bench.devices.iterdir(), bench.state, *bench.state.iterdir()):
        path.chmod(0o777)
    bench.library = Path(shutil.copy(abi.library_path(), bench.directory))
    if bench.shim:
        bench.shim_library()
    else:
        shutil.copy(FAKE / "libcuda.so.1", bench.directory)
        bench.environment["LD_LIBRARY_PATH"] = str(bench.directory)


# --- what is logged -----------------------------------------------------------------------------------------

GRANT = f"tessera: {SMALL}: at most 300 MiB of memory, 30 % of compute"
REFUSED = f"tessera: {MI} bytes refused: {LIMIT} of {LIMIT} are in use"


@pytest.mark.parametrize(
    ("variables", "shown", "hidden"),
    [
        pytest.param({}, (), ("tessera:",), id="default"),
        pytest.param({"TESSERA_LOG_LEVEL": "warning"}, (), ("tessera:",), id="warning"),
        pytest.param({"LIBCUDA_LOG_LEVEL": "2"}, (), ("tessera:",), id="hamis-default"),
        pytest.param({"TESSERA_LOG_LEVEL": "info"}, (GRANT, REFUSED), ("bound",), id="info"),
        pytest.param({"LIBCUDA_LOG_LEVEL": "3"}, (GRANT, REFUSED), ("bound",), id="hamis-info"),
        pytest.param({"TESSERA_LOG_LEVEL": "debug"}, (GRANT, REFUSED, "libcuda.so.1: bound"), (), id="debug"),
        pytest.param(
            {"LIBCUDA_LOG_LEVEL": "4"}, (GRANT, REFUSED, "libcuda.so.1: bound"), (), id="hamis-debug"
        ),
        pytest.param(
            {"TESSERA_LOG_LEVEL": "error", "LIBCUDA_LOG_LEVEL": "4"}, (), ("tessera:",), id="ours-counts"
        ),
    ],
)
def test_what_a_level_shows(
    held: Bench, variables: dict[str, str], shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    held.grant(memory=LIMIT, cores=30)
    result = held.run(sys.executable, "-c", MEMORY, "301", environment=variables)
    assert result.stdout == f"300 [0, {OUT_OF_MEMORY}]\n", result.stderr
    assert [words for words in shown if words not in result.stderr] == []
    assert [words for words in hidden if words in result.stderr] == []


def test_messages_are_few(held: Bench) -> None:
    held.grant(memory=LIMIT)
    result = held.run(sys.executable, "-c", MEMORY, "5300", environment={"TESSERA_LOG_LEVEL": "info"})
    assert result.stdout == f"300 [0, {OUT_OF_MEMORY}]\n", result.stderr
    lines = [line for line in result.stderr.splitlines() if "bytes refused" in line]
    assert 10 < len(lines) < 1000  # 20 a second of 5000


def test_programs_without_cuda_say_nothing(held: Bench) -> None:
    held.grant(memory=LIMIT)
    result = held.run("ls", "/", environment={"TESSERA_LOG_LEVEL": "debug"})
    assert (result.returncode, result.stderr) == (0, "")
