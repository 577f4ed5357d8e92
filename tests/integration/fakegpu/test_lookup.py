# SPDX-License-Identifier: Apache-2.0
"""cuGetProcAddress, the way CUDA's runtimes use it: name, version and flag decide, and each is honoured."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakegpu import driver_root
from tests.integration.fakegpu.conftest import INVENTORIES, Driver
from tests.integration.headers import RELEASES, header

LEGACY, PER_THREAD = 1, 2
FOUND, NOT_FOUND, TOO_OLD = 0, 1, 2

ANSWERS = [
    # name, version, flags, symbol
    ("cuInit", 2000, 0, "cuInit"),
    ("cuMemAlloc", 3020, 0, "cuMemAlloc_v2"),
    ("cuMemAlloc", 12080, 0, "cuMemAlloc_v2"),
    ("cuCtxGetDevice", 2000, 0, "cuCtxGetDevice"),
    ("cuCtxGetDevice", 13000, 0, "cuCtxGetDevice"),  # the driver is 12.8: it doesn't know of _v2
    ("cuCtxCreate", 2000, 0, "cuCtxCreate"),
    ("cuCtxCreate", 3020, 0, "cuCtxCreate_v2"),
    ("cuCtxCreate", 11040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12040, 0, "cuCtxCreate_v3"),
    ("cuCtxCreate", 12050, 0, "cuCtxCreate_v4"),
    ("cuDevicePrimaryCtxRelease", 7000, 0, "cuDevicePrimaryCtxRelease"),
    ("cuDevicePrimaryCtxRelease", 11000, 0, "cuDevicePrimaryCtxRelease_v2"),
    ("cuMemAdvise", 8000, 0, "cuMemAdvise"),
    ("cuMemAdvise", 12020, 0, "cuMemAdvise_v2"),
    ("cuEventElapsedTime", 12070, 0, "cuEventElapsedTime"),
    ("cuEventElapsedTime", 12080, 0, "cuEventElapsedTime_v2"),
    ("cuGetProcAddress", 11030, 0, "cuGetProcAddress"),
    ("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2"),
    ("cuLaunchKernel", 4000, 0, "cuLaunchKernel"),
    ("cuLaunchKernel", 7000, LEGACY, "cuLaunchKernel"),
    ("cuLaunchKernel", 7000, PER_THREAD, "cuLaunchKernel_ptsz"),
    ("cuLaunchKernel", 6050, PER_THREAD, "cuLaunchKernel"),
    ("cuMemcpyHtoD", 7000, PER_THREAD, "cuMemcpyHtoD_v2_ptds"),
    ("cuMemcpyAsync", 12000, PER_THREAD, "cuMemcpyAsync_ptsz"),
    ("cuMemPrefetchAsync", 12000, PER_THREAD, "cuMemPrefetchAsync_ptsz"),
    ("cuMemPrefetchAsync", 12020, PER_THREAD, "cuMemPrefetchAsync_v2_ptsz"),
    ("cuMemAllocAsync", 11020, PER_THREAD, "cuMemAllocAsync_ptsz"),
    ("cuMemAlloc", 12000, PER_THREAD, "cuMemAlloc_v2"),
]


def test_names_versions_and_flags_are_honoured(driver: Driver) -> None:
    asked = [(name, version, flags, expected) for name, version, flags, expected in ANSWERS]
    found = driver.cuda(f"""
out = []
for name, version, flags, expected in {asked!r}:
    error, address, status = look_up(name, version, flags)
    if (error, status) != (0, 0) or address != symbol(expected):
        out.append([name, version, flags, error, status])
answer(wrong=out)""")
    assert found["wrong"] == []


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [("", 12000, NOT_FOUND), ("cuNoSuchThing", 12000, NOT_FOUND), ("cuMemAllocAsync", 11010, TOO_OLD)],
    ids=["empty", "unknown", "too old"],
)
def test_what_is_not_there(driver: Driver, name: str, version: int, status: int) -> None:
    assert driver.cuda(f"answer(found=look_up({name!r}, {version}))")["found"] == [500, None, status]


def test_bad_arguments(driver: Driver) -> None:
    found = driver.cuda("""
out = ctypes.c_void_p()
answer(flags=look_up("cuInit", 12000, 3)[0],
       name=cuda.cuGetProcAddress_v2(None, ctypes.byref(out), 12000, u64(0), None),
       first=cuda.cuGetProcAddress(b"cuInit", ctypes.byref(out), 12000, u64(0)),
       same=out.value == symbol("cuInit"))""")
    assert found == {"flags": 1, "name": 1, "first": 0, "same": True}


def test_a_newer_driver_knows_newer_meanings(make_driver: Callable[[str], Driver]) -> None:
    text = (INVENTORIES / "two-cards.ini").read_text().replace("cuda = 12.8", "cuda = 13.0")
    found = make_driver(text).cuda("""
version = ctypes.c_int()
check(cuda.cuDriverGetVersion(ctypes.byref(version)))
answer(version=version.value, old=look_up("cuCtxGetDevice", 12080)[1] == symbol("cuCtxGetDevice"),
       new=look_up("cuCtxGetDevice", 13000)[1] == symbol("cuCtxGetDevice_v2"))""")
    assert found == {"version": 13000, "old": True, "new": True}


def test_export_tables_are_not_imitated(driver: Driver) -> None:
    found = driver.cuda("""
table = ctypes.c_void_p()
answer(error=cuda.cuGetExportTable(ctypes.byref(table), b"0123456789abcdef"), table=table.value)""")
    assert found == {"error": 500, "table": None}


def test_what_the_runtime_asks_at_start_is_there(driver: Driver) -> None:
    """In cudart's order: names whose absence it does not survive, then what each device is asked."""
    found = driver.cuda("""
needed = "cuInit cuGetProcAddress cuGetExportTable cuDeviceGet cuDeviceGetCount cuDeviceGetName " \\
         "cuDeviceTotalMem cuDeviceGetAttribute cuDeviceGetUuid cuDriverGetVersion " \\
         "cuDevicePrimaryCtxRetain cuCtxSetCurrent cuCtxGetCurrent cuCtxGetDevice"
missing = [name for name in needed.split() for flags in (0, 2) if look_up(name, 12080, flags)[0]]
early = ctypes.c_int()
before = cuda.cuDeviceGetCount(ctypes.byref(early))
check(cuda.cuInit(0))
value = ctypes.c_int()
attributes = {}
for number in range(1, 144):
    check(cuda.cuDeviceGetAttribute(ctypes.byref(value), number, 0), number)
    attributes[number] = value.value
uuid = ctypes.create_string_buffer(16)
check(cuda.cuDeviceGetUuid_v2(uuid, 0))
answer(missing=missing, before=before, uuid=uuid.raw.hex(),
       sane=[attributes[n] for n in (1, 10, 16, 39, 75, 76, 115)])""")
    assert found["missing"] == []
    assert found["before"] == 3
    assert found["uuid"] == "4e6c1f2a9d0b4c5e8a1730f1b2c4d5e6"
    assert found["sane"] == [1024, 32, 128, 1536, 8, 9, 1]


TABLES = Path(driver_root.__file__).parent / "src"
PLAIN_ROW = re.compile(r"PLAIN\((cu\w+), (\d+), (cu\w+)[,)]")
STREAM_ROW = re.compile(r"STREAM\((cu\w+), (\d+), (cu\w+), (\d+), (_pts[zd]|_ptds)[,)]")
Row = tuple[str, int, str, int, str]


def rows() -> list[Row]:
    """name, version, symbol, version of the per-thread spelling (0: none), its suffix."""
    found: list[Row] = []
    for path in sorted(TABLES.glob("cuda_table*.h")):
        text = re.sub(r"\s*\\\n\s*", " ", path.read_text())
        found += [(name, int(version), symbol, 0, "") for name, version, symbol in PLAIN_ROW.findall(text)]
        found += [(n, int(v), s, int(own), suffix) for n, v, s, own, suffix in STREAM_ROW.findall(text)]
    return [row for row in found if row[0] != "name"]


def newest_driver(make_driver: Callable[[str], Driver]) -> Driver:
    return make_driver((INVENTORIES / "two-cards.ini").read_text().replace("cuda = 12.8", "cuda = 13.5"))


def test_every_name_is_found_by_link_and_by_version(make_driver: Callable[[str], Driver]) -> None:
    """Each row by dlsym and by cuGetProcAddress: from its version on, until the next version of the name."""
    table = rows()
    assert len(table) > 500
    assert len({(name, version) for name, version, *_ in table}) == len(table)
    found = newest_driver(make_driver).cuda(f"""
rows, wrong = {table!r}, []
versions = {{}}
for name, version, *_ in rows: versions.setdefault(name, set()).add(version)
for name, version, plain, own, suffix in rows:
    later = [v for v in versions[name] if v > version]
    asks = [(version, 0, plain), (min(later) - 1 if later else 99999, 1, plain)]
    if own: asks += [(own, 2, plain + suffix)]
    for asked, flags, expected in asks:
        if look_up(name, asked, flags) != (0, symbol(expected), 0): wrong.append([name, asked, flags])
    first = version == min(versions[name])
    if first and look_up(name, version - 1) != (500, None, 2): wrong.append([name, 0])
answer(wrong=wrong)""")
    assert found["wrong"] == []


def test_what_is_only_there_refuses_politely(make_driver: Callable[[str], Driver]) -> None:
    """Those whose attributes say that the card hasn't got them, or that belong to other programs."""
    found = newest_driver(make_driver).cuda("""
names = "cuLogicalEndpointCreate", "cuCheckpointProcessLock", "cuMemBatchDecompressAsync"
early = [getattr(cuda, name)(None, None) for name in names]
start()
answer(early=early, after=[getattr(cuda, name)(None, None) for name in names])""")
    assert found == {"early": [3] * 3, "after": [801] * 3}


@pytest.mark.parametrize("release", RELEASES)
def test_every_name_of_the_header_has_a_row(release: str) -> None:
    text = header("cudaTypedefs.h", release)
    needed = set(re.findall(r"\*PFN_(cu\w+?)_v(\d+)(_pts[zd]|_ptds)?\)", text))
    there = {(name, str(version), "") for name, version, *_ in rows()}
    there |= {(name, str(own), suffix) for name, _, _, own, suffix in rows() if own}
    assert len(needed) > 400
    assert needed - there == set()
