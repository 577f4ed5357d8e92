# SPDX-License-Identifier: Apache-2.0
"""Memory that comes from elsewhere, by a file or by a pool of another process: whoever made it is charged."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.interposer.bench import Bench
from tests.integration.interposer.families import CUDA, LIMIT

IMPORTS = (
    CUDA
    + """
import os
U = ctypes.c_uint
class Foreign(ctypes.Structure):
    _fields_ = [("type", U), ("gap", U), ("file", I), ("rest", U * 3), ("size", u64), ("flags", U),
                ("reserved", U * 16)]
class Part(ctypes.Structure):
    _fields_ = [("offset", u64), ("size", u64), ("flags", U), ("reserved", U * 16)]
class Token(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
def exported(handle):
    file = I()
    must(cuda.cuMemExportToShareableHandle(ref(file), handle, 1, u64(0)))
    return file.value
def external(file, bytes):
    memory, buffer = P(), u64()
    must(cuda.cuImportExternalMemory(ref(memory), ref(Foreign(1, 0, file, size=bytes))))
    must(cuda.cuExternalMemoryGetMappedBuffer(ref(buffer), memory, ref(Part(0, bytes))))
    return memory, buffer
def exporting_pool():
    made = P()
    must(cuda.cuMemPoolCreate(ref(made), ref(Pool(1, 1, Location(1, 0)))))
    return made
def imported_pool(made):
    file, other = I(), P()
    must(cuda.cuMemPoolExportToShareableHandle(ref(file), made, 1, u64(0)))
    must(cuda.cuMemPoolImportFromShareableHandle(ref(other), P(file.value), 1, u64(0)))
    return other
use(0)
first = used()
def step(name): out[name] = used() - first
"""
)

CASES = [
    pytest.param(
        """
code, handle = create(100 * MI)
memory, buffer = external(exported(handle), 100 * MI)
step("imported")
out["freed"] = [cuda.cuMemFree_v2(buffer), cuda.cuMemFree_v2(buffer)]
must(cuda.cuDestroyExternalMemory(memory))
step("destroyed")
must(cuda.cuMemRelease(handle))
step("released")
""",
        {"imported": 100, "freed": [0, 1], "destroyed": 100, "released": 0},
        id="external-memory-that-cuda-made",
    ),
    pytest.param(
        """
file = os.memfd_create("vulkan")
os.truncate(file, 400 * MI)
memory, buffer = external(file, 400 * MI)
step("imported")
code, block = alloc(200 * MI)
step("beside")
out["freed"] = [cuda.cuMemFree_v2(buffer), cuda.cuMemFreeAsync(buffer, P())]
step("after")
must(cuda.cuDestroyExternalMemory(memory))
step("destroyed")
""",
        {"imported": 0, "beside": 200, "freed": [0, 1], "after": 200, "destroyed": 200},
        id="external-memory-of-another-interface",
    ),
    pytest.param(
        """
made, token, twice = exporting_pool(), Token(), u64()
code, address = alloc_from(made, 32 * MI)
other = imported_pool(made)
must(cuda.cuMemPoolExportPointer(ref(token), address))
must(cuda.cuMemPoolImportPointer(ref(twice), other, ref(token)))
step("imported")
out["codes"] = [alloc_from(other, MI)[0], cuda.cuMemFreeAsync(twice, P())]
step("let-go")
must(cuda.cuMemFreeAsync(address, P()))
must(cuda.cuStreamSynchronize(P()))
step("freed")
must(cuda.cuMemPoolDestroy(other))
must(cuda.cuMemPoolDestroy(made))
out["room"] = alloc(300 * MI)[0]
""",
        {"imported": 32, "codes": [1, 0], "let-go": 32, "freed": 0, "room": 0},
        id="a-pools-pointer",
    ),
]


@pytest.mark.parametrize(("script", "expected"), CASES)
def test_what_is_charged_is_what_the_driver_holds(
    make_bench: Callable[..., Bench], script: str, expected: dict[str, Any]
) -> None:
    """In MiB. Bare and limited alike: the bare card's figure is the driver's own."""
    for name, preload in (("bare", False), ("limited", True)):
        bench = make_bench(name, preload=preload)
        bench.grant(memory=LIMIT)
        found = json.loads(bench.python(IMPORTS + script + "\nprint(json.dumps(out))"))
        assert found == expected, name
        assert bench.held() == 0
        assert bench.usage().memory_bytes == 0
