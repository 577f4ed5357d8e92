# SPDX-License-Identifier: Apache-2.0
"""Tensor maps, core-dump settings, logs, and what atomic operations can do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.fakegpu.conftest import INVENTORIES, Driver

TILED = """
class Map(ctypes.Structure):
    _fields_ = [("words", u64 * 16)]
u32 = ctypes.c_uint
def tiled(address, kind=7, sides=(256, 64), strides=(1024,), box=(32, 8), steps=(1, 1), interleave=0,
    swizzle=0, fill=0, misplaced=0):
    room = ctypes.create_string_buffer(256)
    found = Map.from_buffer(room, -ctypes.addressof(room) % 64 + misplaced)
    rank = len(sides)
    error = cuda.cuTensorMapEncodeTiled(ctypes.byref(found), kind, rank, ctypes.c_void_p(address),
        (u64 * rank)(*sides),
        (u64 * max(rank - 1, 1))(*strides), (u32 * rank)(*box), (u32 * rank)(*steps), interleave, swizzle,
        0, fill)
    return error, list(found.words)
"""


def hopper(make_driver: Callable[[str], Driver], cuda: str = "12.8") -> Driver:
    """Cards that have tensor maps, joined by NVLink, under a driver of that version."""
    return make_driver((INVENTORIES / "eight-cards.ini").read_text().replace("cuda = 12.8", f"cuda = {cuda}"))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param("address=memory.value + 8", id="address"),
        pytest.param("address=0", id="no address"),
        pytest.param("kind=16", id="type"),
        pytest.param("sides=(0, 64)", id="side"),
        pytest.param("strides=(1000,)", id="stride"),
        pytest.param("box=(257, 8)", id="box"),
        pytest.param("box=(3, 8)", id="inner side"),
        pytest.param("steps=(1, 9)", id="step"),
        pytest.param("interleave=1", id="rank of interleaved"),
        pytest.param("swizzle=1", id="inner side of swizzled"),
        pytest.param("kind=0, fill=1", id="fill of integers"),
        pytest.param("misplaced=16", id="where the map lies"),
    ],
)
def test_tensor_maps_follow_the_manual(make_driver: Callable[[str], Driver], wrong: str) -> None:
    code = f"""
start()
error, memory = allocate(1 << 20)
good, words = tiled(memory.value)
bad = tiled(**(dict(address=memory.value) | dict({wrong})))[0]
answer(good=good, own=words[0] == memory.value, bad=bad)
"""
    assert hopper(make_driver).cuda(TILED + code) == {"good": 0, "own": True, "bad": 1}


def test_tensor_maps_need_a_card_that_has_them(driver: Driver) -> None:
    code = "start()\nerror, memory = allocate(1 << 20)\nanswer(error=tiled(memory.value)[0])"
    assert driver.cuda(TILED + code) == {"error": 801}


def test_core_dumps_have_settings(driver: Driver) -> None:
    code = """
S = ctypes.c_size_t
cuda.cuInit(0)
def get(attribute, call="cuCoredumpGetAttributeGlobal"):
    value, size = ctypes.create_string_buffer(1024), S(1024)
    return getattr(cuda, call)(attribute, value, ctypes.byref(size)), value.raw[:size.value].decode()
def put(attribute, value, call="cuCoredumpSetAttributeGlobal"):
    return getattr(cuda, call)(attribute, value, ctypes.byref(S(len(value))))
before = [get(attribute) for attribute in (1, 2, 5)]
no_context = get(1, "cuCoredumpGetAttribute")[0]
start()
errors = [put(1, b"\\1"), put(1, b"\\1\\0"), put(5, b"dump.%p\\0"), put(8, b"1"), put(5, b"x",
    "cuCoredumpSetAttribute")]
answer(before=before, no_context=no_context, errors=errors, after=[get(1), get(5, "cuCoredumpGetAttribute")])
"""
    assert driver.cuda(code) == {
        "before": [[0, "\0"], [0, "\1"], [0, "core_%t_%h_%p\0"]],
        "no_context": 201,
        "errors": [0, 1, 0, 1, 800],
        "after": [[0, "\1"], [0, "dump.%p\0"]],
    }


def test_nothing_is_logged(driver: Driver, tmp_path: Path) -> None:
    path = tmp_path / "log"
    code = f"""
start()
place, buffer, size = ctypes.c_uint(9), ctypes.create_string_buffer(b"old", 8), ctypes.c_size_t(8)
errors = [cuda.cuLogsCurrent(ctypes.byref(place), 0), cuda.cuLogsDumpToFile(None, {str(path).encode()!r}, 0),
          cuda.cuLogsDumpToMemory(None, buffer, ctypes.byref(size), 0), cuda.cuLogsDumpToFile(None,
          b"/none/log", 0)]
answer(errors=errors, place=place.value, text=buffer.value.decode(), size=size.value)
"""
    assert driver.cuda(code) == {"errors": [0, 0, 0, 304], "place": 0, "text": "", "size": 0}
    assert path.read_bytes() == b""


def test_atomic_operations_reach_over_nvlink(make_driver: Callable[[str], Driver]) -> None:
    code = """
start()
found, wish = (ctypes.c_uint * 2)(9, 9), (ctypes.c_uint * 2)(0, 9)
host = cuda.cuDeviceGetHostAtomicCapabilities(found, wish, 2, 0), list(found)
peer = cuda.cuDeviceGetP2PAtomicCapabilities(found, wish, 2, 0, 1), list(found)
unknown = cuda.cuDeviceGetHostAtomicCapabilities(found, (ctypes.c_uint * 1)(13), 1, 0)
newest = [cuda.cuDeviceGetAttribute(ctypes.byref(ctypes.c_int()), number, 0) for number in (143, 148, 150)]
answer(host=host, peer=peer, unknown=unknown, newest=newest)
"""
    expected = {"host": [0, [0, 0]], "peer": [0, [63, 63]], "unknown": 1}
    for version, newest in (("12.8", [0, 1, 1]), ("13.5", [0, 0, 1])):
        driver = hopper(make_driver, cuda=version)
        assert driver.cuda(code) == expected | {"newest": newest}
