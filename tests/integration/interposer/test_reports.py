# SPDX-License-Identifier: Apache-2.0
"""Public reports about programs and drivers that are out of the ordinary. Ids are the corpus'."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from interposer import abi
from tests.integration.interposer import debian, test_bystanders
from tests.integration.interposer.bench import FAKE, LARGE, MI, PATIENCE, SMALL, Bench
from tests.integration.interposer.test_reach import output

LIMIT = 300 * MI
WRAPS_DLSYM = Path(__file__).with_name("wraps_dlsym.c")


def library(source: Path, made: Path) -> Path:
    """Built from a C file."""
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17"]
    flags = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    named = f"-Wl,-soname,{made.name}"
    subprocess.run([*compiler, *flags, source, "-o", made, named, "-ldl"], check=True)
    return made


# A driver as under Windows (WSL2): libcuda.so.1 only leads to another library, whose functions have the same
# names, and which it asks the loader for, when it is loaded and again when it is started.
STUB = """
#include <dlfcn.h>
#include <stddef.h>
static const char *const names[] = {NAMES};
enum {count = sizeof names / sizeof *names};
__attribute__((used, visibility("hidden"))) void *functions[count];
static int (*start)(unsigned);
static int init(unsigned flags);
__attribute__((constructor)) static void ask(void) {
  void *driver = dlopen("libcuda.so.2", RTLD_LAZY), *nvml = dlopen("libnvidia-ml.so.1", RTLD_LAZY);
  for (int i = 0; i < count; i++) functions[i] = dlsym(driver, names[i]);
  *(void **)&start = functions[INIT];
  *(int (**)(unsigned))&functions[INIT] = init;
  dlsym(nvml, "nvmlInit_v2");
}
static int init(unsigned flags) {
  ask();
  return start(flags);
}
"""


def stub_driver(directory: Path, lacks: Collection[str] = ()) -> dict[str, str]:
    """The environment in which it is found. `lacks`: functions that it does not have."""
    driver = FAKE / "libcuda.so.1"
    content = driver.read_bytes()
    assert (
        content.count(b"\0libcuda.so.1\0") == 1
    )  # its own name, by which a loader would take it for the stub
    rest = directory / "libcuda.so.2"
    rest.write_bytes(content.replace(b"\0libcuda.so.1\0", b"\0libcuda.so.2\0"))
    symbols = output("readelf", "--dyn-syms", "--wide", driver)
    names = sorted(set(re.findall(r"FUNC +GLOBAL +DEFAULT +\d+ (cu[A-Z]\w+)", symbols)))
    assert set(lacks) <= set(names)
    names = [name for name in names if name not in lacks]
    quoted = ", ".join(f'"{name}"' for name in names)
    text = STUB.replace("NAMES", quoted).replace("INIT", str(names.index("cuInit")))
    jumps = (
        f'asm(".globl {name}\\n.type {name}, @function\\n{name}: jmp *functions+{8 * number}(%rip)");'
        for number, name in enumerate(names)
    )
    source = directory / "stub.c"
    source.write_text("\n".join([text, *jumps, ""]))
    library(source, directory / "libcuda.so.1")
    return {"LD_LIBRARY_PATH": f"{directory}:{FAKE}"}


# Allocates until it is refused, says how much that was and by which error.
FILL = """
import ctypes, json, os
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    assert code == 0, (name, code)
call("cuInit", 0)
count, context, held = ctypes.c_int(), ctypes.c_void_p(), 0
call("cuDeviceGetCount", ctypes.byref(count))
beyond = cuda.cuDeviceGet(ctypes.byref(ctypes.c_int()), count.value)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
def fill(size=1 << 20):
    blocks, code = [], 0
    while code == 0:
        block = ctypes.c_uint64()
        code = cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(size))
        if code == 0:
            blocks.append(block)
    for block in blocks:
        call("cuMemFree_v2", block)
    return len(blocks) * size, code
"""


@pytest.fixture
def bench(make_bench: Callable[..., Bench]) -> Bench:
    bench = make_bench()
    bench.grant(memory=LIMIT)
    return bench


def test_b058_an_image_with_another_libc(bench: Bench, tmp_path: Path) -> None:
    """musl's loader takes no notice of /etc/ld.so.preload, and NVIDIA's driver can't be loaded there."""
    try:
        system = debian.unpacked("musl", "x86_64", "trixie")
    except debian.UnavailableError as error:
        pytest.skip(f"no musl: {error}")
    program = tmp_path / "musl"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-musl", "-dynamic"]
    subprocess.run([*compiler, Path(__file__).with_name("musl.c"), "-o", program], check=True)
    (loader,) = system.rglob("x86_64-linux-musl/libc.so")
    words = shlex.join(map(str, (loader, program, FAKE / "libcuda.so.1")))
    for preloaded in (False, True):
        done = test_bystanders.ran(bench, words, preloaded=preloaded)
        assert (done.returncode, done.stdout, done.stderr) == (7, "not loaded\n", "")


def test_b067_ranks_that_choose_one_card_each(bench: Bench) -> None:
    """By its number; each has that card's limit, and a card beyond is the driver's own error."""
    bench.grant("large", uuid=LARGE, memory=2 * LIMIT)
    script = f"{FILL}print(json.dumps([count.value, beyond, *fill()]))"
    ranks = [
        bench.start(sys.executable, "-c", script, environment={"CUDA_VISIBLE_DEVICES": rank}) for rank in "01"
    ]
    said = [json.loads(rank.communicate(timeout=PATIENCE)[0]) for rank in ranks]
    assert said == [[1, 101, LIMIT, 2], [1, 101, 2 * LIMIT, 2]]


LOADS = f"""{FILL}
import _ctypes, sys, threading
done = False
loads = 0
def load():
    global loads
    while not done:
        found = ctypes.CDLL(sys.argv[1])
        assert found.dlsym and not hasattr(found, "cuInit")
        _ctypes.dlclose(found._handle)
        loads += 1
threads = [threading.Thread(target=load) for _ in range(2)]
for thread in threads:
    thread.start()
found = [fill() for _ in range(20)]
done = True
for thread in threads:
    thread.join()
print(json.dumps([found, loads > 20]))
"""


def test_b080_libraries_are_loaded_while_another_thread_allocates(bench: Bench, tmp_path: Path) -> None:
    """Through ctypes, as NCCL is: nobody waits for anybody in the loader."""
    other = library(WRAPS_DLSYM, tmp_path / "libnccl.so")
    said = json.loads(bench.python(LOADS, str(other)))
    assert said == [[[LIMIT, 2]] * 20, True]


NEWER = (
    *("cuGetProcAddress", "cuGetProcAddress_v2", "cuMemAllocAsync", "cuMemAllocAsync_ptsz"),
    *("cuMemAllocFromPoolAsync", "cuMemFreeAsync", "cuMemPoolCreate", "cuMemPoolDestroy"),
    *("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool", "cuLaunchKernelEx", "cuCtxCreate_v3"),
)


def test_b083_a_driver_that_lacks_what_is_newer(bench: Bench, tmp_path: Path) -> None:
    """As of CUDA 11.0: what it has works, within the limit; what it has not is not found, or is refused."""
    script = f"""{FILL}
found = [name for name in {NEWER!r} if hasattr(cuda, name)]
# The hook, as a linked program comes to it: by libc's own dlsym.
libc, block = ctypes.CDLL("libc.so.6"), ctypes.c_uint64()
libc.dlvsym.restype = ctypes.c_void_p
libc.dlvsym.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p]
own_dlsym = libc.dlvsym(libc._handle, b"dlsym", b"GLIBC_2.2.5")
find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(own_dlsym)
hook = find(ctypes.CDLL({str(abi.library_path())!r})._handle, b"cuMemAllocAsync")
allocate = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)(hook)
code = allocate(ctypes.addressof(block), 512, None)
print(json.dumps([found, code, *fill()]))"""
    driver = stub_driver(tmp_path, lacks=NEWER)
    found, code, held, refusal = bench.answer(sys.executable, "-c", script, environment=driver)
    assert (found, held, refusal) == ([], LIMIT, 2)
    assert code in (500, 801)  # not found, not supported


def test_b084_b085_a_driver_that_asks_the_loader_itself(bench: Bench, tmp_path: Path) -> None:
    """For functions that we have hooks for: what it finds is the driver's, or it would call itself."""
    script = f"{FILL}print(json.dumps(fill()))"
    assert bench.answer(sys.executable, "-c", script, environment=stub_driver(tmp_path)) == [LIMIT, 2]


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_shim", [True, False])
def test_b090_another_library_that_stands_before_dlsym(
    make_bench: Callable[..., Bench], tmp_path: Path, roads: Path, is_shim: bool, is_first: bool
) -> None:
    """Neither calls itself for ever. Which of both programs find by dlsym is the loader's business."""
    other = library(WRAPS_DLSYM, tmp_path / "libprofiler.so")
    bench = make_bench(shim=is_shim, preload=False)
    bench.grant(memory=LIMIT)
    order = (other, abi.library_path()) if is_first else (abi.library_path(), other)
    preloaded = {"LD_PRELOAD": " ".join(map(str, order))}
    assert bench.answer(roads, "link", "edge", "plain", environment=preloaded)["held"] == LIMIT
    held = bench.answer(roads, "dlsym", "info", environment=preloaded)[0]["total"]
    if is_shim or not is_first:
        assert held == LIMIT


def test_b098_ranks_on_two_cards_both_go_on(make_bench: Callable[..., Bench]) -> None:
    """Two processes of one container, each on a card of its own, each held to half of it."""
    bench = make_bench()
    for name, uuid in (("small", SMALL), ("large", LARGE)):
        bench.grant(name, uuid=uuid, memory=LIMIT, cores=50)
    burn = (FAKE / "cuda-burn", "--seconds", "3", "--json")
    ranks = [bench.start(*burn, environment={"CUDA_VISIBLE_DEVICES": rank}) for rank in "01"]
    shares = [json.loads(rank.communicate(timeout=PATIENCE)[0])["share"] for rank in ranks]
    assert all(0.01 < share < 0.7 for share in shares), shares  # little, where the machine is busy
