# SPDX-License-Identifier: Apache-2.0
"""Virtual memory and IPC through their whole life: what is held, what is charged, and that it is the same."""

from __future__ import annotations

import json

from tests.integration.interposer.bench import LARGE, MI, SMALL, Bench
from tests.integration.interposer.families import CUDA, LIMIT, OUT_OF_MEMORY, run


def test_virtual_memory_is_held_by_handles_and_by_mappings(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
code, handle = create(100 * MI)
out["made"] = used()
address = mapped(handle, 100 * MI)
must(cuda.cuMemRelease(handle))
out["mapped_only"] = used()
again = u64()
must(cuda.cuMemRetainAllocationHandle(ref(again), P(address.value + 4096)))
must(cuda.cuMemUnmap(address, S(100 * MI)))
out["retained_only"] = used()
out["refused"] = create(202 * MI)[0]
must(cuda.cuMemRelease(again))
out["nothing"] = used()
out["unknown"] = cuda.cuMemRelease(u64(12345))
codes, held = [], []
for _ in range(4):
    code, handle = create(100 * MI)
    codes.append(code)
    if code == 0: held.append(handle)
out["codes"] = codes
base = u64()
must(cuda.cuMemAddressReserve(ref(base), S(300 * MI), S(0), u64(0), u64(0)))
for at, handle in enumerate(held):
    must(cuda.cuMemMap(u64(base.value + at * 100 * MI), S(100 * MI), S(0), handle, u64(0)))
    must(cuda.cuMemRelease(handle))
out["three"] = used()
must(cuda.cuMemUnmap(base, S(300 * MI)))
out["end"] = used()
""",
    )
    assert found == {
        "made": 100,
        "mapped_only": 100,
        "retained_only": 100,
        "refused": OUT_OF_MEMORY,
        "nothing": 0,
        "unknown": 1,
        "codes": [0, 0, 0, OUT_OF_MEMORY],
        "three": 300,
        "end": 0,
    }
    assert bench.high_water() == LIMIT


def test_virtual_memory_goes_by_its_location(bench: Bench) -> None:
    """Not by the context that is current; the host's is nobody's."""
    bench.grant("small", uuid=SMALL, memory=LIMIT)
    bench.grant("large", uuid=LARGE, memory=4 * MI)
    found = run(
        bench,
        """
use(1); use(0)
out["codes"] = [create(4 * MI, device=1)[0], create(2 * MI, device=1)[0], create(512 * MI, place=2)[0]]
out["small"] = used()
must(cuda.cuCtxSetCurrent(contexts[0]))
out["large"] = used()
""",
    )
    assert found == {"codes": [0, OUT_OF_MEMORY, 0], "small": 0, "large": 4}
    assert [bench.high_water(0), bench.high_water(1)] == [0, 4 * MI]


def test_imports_are_the_exporters(bench: Bench) -> None:
    """Also where they outlive it: then nobody is charged, as the README says."""
    bench.grant(memory=LIMIT)
    found = run(
        bench,
        """
use(0)
code, handle = create(200 * MI)
file, imported = I(), u64()
must(cuda.cuMemExportToShareableHandle(ref(file), handle, 1, u64(0)))
must(cuda.cuMemImportFromShareableHandle(ref(imported), P(file.value), 1))
out["both"] = used()
address = mapped(imported, 200 * MI)
out["mapped"] = used()
must(cuda.cuMemUnmap(address, S(200 * MI)))
must(cuda.cuMemRelease(imported))
out["exporter"] = used()
must(cuda.cuMemImportFromShareableHandle(ref(imported), P(file.value), 1))
must(cuda.cuMemRelease(handle))
out["importer"] = used()
must(cuda.cuMemRelease(imported))
out["nobody"] = used()
""",
    )
    assert found == {"both": 200, "mapped": 200, "exporter": 200, "importer": 0, "nobody": 0}


IPC = """
import os, sys
ready, told = os.pipe(), os.pipe()
child = os.fork()
"""


def test_memory_opened_by_ipc_is_charged_once(bench: Bench) -> None:
    bench.grant(memory=LIMIT)
    script = CUDA.replace("must(cuda.cuInit(0))", IPC + "must(cuda.cuInit(0))")
    found = json.loads(
        bench.python(
            script
            + """
use(0)
class Token(ctypes.Structure): _fields_ = [("bytes", ctypes.c_char * 64)]
token = Token()
if child != 0:
    code, address = alloc(200 * MI)
    must(cuda.cuIpcGetMemHandle(ref(token), address))
    os.write(told[1], bytes(token))
    out["opened"] = int(os.read(ready[0], 16))
    out["both"] = used()
    os.write(told[1], b"x")
    out["child"] = os.waitpid(child, 0)[1]
    must(cuda.cuMemFree_v2(address))
    out["end"] = used()
    print(json.dumps(out))
else:
    ctypes.memmove(ref(token), os.read(told[0], 64), 64)
    address = u64()
    cuda.cuIpcOpenMemHandle_v2.argtypes = [P, Token, ctypes.c_uint]
    must(cuda.cuIpcOpenMemHandle_v2(ref(address), token, 1))
    os.write(ready[1], str(used()).encode())
    os.read(told[0], 1)
    must(cuda.cuIpcCloseMemHandle(address))
    os._exit(0)
"""
        )
    )
    assert found == {"opened": 200, "both": 200, "child": 0, "end": 0}
    assert bench.high_water() == 200 * MI
