# SPDX-License-Identifier: Apache-2.0
"""Tensor maps are checked as the manual says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.fakegpu.conftest import Driver, hopper

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
