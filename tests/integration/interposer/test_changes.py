# SPDX-License-Identifier: Apache-2.0
"""Limits that change while programs run, in virtual time: when the library goes by the new ones.

Looked at each millisecond: the rate at which the grant's debt is repaid, which the library notes in the usage
file, and the launches. What is owed at the change is repaid at the new rate from then on, so the moment at
which the next launch is due is known to the nanosecond.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interposer import abi
from interposer.abi_files import constant, ffi, mapped
from tests.integration.interposer.bench import MI, Bench
from tests.integration.interposer.virtual import Node, closing

WITHIN = 50_000_000  # ns
STEP = 0.001
FREE = {"cores": 0}
DISABLED = {"cores": 10, "policy": abi.Policy.DISABLE}


@pytest.fixture(params=[False, True], ids=["preload", "shim"])
def node(request: pytest.FixtureRequest, tmp_path: Path, launches: Path) -> Iterator[Node]:
    with closing(Node(tmp_path, launches, shim=request.param)) as node:
        yield node


class Pace(NamedTuple):
    """Of a grant: percent, and the moment at which all device time taken so far is repaid."""

    rate: int
    ready_ns: int


def pace(node: Node) -> Pace:
    path = node.containers["a"].grants / "a" / "usage"
    with mapped(path, constant("TESSERA_USAGE_SIZE_0"), writable=False) as (address, _, _):
        usage = ffi.cast("struct tessera_usage *", address)
        return Pace(usage.time_rate, usage.time_ready_ns)


def launched(node: Node) -> int:
    return sum(node.launched()["a"])


def passed_until(node: Node, condition: Callable[[], bool], most_ns: int) -> int:
    """Nanoseconds, to the next step; fails where it takes longer than so many."""
    began = node.clock.now_ns()
    while not condition():
        node.pass_time(STEP)
        assert node.clock.now_ns() - began <= most_ns
    return node.clock.now_ns() - began


@pytest.mark.parametrize(
    ("before", "after", "kernel_ms", "processes"),
    [
        pytest.param(1, 80, 100, 1, id="one-waits-for-seconds"),
        pytest.param(1, 80, 100, 8, id="eight-wait-for-minutes"),
        pytest.param(80, 1, 10, 1, id="less"),
        pytest.param(10, 50, 0.05, 1, id="short-kernels"),
        pytest.param(50, 10, 0.05, 8, id="short-kernels-of-eight"),
        pytest.param(5, 95, 20, 4, id="four"),
    ],
)
def test_a_new_rate_is_in_force_within_50_ms(
    node: Node, before: int, after: int, kernel_ms: float, processes: int
) -> None:
    bench = node.container("a", before)
    node.burn("a", kernel_ms, processes)
    node.pass_time(3)
    assert pace(node).rate == before
    bench.grant("a", cores=after)
    passed_until(node, lambda: pace(node).rate == after, WITHIN)
    node.pass_time(2)
    assert node.busy(max(3, 80 * kernel_ms / after / 10)) == pytest.approx(after, abs=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({"cores": 1}, {"cores": 80}, id="cores"),
        pytest.param({"cores": 30}, {"cores": 8}, id="fewer-cores"),
        pytest.param({"cores": 1}, {"cores": 1, "effective_cores": 60, "lease_until_ns": 1 << 62}, id="lent"),
        pytest.param(
            {"cores": 20, "effective_cores": 90, "lease_until_ns": 1 << 62}, {"cores": 20}, id="taken-back"
        ),
    ],
)
def test_what_is_owed_is_repaid_at_the_new_rate_from_then_on(
    node: Node, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """When it launches tells how late the library has followed: until then the old rate repaid the debt."""
    bench = node.container("a", **before)
    node.burn("a", 100)
    node.pass_time(2)
    count = launched(node)
    passed_until(node, lambda: launched(node) > count, 11_000_000_000)
    node.pass_time(0.11)  # what was launched has ended; nothing runs any more
    rate, ready = pace(node)
    changed, count = node.clock.now_ns(), launched(node)
    bench.grant("a", **after)
    new = after.get("effective_cores", after["cores"])
    owed = ready - changed
    took = passed_until(node, lambda: launched(node) > count, 2_000_000_000)
    late = (took - owed * rate / new) / (1 - rate / new)
    assert -STEP * 1e9 <= late <= WITHIN


@pytest.mark.parametrize("free", [FREE, {"cores": 100}, DISABLED], ids=["no-cores", "all-cores", "disabled"])
def test_who_is_set_free_goes_on_within_50_ms(node: Node, free: dict[str, Any]) -> None:
    bench = node.container("a", 1)
    node.burn("a", 100)
    node.pass_time(3)
    count = launched(node)
    bench.grant("a", **free)
    passed_until(node, lambda: launched(node) > count, WITHIN)
    node.pass_time(0.2)
    assert node.busy(1) > 98


@pytest.mark.parametrize("free", [FREE, {"cores": 100}, DISABLED], ids=["no-cores", "all-cores", "disabled"])
@pytest.mark.parametrize("kernel_ms", [0.05, 5])
def test_who_was_free_is_held_back_within_50_ms(node: Node, kernel_ms: float, free: dict[str, Any]) -> None:
    """Since then he gets what was saved up (50 ms of his share) besides his share, and no more."""
    bench = node.container("a", **free)
    node.burn("a", kernel_ms)
    node.pass_time(1)
    bench.grant("a", cores=10)
    node.pass_time(WITHIN / 1e9)
    assert node.busy(2) <= 10 + 0.05 * 10 / 2 + kernel_ms / 2 / 10


def test_a_containers_cap_is_followed(tmp_path: Path, launches: Path) -> None:
    """A container that owes ten seconds by its cap, which then grows."""
    with closing(Node(tmp_path, launches)) as node:
        bench = node.container("a", 90, caps=(abi.Cap("trainer", 0, 1),))
        bench.container = "trainer"
        node.burn("a", 100)
        node.pass_time(3)
        count = launched(node)
        bench.grant("a", cores=90, caps=(abi.Cap("trainer", 0, 50),))
        passed_until(node, lambda: launched(node) > count, 100_000_000 * 100 // 50 + WITHIN)
        assert node.busy(4) == pytest.approx(50, abs=1)


ALLOCATING = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address, mebibytes = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(1 << 20)
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for line in sys.stdin:
    codes = [cuda.cuMemAlloc_v2(ctypes.byref(address), mebibytes) for _ in range(int(line))]
    print(codes.count(0), flush=True)
"""


@pytest.mark.parametrize("shim", [False, True], ids=["preload", "shim"])
def test_memory_is_by_the_new_limit_from_the_next_call_on(
    make_bench: Callable[..., Bench], shim: bool
) -> None:
    bench = make_bench(shim=shim)
    bench.grant(memory=10 * MI)
    process = bench.start(sys.executable, "-c", ALLOCATING)
    assert process.stdin is not None
    assert process.stdout is not None
    for limit, fits in ((10, 10), (15, 5), (12, 0), (100, 20)):
        bench.grant(memory=limit * MI)
        process.stdin.write("20\n")
        process.stdin.flush()
        assert int(process.stdout.readline()) == fits
