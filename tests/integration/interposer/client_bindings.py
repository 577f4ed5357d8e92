# SPDX-License-Identifier: Apache-2.0
# mypy: ignore-errors
# What it imports is not in the environment that mypy looks into.
"""A program on NVIDIA's own Python binding of the driver API: by every family, until it is refused.

Run by the clients' Python (`make clients`); prints JSON.
"""

import json
import sys

from cuda.bindings import driver
from cuda.bindings.driver import CUmemAllocationProp, CUresult

BLOCK = 8 << 20
PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n ret;\n}\n\0"


def must(answer):
    code, *values = answer
    if code != CUresult.CUDA_SUCCESS:
        raise SystemExit(f"unexpected: {code!r}")
    return values[0] if len(values) == 1 else values


def virtual_memory(bytes_):
    properties = CUmemAllocationProp()
    properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = 0
    return driver.cuMemCreate(bytes_, properties, 0)


FAMILIES = {
    "plain": (driver.cuMemAlloc, driver.cuMemFree),
    "managed": (lambda bytes_: driver.cuMemAllocManaged(bytes_, 1), driver.cuMemFree),
    "async": (
        lambda bytes_: driver.cuMemAllocAsync(bytes_, 0),
        lambda block: driver.cuMemFreeAsync(block, 0),
    ),
    "virtual": (virtual_memory, driver.cuMemRelease),
}


def until_refused(family):
    """How many blocks there were, and the refusal's name; afterwards all are free again."""
    allocate, free = FAMILIES[family]
    held = []
    while True:
        code, block = allocate(BLOCK)
        if code != CUresult.CUDA_SUCCESS:
            break
        held.append(block)
    for block in held:
        must(free(block))
    must(driver.cuCtxSynchronize())
    return [len(held), code.name]


def launch():
    library = must(driver.cuLibraryLoadData(PTX, [], [], 0, [], [], 0))
    kernel = must(driver.cuLibraryGetKernel(library, b"nothing"))
    function = must(driver.cuKernelGetFunction(kernel))
    for one in (function, driver.CUfunction(int(kernel))):
        must(driver.cuLaunchKernel(one, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    must(driver.cuCtxSynchronize())
    must(driver.cuLibraryUnload(library))


def main():
    must(driver.cuInit(0))
    context = must(driver.cuDevicePrimaryCtxRetain(0))
    must(driver.cuCtxSetCurrent(context))
    launch()
    found = {"total": must(driver.cuDeviceTotalMem(0)), "memory": must(driver.cuMemGetInfo())}
    for family in FAMILIES:
        found[family] = until_refused(family)
    launch()
    found["again"] = must(driver.cuMemGetInfo())
    must(driver.cuDevicePrimaryCtxRelease(0))
    json.dump(found, sys.stdout)


main()
