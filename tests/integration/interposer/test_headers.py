# SPDX-License-Identifier: Apache-2.0
"""No function of the CUDA driver that takes memory or time of the card goes by unnoticed, and none of NVML
that shows who has it.

The names are those that the fake driver exports, which are all of the newest CUDA 12 and 13 headers (its own
tests compare them), and those of the headers themselves, so that a newer one shows what is missing. Each is
hooked or stands below with the reason why it need not be; a new one that looks as if it might allocate,
launch or show has to be put in either place by hand.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from tests.integration.headers import RELEASES, header
from tests.integration.interposer.bench import FAKE, ROOT, Bench
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
    "cuStream(IsCapturing|GetCaptureInfo|UpdateCaptureDependencies)": "nothing runs",
    "cuThreadExchangeStreamCaptureMode": "nothing runs",
    "cuStreamAttachMemAsync": "whose managed memory it is",
    # not to be touched, see hooks_table.inc
    "cuGetExportTable": "the CUDA runtime checks by it that the driver is genuine",
    # other processes
    "cuCheckpoint.*": "for a process's own state, by a tool with rights over it; what it held stays charged",
    "cuDeviceSetGraphMemAttribute|cuDeviceGetGraphMemAttribute": "asks",
}
"""Names (whole, without _v2 and per-thread endings) that allocate and launch nothing that must be noticed."""


SHOWS = re.compile(
    "Memory|Process|Utili[sz]ation|Accounting|Sample|FieldValues|Pstates|Gpm|Encoder|FBC|ActiveVgpu"
)
"""What the name of a function of NVML that shows memory, processes or time of a card has in it, so far."""

UNSHOWN = {
    "nvmlDevice(Set|Clear|Reset)\\w+|nvmlGpmSetStreamingEnabled": "an administrator changes something",
    "nvmlDeviceGet(Memory(Affinity|BusWidth|ErrorCounter)|SupportedMemoryClocks)": "the card as it is",
    "nvmlDeviceGetUnrepairableMemoryFlag": "the card's health",
    "nvmlDeviceGetBAR1MemoryInfo": "addresses on the bus, no memory",
    "nvmlDeviceGetConfComputeProtectedMemoryUsage": "of confidential computing, where cards aren't shared",
    "nvmlDeviceGetMemoryLimits": "what an administrator has set for a control group that he names",
    "nvmlDeviceGet(Encoder|Decoder|Jpg|Ofa)(Utilization|Capacity|Stats|Sessions)": "of other engines",
    "nvmlDeviceGetFBC(Stats|Sessions)": "of displays",
    "nvmlDevice(Get|Freeze)NvLink\\w+": "of the card's links",
    "nvmlDeviceGetAccounting(BufferSize|Mode|Pids|Stats)": "for an administrator, who has to turn it on",
    "nvmlDevice(GetSamples|GetFieldValues|GetDynamicPstatesInfo|PerfMetricsGetSamples)": (
        "the card's clocks, power and history, for who looks after the whole of it"
    ),
    "nvmlGpm(Metrics|Sample|MigSample|Query)\\w+": "the same, by counters of the hardware",
    "nvmlSystemGetProcessName": "of a pid that the caller knows",
    "nvml\\w*Vgpu\\w*": "of virtual machines' cards",
}
"""Names (whole, without _v2) of functions whose answer is the card's own, whatever share of it one has."""


def plain(symbol: str) -> str:
    return re.sub(r"(_v\d+)?(_pt(?:sz|ds))?$", "", symbol)


def exported() -> set[str]:
    listing = output("nm", "-D", "--defined-only", FAKE / "libcuda.so.1")
    return {line.split()[-1] for line in listing.splitlines() if line.split()[-1].startswith("cu")}


def hooked() -> dict[str, tuple[str, int, int]]:
    """By symbol: the name and version that cuGetProcAddress knows it by, and whether per thread."""
    text = "".join(path.read_text() for path in TABLES)
    found = re.findall(r'^CUDA_HOOK\((\w+),\s*"(\w+)", (\d+), ([01]),', text, re.MULTILINE)
    return {symbol: (base, int(since), int(per_thread)) for symbol, base, since, per_thread in found}


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


ASKED = """
import ctypes, json, sys
P, u64 = ctypes.c_void_p, ctypes.c_uint64
cuda = ctypes.CDLL("libcuda.so.1")
def asked(function, base, version, flags, *more):
    answer = P()
    function(base.encode(), ctypes.byref(answer), version, u64(flags), *more)
    return answer.value
def file_of(place):
    for line in open("/proc/self/maps"):
        start, end = (int(at, 16) for at in line.split()[0].split("-"))
        if start <= place < end: return line.split()[-1]
def differs(symbol, base, since, per_thread):
    hook, flags = ctypes.cast(cuda[symbol], P).value, 2 * per_thread
    first = asked(cuda.cuGetProcAddress, base, since, flags)
    second = asked(cuda.cuGetProcAddress_v2, base, since, flags, None)
    before = asked(cuda.cuGetProcAddress_v2, base, since - 1, flags, None)
    return not (hook == first == second != before and file_of(hook).endswith(sys.argv[2]))
print(json.dumps([row for row in json.loads(sys.argv[1]) if differs(*row)]))
"""


@pytest.mark.parametrize(("shim", "file"), [(False, "/libtessera.so"), (True, "/shim/libcuda.so.1")])
def test_every_spelling_is_found_from_its_version_on(
    make_bench: Callable[..., Bench], shim: bool, file: str
) -> None:
    """By dlsym, and by both versions of cuGetProcAddress; one version earlier the answer is another. The fake
    driver has the versions from the headers."""
    bench = make_bench(shim=shim, preload=not shim, driver={"cuda": "13.5"})
    bench.grant()
    rows = [[symbol, *hook] for symbol, hook in hooked().items()]
    assert len(rows) > 150
    assert json.loads(bench.python(ASKED, json.dumps(rows), file)) == []


@pytest.mark.parametrize("release", RELEASES)
def test_the_newest_headers_have_nothing_unknown(release: str) -> None:
    text = header("cudaTypedefs.h", release)
    names = set(re.findall(r"\*PFN_(cu\w+?)_v\d+(?:_pt(?:sz|ds))?\)", text))
    assert len(names) > 400
    known = {base for base, _, _ in hooked().values()} | {plain(symbol) for symbol in hooked()}
    assert {name for name in names - known if SUSPECT.search(name) and reason(name) is None} == set()


def shown() -> set[str]:
    """What is hooked of NVML."""
    text = "".join(path.read_text() for path in TABLES)
    return set(re.findall(r"^NVML_HOOK\((\w+),", text, re.MULTILINE))


@pytest.mark.parametrize("release", RELEASES)
def test_what_nvml_shows_of_a_card_is_hooked_or_has_a_reason(release: str) -> None:
    declared = set(re.findall(r"DECLDIR\s+(nvml\w+)\s*\(", header("nvml.h", release)))
    assert len(declared) > 300
    missing = {
        name
        for name in declared - shown()
        if SHOWS.search(name) and not any(re.fullmatch(names, plain(name)) for names in UNSHOWN)
    }
    assert missing == set()


def test_every_version_of_what_nvml_shows_is_hooked() -> None:
    listing = output("nm", "-D", "--defined-only", FAKE / "libnvidia-ml.so.1")
    exported = {line.split()[-1] for line in listing.splitlines() if " nvml" in line}
    names = {plain(name) for name in shown()}
    assert {name for name in exported if plain(name) in names} == shown()
    used = [name for name in exported if SHOWS.search(name)]
    assert [names for names in UNSHOWN if not any(re.fullmatch(names, plain(name)) for name in used)] == []
