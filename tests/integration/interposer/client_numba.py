# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# What it imports is not in the environment that mypy looks into.
"""A program as users of numba write them: compiles and launches a kernel, takes memory until it is refused.

Run by the clients' Python (`make clients`); prints JSON.
"""

import json
import sys
import warnings

import numpy
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

BLOCK = 32 << 20
OUT_OF_MEMORY = 2

warnings.simplefilter("ignore")  # that its grids are small, that its linker is the driver


@cuda.jit
def add(values, what):
    index = cuda.grid(1)
    if index < values.size:
        values[index] += what


def launched() -> list[float]:
    """What comes back from the card after a launch. The fake driver's kernels compute nothing."""
    values = cuda.to_device(numpy.arange(1000.0))
    add[10, 128](values, 0.0)
    cuda.synchronize()
    return values.copy_to_host()[:3].tolist()


def until_refused() -> tuple[int, int]:
    """How many blocks there were before the refusal, and its code."""
    held = []
    while True:
        try:
            held.append(cuda.device_array(BLOCK, dtype=numpy.uint8))
        except CudaAPIError as error:
            return len(held), int(error.code)


def main() -> None:
    found = {"first": launched(), "memory": list(cuda.current_context().get_memory_info())}
    found["blocks"], found["code"] = until_refused()
    cuda.current_context().memory_manager.deallocations.clear()
    found["again"] = list(cuda.current_context().get_memory_info())
    found["after"] = launched()
    stream = cuda.stream()
    with cuda.pinned(numpy.zeros(4)), stream.auto_synchronize():
        add[1, 32, stream](cuda.device_array(4), 1.0)
    json.dump(found, sys.stdout)


main()
