# SPDX-License-Identifier: Apache-2.0
"""No function of the CUDA driver that takes memory or time of the card goes by unnoticed.

The names are those that the fake driver exports, which are all of the newest CUDA 12 and 13 headers (its own
tests compare them), and those of the headers themselves, so that a newer one shows what is missing. Each is
hooked or stands below with the reason why it need not be; a new one that looks as if it might allocate or
launch has to be put in either place by hand.
"""

from __future__ import annotations

import re

import pytest

from tests.integration.headers import RELEASES, header
from tests.integration.interposer.bench import FAKE, ROOT
from tests.integration.interposer.test_reach import output

TABLES = sorted((ROOT / "interposer" / "src").glob("hooks_table*.inc"))
SUSPECT = re.compile(
    "Alloc|Create|Load|Import|Open|Map|Launch|Instantiate|Upload|Retain|Attach|Capture|AddNode|Register|Bind"
    "|Reserve|Decompress|Init|Restore|SetLimit|MemPool|Export|Link(Add|Complete)|Prefetch|Stream.*Value|MemOp"
    "|Memcpy|Memset"
)
"""What the name of a function that takes memory or device time has in it, so far."""

UNHOOKED = {
    # memory
    "cuMem(AllocHost|HostAlloc|HostRegister|HostUnregister)": "the host's memory",
    "cuMemHostGetDevicePointer": "another address of the host's memory",
    "cuMemAddress(Reserve|Free)": "addresses without memory",
    "cuMemGetAllocation.*|cuMemSetAccess|cuMemGetAccess": "asks, or changes who may touch what is charged",
    "cuMem(Prefetch|DiscardAndPrefetch).*": "moves managed memory, which is charged where it was allocated",
    "cuMem(Import|Export).*Handle": "the exporter is charged",
    "cuMemPool(Import|Export).*": "the exporter is charged; nothing can be allocated from an imported pool",
    "cuMemPool(Get|Set)(Attribute|Access)": "what a pool keeps is charged by what it has reserved",
    "cuDeviceGet(Default)?MemPool": "asks",
    "cuIpcOpen.*|cuIpcGet.*": "the exporter is charged",
    "cuImportExternal.*|cuExternalMemoryGetMapped.*": "the exporter is charged",
    "cuGraphics.*": "memory of OpenGL, Vulkan and the like, mapped; CUDA allocates none",
    "cuMulticast(AddDevice|GetGranularity)": "takes no memory",
    "cuLogicalEndpoint.*": "names for memory that was charged when its handle was made",
    "cu(Surf|Tex)(Object|Ref)Create|cuTensorMap.*": "descriptors of memory that is charged",
    # host-side objects
    "cu(GreenCtx)?StreamCreate.*|cuEventCreate": "objects of the host",
    "cuUserObject.*|cuGraph(Create|RetainUserObject)": "objects of the host",
    "cuGraphConditionalHandleCreate": "a number",
    "cuLink.*": "links on the host; what comes of it is charged when it is loaded",
    "cuModuleGetLoadingMode|cuFuncIsLoaded|cuGraphMemAllocNodeGetParams": "asks",
    "cuGraphicsMapResources": "memory of OpenGL, Vulkan and the like, mapped",
    "cuPointer.*|cuOccupancy.*": "asks",
    "cuProfilerInitialize": "of the host",
    "cu(Device|Logs|Coredump).*[rR]egister.*": "a callback",
    # time
    "cuLaunchHostFunc": "runs on the host",
    "cuStream(Wait|Write)Value(32|64)": "takes none of the processors",
    "cuStreamBatchMemOp|cuGraph.*BatchMemOp.*": "takes none of the processors",
    "cuMemBatchDecompressAsync": "an engine of its own",
    "cuMemcpy(HtoD|DtoH|HtoA|AtoH)(Async)?": "done by the copy engines",
    "cuMemcpy(3D)?Peer(Async)?": "between cards, done by the copy engines",
    "cuGraph(Exec)?(Add)?Mem(cpy|set)Node.*": "part of a graph, which is timed as a whole",
    "cuStream(IsCapturing|EndCapture.*|GetCaptureInfo|UpdateCaptureDependencies)": "nothing runs",
    "cuThreadExchangeStreamCaptureMode": "nothing runs",
    "cuStreamAttachMemAsync": "whose managed memory it is",
    # not to be touched, see hooks_table.inc
    "cuGetExportTable": "the CUDA runtime checks by it that the driver is genuine",
    # other processes
    "cuCheckpoint.*": "for a process's own state, by a tool with rights over it; what it held stays charged",
    "cuDeviceSetGraphMemAttribute|cuDeviceGetGraphMemAttribute": "asks",
}
"""Names (whole, without _v2 and per-thread endings) that allocate and launch nothing that must be noticed."""


def plain(symbol: str) -> str:
    return re.sub(r"(_v\d+)?(_pt(?:sz|ds))?$", "", symbol)


def exported() -> set[str]:
    listing = output("nm", "-D", "--defined-only", FAKE / "libcuda.so.1")
    return {line.split()[-1] for line in listing.splitlines() if line.split()[-1].startswith("cu")}


def hooked() -> dict[str, tuple[str, int]]:
    """By symbol: the name and version that cuGetProcAddress knows it by."""
    text = "".join(path.read_text() for path in TABLES)
    found = re.findall(r'^CUDA_HOOK\((\w+),\s*"(\w+)", (\d+),', text, re.MULTILINE)
    return {symbol: (base, int(since)) for symbol, base, since in found}


def reason(symbol: str) -> str | None:
    return next((why for names, why in UNHOOKED.items() if re.fullmatch(names, plain(symbol))), None)


def test_what_may_allocate_or_launch_is_hooked_or_has_a_reason() -> None:
    missing = {
        symbol for symbol in exported() - hooked().keys() if SUSPECT.search(symbol) and reason(symbol) is None
    }
    assert missing == set()


def test_every_spelling_of_a_hooked_function_is_hooked() -> None:
    """A version or a per-thread variant that is left out is a way around."""
    names = {plain(symbol) for symbol in hooked()}
    assert {symbol for symbol in exported() if plain(symbol) in names} - hooked().keys() == set()


def test_hooks_exist_and_need_no_reason() -> None:
    assert hooked().keys() - exported() == set()
    assert {symbol for symbol in hooked() if reason(symbol)} == set()
    unused = [names for names in UNHOOKED if not any(re.fullmatch(names, plain(name)) for name in exported())]
    assert unused == []


def test_versions_are_those_of_the_driver() -> None:
    """The fake driver's table has them from the headers."""
    text = "".join(path.read_text() for path in sorted((FAKE.parents[1] / "src").glob("cuda_table*.h")))
    rows = {
        (symbol, name): int(since)
        for name, since, symbol in re.findall(r"\b(?:PLAIN|STREAM)\((\w+), (\d+), (\w+)", text)
    }
    wrong = {
        symbol: since
        for symbol, (base, since) in hooked().items()
        if not symbol.endswith(("_ptsz", "_ptds")) and rows.get((symbol, base)) != since
    }
    assert wrong == {}


@pytest.mark.parametrize("release", RELEASES)
def test_the_newest_headers_have_nothing_unknown(release: str) -> None:
    text = header("cudaTypedefs.h", release)
    names = set(re.findall(r"\*PFN_(cu\w+?)_v\d+(?:_pt(?:sz|ds))?\)", text))
    assert len(names) > 400
    known = {base for base, _ in hooked().values()} | {plain(symbol) for symbol in hooked()}
    assert {name for name in names - known if SUSPECT.search(name) and reason(name) is None} == set()
