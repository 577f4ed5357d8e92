"""How programs come to the hooks, and what the library leaves alone."""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer.bench import FAKE, MI, ROOT, Bench
from tests.integration.interposer.families import CUDA

LIMIT = 64 * MI
TABLES = sorted((ROOT / "interposer" / "src").glob("hooks_table*.inc"))
MACHINES = ("x86_64", "aarch64")  # other folders have what sanitizers were built into
LIBRARIES = [
    path for name in MACHINES for path in sorted((ROOT / "interposer/build" / name).glob("libtessera*.so"))
]


def output(*words: str | Path) -> str:
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout


def hooks() -> set[str]:
    """The symbols of all rows."""
    row = re.compile(r"^(?:CUDA|NVML)_HOOK\((\w+),", re.MULTILINE)
    return {name for table in TABLES for name in row.findall(table.read_text())}


def test_exports_are_the_hooks_and_dlsym() -> None:
    exported = {
        line.split()[-1] for line in output("nm", "-D", "--defined-only", abi.library_path()).splitlines()
    }
    assert exported == hooks() | {"dlsym"}


def test_helper_exports_only_its_header() -> None:
    listing = output("nm", "-D", "--defined-only", abi.access_library_path())
    header = (ROOT / "interposer" / "include" / "tessera_access.h").read_text()
    declared = set(re.findall(r"(\w+)\([^)]*\);", header))
    assert {line.split()[-1] for line in listing.splitlines()} == declared


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_runs_with_glibc_2_17(library: Path) -> None:
    """The newest symbol version that is asked for, read from the file itself (aarch64 too)."""
    versions = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
    if library.name == "libtessera-shim-nvml.so":
        assert not versions  # there is nothing in it
        return
    assert versions
    assert max((int(major), int(minor)) for major, minor in versions if (major, minor) != (b"2", b"34")) <= (
        2,
        17,
    )
    needed = output("readelf", "-V", library)
    assert "GLIBC_2.34" not in needed


def test_both_machines_are_built() -> None:
    assert {path.parent.name for path in LIBRARIES} == {"x86_64", "aarch64"}
    assert platform.machine() in {path.parent.name for path in LIBRARIES}


def test_nothing_runs_at_load() -> None:
    dynamic = output("readelf", "-d", abi.library_path())
    assert not re.search(r"\((INIT|FINI|INIT_ARRAY|FINI_ARRAY|PREINIT_ARRAY)\)", dynamic)
    assert "libpthread" not in dynamic
    assert "NOW" in dynamic


@pytest.mark.parametrize(
    "words",
    [
        ("ls", "/"),
        ("python3", "-c", "import ctypes, subprocess; subprocess.run(['true'], check=True); print(1)"),
        ("sh", "-c", "umask; echo $PPID > /dev/null; true & wait"),
    ],
    ids=["ls", "python", "sh"],
)
def test_programs_without_cuda_notice_nothing(bench: Bench, words: tuple[str, ...]) -> None:
    bench.grant(memory=LIMIT)
    bare = subprocess.run(words, capture_output=True, text=True, check=True)
    preloaded = bench.run(*words)
    assert (preloaded.stdout, preloaded.stderr, preloaded.returncode) == (bare.stdout, bare.stderr, 0)
    assert bench.usage().processes == ()


STATE = (
    """
import os
def state():
    status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
    return [status[name].strip() for name in ("SigBlk", "SigIgn", "SigCgt", "Threads", "Umask")]
before = state()
"""
    + CUDA
    + """
use(0)
code, address = alloc(10 * MI)
must(cuda.cuMemFree_v2(address))
code, address = alloc_from(pool(0), 10 * MI)
spinning = kernel()
for _ in range(100): launch(spinning, 1_000_000)
must(cuda.cuCtxSynchronize())
shared = [name for name in os.listdir("/dev/shm") if "tessera" in name]
print(json.dumps([before, state(), shared]))
"""
)


def test_programs_with_cuda_keep_their_signals_and_threads(bench: Bench) -> None:
    """Though they are held back: it is their own threads that wait."""
    bench.grant(memory=LIMIT, cores=50)
    before, after, shared = json.loads(bench.python(STATE))
    assert after == before
    assert shared == []


LOOKUPS = """
import ctypes, sys
libc = ctypes.CDLL(None)
find = libc.dlsym
find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_char_p]
default, following = None, ctypes.c_void_p(-1)
# cuda-like names of others, and names of the driver before it is loaded
for name in b"cuserid cublasCreate_v2 curl_easy_init cu nvml cuInit cuMemAlloc_v2".split():
    assert name == b"cuserid" or not find(default, name), name
assert find(default, b"cuserid") and find(default, b"malloc")
program = ctypes.c_void_p(libc._handle)  # what dlopen(NULL) answers
assert find(program, b"malloc")
assert not any(find(program, name) for name in (b"cuInit", b"nvmlDeviceGetMemoryInfo"))
maps = open("/proc/self/maps").read()
assert "libcuda" not in maps and "libnvidia" not in maps
cuda = ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
handle = ctypes.c_void_p(cuda._handle)
hook = find(handle, b"cuMemAlloc_v2")
assert hook and hook == find(default, b"cuMemAlloc_v2") == find(following, b"cuMemAlloc_v2")
assert find(program, b"cuMemAlloc_v2") == hook
assert all(find(following, b"cuMemAlloc_v2") == hook for _ in range(300))
assert not find(handle, b"cuLaunchGridAsync_never")
assert find(handle, b"cuDeviceGetName") # the driver's own
"""


def test_lookups(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    bench.python(LOOKUPS)


HASH, SYMBOLIC, DEBUG, GNU_HASH = 4, 16, 21, 0x6FFFFEF5
"""Tags of entries of a library's dynamic section."""


def driver_with(directory: Path, tag: int, instead_of: int) -> str:
    """Copies of the driver's libraries with one entry less, and another one."""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        image = bytearray((FAKE / name).read_bytes())
        (section,) = re.findall(r"section at offset (0x\w+)", output("readelf", "-d", FAKE / name))
        start = int(section, 16)
        while int.from_bytes(image[start : start + 8], "little") != instead_of:
            start += 16
        image[start : start + 8] = tag.to_bytes(8, "little")
        (directory / name).write_bytes(image)
    return str(directory)


VERSIONS = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
def ask(name, version, flags=0):
    found, status = ctypes.c_void_p(), ctypes.c_int()
    flags = ctypes.c_uint64(flags)
    code = cuda.cuGetProcAddress_v2(name, ctypes.byref(found), version, flags, ctypes.byref(status))
    return code, found.value, status.value
def symbol(name):
    return ctypes.cast(getattr(cuda, name), ctypes.c_void_p).value
assert ask(b"", 12000)[0] == 500
assert ask(b"cuLaunchKernel", 4000)[1] == symbol("cuLaunchKernel")
assert ask(b"cuLaunchKernel", 4000, 2)[1] == symbol("cuLaunchKernel") # the per-thread one is of 7000
assert ask(b"cuLaunchKernel", 7000, 2)[1] == symbol("cuLaunchKernel_ptsz")
assert ask(b"cuLaunchKernel", 12080, 0)[1] == symbol("cuLaunchKernel")
assert ask(b"cuMemAllocAsync", 11020, 2)[1] == symbol("cuMemAllocAsync_ptsz")
assert ask(b"cuMemAlloc", 3020)[1] == symbol("cuMemAlloc_v2")
assert ask(b"cuMemAllocAsync", 11010)[0] == 500 # not there yet
assert ask(b"cuGetProcAddress", 12000)[1] == symbol("cuGetProcAddress_v2")
assert ask(b"cuGetProcAddress", 11030)[1] == symbol("cuGetProcAddress")
assert ask(b"cuMemAdvise", 8000)[1] == symbol("cuMemAdvise") # whose last argument is a number, in
assert ask(b"cuMemAdvise", 12020)[1] == symbol("cuMemAdvise_v2") # this one a structure
assert ask(b"cuCtxGetDevice", 2000)[1] == symbol("cuCtxGetDevice") # not hooked: the driver's
assert cuda.cuGetProcAddress_v2(None, ctypes.byref(ctypes.c_void_p()), 12000, ctypes.c_uint64(0), None) == 1
"""


def test_versions_and_flags_are_honoured(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    bench.python(VERSIONS)


def test_a_driver_that_answers_with_its_own_functions(bench: Bench, tmp_path: Path) -> None:
    """Whoever is in front of it: as one that is linked with -Bsymbolic."""
    bench.grant(memory=LIMIT)
    bench.environment["LD_LIBRARY_PATH"] = driver_with(tmp_path, SYMBOLIC, instead_of=HASH)
    bench.python(VERSIONS)


def test_dlsym_answers_callers_of_every_age(bench: Bench, roads: Path) -> None:
    """Exported without a version, it stands for dlsym@GLIBC_2.2.5 and dlsym@GLIBC_2.34 alike."""
    symbols = output("readelf", "--dyn-syms", "--wide", abi.library_path())
    assert re.search(r" dlsym$", symbols, re.MULTILINE)
    assert "dlsym@GLIBC_2.2.5" in output("readelf", "--dyn-syms", "--wide", roads)
    bench.grant(memory=LIMIT)
    assert bench.answer(roads, "dlsym", "edge", "plain")["held"] == LIMIT


@pytest.mark.parametrize("road", ["link", "dlsym", "gpa2"])
def test_a_driver_whose_names_only_the_loader_finds(
    bench: Bench, roads: Path, tmp_path: Path, road: str
) -> None:
    bench.grant(memory=LIMIT)
    bench.environment["LD_LIBRARY_PATH"] = driver_with(tmp_path, DEBUG, instead_of=GNU_HASH)
    found = bench.answer(roads, road, "edge", "plain")
    assert found["held"] == LIMIT == bench.high_water()


def test_without_grants_the_driver_is_as_it_is(bench: Bench, roads: Path) -> None:
    for device in bench.answer(roads, "gpa2", "info"):
        assert device["total"] in {24 << 30, 80 << 30}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda grant: (grant / "limits").unlink(), "limits: No such file or directory"),
        (lambda grant: (grant / "usage").unlink(), "usage: No such file or directory"),
        (lambda grant: (grant / "limits").write_bytes(b"short"), "limits: too short"),
        (lambda grant: (grant / "limits").write_bytes(bytes(4096)), "limits: not a limits file"),
        (lambda grant: (grant / "usage").write_bytes(bytes(600000)), "usage: not a usage file"),
    ],
    ids=["no-limits", "no-usage", "short-limits", "zero-limits", "zero-usage"],
)
def test_a_broken_grant_keeps_cuda_from_starting(
    bench: Bench, roads: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(bench.grant(memory=LIMIT))
    result = bench.run(roads, "link", "info")
    assert (result.returncode, "cuInit: 802" in result.stderr) == (3, True)
    assert f"tessera: /run/tessera/grants/grant/{message}" in result.stderr
    assert bench.run("ls", "/").returncode == 0


@pytest.mark.parametrize("road", ["plain", "managed", "async", "pool", "pitch"])
def test_the_projects_own_client(bench: Bench, road: str) -> None:
    bench.grant(memory=LIMIT)
    found = bench.answer(FAKE / "cuda-alloc", "--road", road, "--json")
    assert (found["held_bytes"], found["refusal"]) == (LIMIT, "CUDA_ERROR_OUT_OF_MEMORY")
