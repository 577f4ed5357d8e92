# SPDX-License-Identifier: Apache-2.0
"""A program that makes each call of a list once: launches, copies within the card, fills.

    every_launch.py [[symbol, parameters], …]

Parameters are as in the hooks' table; what stands for one goes by its name and type. Says when it is ready,
then of each call, as JSON, the symbol, the code, and what has changed in the target's memory; each time it
waits for a line to go on.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

BYTES, PITCH, WIDTH, HEIGHT = 4096, 256, 16, 4
IMAGE = b".version 8.0\n.target sm_52\n.address_size 64\n.visible .entry spin_ns(.param .u64 n)\n{ ret; }\n"
ON_DEVICE, POINTER = 2, 1

cuda = ctypes.CDLL("libcuda.so.1")


def must(code: int) -> None:
    assert code == 0, code


def made(symbol: str, *arguments: Any, kind: Any = c_void_p) -> Any:
    """What a call has put where its first argument points."""
    found = kind()
    must(cuda[symbol](byref(found), *arguments))
    return found


def box(number: Any, address: Any, dimensions: int) -> ctypes.Structure:
    """CUDA_MEMCPY2D or 3D, with sizes and addresses of the first version or of the second."""

    def end(name: str) -> Iterator[tuple[str, Any]]:
        for part in ("x", "y", "z", "level")[: 2 if dimensions == 2 else 4]:
            yield f"{name}_{part}", number
        yield from ((f"{name}_type", c_int), (f"{name}_host", c_void_p), (name, address))
        yield f"{name}_array", c_void_p
        if dimensions == 3:
            yield f"{name}_reserved", c_void_p
        yield f"{name}_pitch", number
        if dimensions == 3:
            yield f"{name}_height", number

    sizes = [(name, number) for name in ("width", "height", "depth")[:dimensions]]

    class Box(ctypes.Structure):
        _fields_ = [*end("source"), *end("target"), *sizes]

    values = {
        "source_type": ON_DEVICE,
        "target_type": ON_DEVICE,
        "source": source.value,
        "target": target.value,
    }
    values |= {"source_pitch": PITCH, "target_pitch": PITCH, "width": WIDTH, "height": HEIGHT}
    if dimensions == 3:
        values |= {"source_height": HEIGHT, "target_height": HEIGHT, "depth": 2}
    return Box(**values)


class End(ctypes.Structure):
    _fields_ = [("type", c_int), ("address", c_uint64), ("rest", c_size_t * 3)]


class Batched(ctypes.Structure):
    _fields_ = [
        ("source", End),
        ("target", End),
        ("sizes", c_size_t * 3),
        ("order", c_int),
        ("flags", c_uint),
    ]


class Order(ctypes.Structure):
    _fields_ = [("order", c_int), ("rest", c_uint * 5)]


class Shape(ctypes.Structure):
    _fields_ = [("grid", c_uint * 3), ("block", c_uint * 3), ("shared", c_uint), ("stream", c_void_p)]


class Config(ctypes.Structure):
    _fields_ = [("shape", Shape), ("attributes", c_void_p), ("count", c_uint)]


class OneOfMany(ctypes.Structure):
    _fields_ = [("function", c_void_p), ("shape", Shape), ("parameters", c_void_p)]


must(cuda.cuInit(0))
must(cuda.cuCtxSetCurrent(made("cuDevicePrimaryCtxRetain", 0)))
source, target = (made("cuMemAlloc", c_uint(BYTES), kind=c_uint) for _ in range(2))  # below 4 GiB


class Flat(ctypes.Structure):
    _fields_ = [("width", c_size_t), ("height", c_size_t), ("format", c_int), ("channels", c_uint)]


arrays = {name: made("cuArrayCreate_v2", byref(Flat(BYTES, 0, 1, 1))) for name in ("source", "target")}
pattern = bytes(index * 7 % 251 for index in range(BYTES))
stream = made("cuStreamCreate", 1)
module = made("cuModuleLoadData", IMAGE)
function = made("cuModuleGetFunction", module, b"spin_ns")
nanoseconds = c_uint64(2_000_000)  # long enough for each to be paid by itself
parameters = (c_void_p * 1)(ctypes.cast(byref(nanoseconds), c_void_p))
shape = Shape((1, 1, 1), (32, 1, 1), 0, stream)


def graph() -> Any:
    must(cuda.cuStreamBeginCapture_v2(stream, 2))
    must(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, parameters, None))
    return made("cuGraphInstantiateWithFlags", made_by_capture(), c_uint64(0))


def made_by_capture() -> Any:
    found = c_void_p()
    must(cuda.cuStreamEndCapture(stream, byref(found)))
    return found


executable = graph()
must(cuda.cuFuncSetBlockShape(function, 32, 1, 1))
must(cuda.cuParamSetv(function, 0, byref(nanoseconds), 8))
must(cuda.cuParamSetSize(function, 8))

SIZES = {"unsigned int": c_uint, "size_t": c_size_t, "unsigned long long": ctypes.c_ulonglong, "int": c_int}
VALUES: dict[str, Any] = {
    "value": 0x41,
    "pitch": PITCH,
    "width": WIDTH,
    "height": HEIGHT,
    "bytes": 1024,
    "count": 1,
    "target_offset": 32,
    "source_offset": 64,
    "offset": 96,
    "attribute_count": 1,
    "flags": 0,
    **{f"grid_{axis}": 1 for axis in "xyz"},
    "block_x": 32,
    "block_y": 1,
    "block_z": 1,
    "shared_bytes": 0,
    "stream": stream,
    "function": function,
    "graph": executable,
    "extra": None,
    "parameters": parameters,
    "targets": (c_uint64 * 1)(target.value),
    "sources": (c_uint64 * 1)(source.value),
    "sizes": (c_size_t * 1)(1024),
    "attributes": byref(Order(1)),
    "places": (c_size_t * 1)(0),
    "failed": byref(c_size_t()),
    "config": byref(Config(shape)),
    "launches": byref(OneOfMany(function, shape, ctypes.cast(parameters, c_void_p))),
}
end = (c_size_t * 3)(PITCH, HEIGHT, 0)
BOXES = {
    "cuda_copy2d_v1": box(c_uint, c_uint, 2),
    "cuda_copy2d": box(c_size_t, c_uint64, 2),
    "cuda_copy3d_v1": box(c_uint, c_uint, 3),
    "cuda_copy3d": box(c_size_t, c_uint64, 3),
    "cuda_copy3d_batched": Batched(
        End(POINTER, source.value, end),
        End(POINTER, target.value, end),
        (c_size_t * 3)(WIDTH, HEIGHT, 2),
        1,
        0,
    ),
}


def argument(declared: str) -> Any:
    """What stands for `type name`."""
    kind, name = re.fullmatch(r"(?:const )?(.*?)(\w+)", declared.strip(), re.DOTALL).groups()  # type: ignore[union-attr]
    kind = kind.replace("struct ", "").strip()
    if kind.rstrip(" *") in BOXES:
        return byref(BOXES[kind.rstrip(" *")])
    if kind == "CUarray":
        return arrays[name]
    if kind in ("CUdeviceptr", "CUdeviceptr_v1"):
        return (c_uint64 if kind == "CUdeviceptr" else c_uint)(
            {"source": source, "target": target}[name].value
        )
    if kind in SIZES:
        return SIZES[kind](VALUES[name])
    return VALUES[name]


def reset() -> None:
    must(cuda.cuMemcpyHtoD_v2(c_uint64(source.value), pattern, c_size_t(BYTES)))
    must(cuda.cuMemcpyHtoD_v2(c_uint64(target.value), bytes(BYTES), c_size_t(BYTES)))
    must(cuda.cuMemcpyHtoA_v2(arrays["source"], c_size_t(0), pattern, c_size_t(BYTES)))
    must(cuda.cuMemcpyHtoA_v2(arrays["target"], c_size_t(0), bytes(BYTES), c_size_t(BYTES)))


def changed() -> str:
    """A digest of what is in the target; empty: nothing but zeros."""
    memory, array = ctypes.create_string_buffer(BYTES), ctypes.create_string_buffer(BYTES)
    must(cuda.cuMemcpyDtoH_v2(memory, c_uint64(target.value), c_size_t(BYTES)))
    must(cuda.cuMemcpyAtoH_v2(array, arrays["target"], c_size_t(0), c_size_t(BYTES)))
    both = memory.raw + array.raw
    return hashlib.sha256(both).hexdigest() if any(both) else ""


def called(symbol: str, declared: str) -> list[Any]:
    arguments = [argument(each) for each in re.sub(r"\s+", " ", declared).split(",")]
    reset()
    code = cuda[symbol](*arguments)
    must(cuda.cuCtxSynchronize())
    return [code, changed()]


def tell(*what: Any) -> None:
    print(json.dumps(what), flush=True)
    sys.stdin.readline()


tell("ready")
for row in json.loads(sys.argv[1]):
    tell(row[0], *called(*row))
