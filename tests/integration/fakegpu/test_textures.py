# SPDX-License-Identifier: Apache-2.0
"""Texture and surface objects, texture references: what they are made of is checked, and can be asked for."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import Driver

TEXTURES = """
P, S, U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
class Linear(ctypes.Structure): _fields_ = [("address", u64), ("format", U), ("channels", U), ("bytes", S)]
class Pitched(ctypes.Structure):
    _fields_ = [("address", u64), ("format", U), ("channels", U), ("width", S), ("height", S), ("pitch", S)]
class Of(ctypes.Union):
    _fields_ = [("array", P), ("linear", Linear), ("pitched", Pitched), ("reserved", ctypes.c_int * 32)]
class Resource(ctypes.Structure): _fields_ = [("type", U), ("of", Of), ("flags", U)]
class Texture(ctypes.Structure):
    _fields_ = [("modes", U * 3), ("filter", U), ("flags", U), ("rest", U * 19)]
class View(ctypes.Structure): _fields_ = [("format", U), ("sides", S * 3), ("rest", U * 20)]
class Descriptor(ctypes.Structure):
    _fields_ = [("width", S), ("height", S), ("depth", S), ("format", U), ("channels", U), ("flags", U)]
def array(flags=0):
    made = P()
    check(cuda.cuArray3DCreate_v2(ctypes.byref(made), ctypes.byref(Descriptor(64, 64, 0, 0x20, 1, flags))),
        "array")
    return made
def texture(resource, view=None):
    made, how = u64(), Texture((U * 3)(1, 2, 3), 1, 4)
    pointer = ctypes.byref(view) if view else None
    outs = ctypes.byref(made), ctypes.byref(resource), ctypes.byref(how)
    return cuda.cuTexObjectCreate(*outs, pointer), made
def surface(resource):
    made = u64()
    return cuda.cuSurfObjectCreate(ctypes.byref(made), ctypes.byref(resource)), made
"""


def test_objects_are_made_of_what_is_there(driver: Driver) -> None:
    code = """
start()
before, (error, memory) = free_total()[0], allocate(1 << 20)
plain, stored = array(), array(flags=2)
after = free_total()[0]
resources = {
    "array": Resource(0, Of(array=plain)),
    "linear": Resource(2, Of(linear=Linear(memory.value, 0x20, 1, 1 << 20))),
    "too long": Resource(2, Of(linear=Linear(memory.value, 0x20, 1, (1 << 20) + 4))),
    "pitched": Resource(3, Of(pitched=Pitched(memory.value, 0x20, 1, 64, 1024, 1024))),
    "too high": Resource(3, Of(pitched=Pitched(memory.value, 0x20, 1, 64, 1025, 1024))),
    "no array": Resource(0, Of(array=None)),
    "no type": Resource(4, Of(array=plain)),
}
textures = {name: texture(resource)[0] for name, resource in resources.items()}
surfaces = {"plain": surface(resources["array"])[0], "stored": surface(Resource(0, Of(array=stored)))[0],
            "linear": surface(resources["linear"])[0]}
answer(textures=textures, surfaces=surfaces, taken=after - free_total()[0])
"""
    assert driver.cuda(TEXTURES + code) == {
        "textures": {
            "array": 0,
            "linear": 0,
            "too long": 1,
            "pitched": 0,
            "too high": 1,
            "no array": 400,
            "no type": 1,
        },
        "surfaces": {"plain": 1, "stored": 0, "linear": 1},
        "taken": 0,
    }


def test_objects_tell_what_they_are_made_of(driver: Driver) -> None:
    code = """
start()
cells = array()
error, made = texture(Resource(0, Of(array=cells)), View(5, (S * 3)(64, 64, 0)))
check(error, "texture")
error, bare = texture(Resource(0, Of(array=cells)))
got, how, view, r = Resource(), Texture(), View(), ctypes.byref
errors = [cuda.cuTexObjectGetResourceDesc(r(got), made), cuda.cuTexObjectGetTextureDesc(r(how), made),
          cuda.cuTexObjectGetResourceViewDesc(r(view), made)]
wrong = [cuda.cuTexObjectGetResourceViewDesc(r(view), bare), cuda.cuSurfObjectDestroy(made),
         cuda.cuTexObjectGetResourceDesc(r(got), u64(8)), cuda.cuTexObjectDestroy(u64(0))]
destroyed = [cuda.cuTexObjectDestroy(made), cuda.cuTexObjectDestroy(made), cuda.cuTexObjectDestroy(bare)]
answer(errors=errors, wrong=wrong, destroyed=destroyed, own=got.of.array == cells.value,
    modes=list(how.modes), flags=how.flags,
       format=view.format)
"""
    assert driver.cuda(TEXTURES + code) == {
        "errors": [0, 0, 0],
        "wrong": [1, 1, 1, 1],
        "destroyed": [0, 1, 0],
        "own": True,
        "modes": [1, 2, 3],
        "flags": 4,
        "format": 5,
    }


def test_references_keep_what_is_set(driver: Driver) -> None:
    code = """
start()
reference, r = P(), ctypes.byref
check(cuda.cuTexRefCreate(r(reference)), "create")
cells, (error, memory) = array(), allocate(4096)
found, format, channels, address, mode, bias = P(), U(), ctypes.c_int(), u64(), U(), ctypes.c_float()
unbound = cuda.cuTexRefGetArray(r(found), reference)
errors = [cuda.cuTexRefSetArray(reference, cells, 1), cuda.cuTexRefGetArray(r(found), reference),
          cuda.cuTexRefGetFormat(r(format), r(channels), reference),
          cuda.cuTexRefSetAddress_v2(None, reference, memory, S(4096)),
          cuda.cuTexRefGetAddress_v2(r(address), reference),
          cuda.cuTexRefSetAddressMode(reference, 1, 3), cuda.cuTexRefGetAddressMode(r(mode), reference, 1),
          cuda.cuTexRefSetMipmapLevelBias(reference, ctypes.c_float(0.5)),
          cuda.cuTexRefGetMipmapLevelBias(r(bias), reference)]
wrong = [cuda.cuTexRefSetAddress_v2(None, reference, memory, S(4097)), cuda.cuTexRefGetArray(r(found),
    reference),
         cuda.cuTexRefSetFilterMode(reference, 2), cuda.cuTexRefSetAddressMode(reference, 3, 0)]
module = P()
check(cuda.cuModuleLoadData(r(module), PTX), "load")
answer(unbound=unbound, errors=errors, wrong=wrong, own=found.value == cells.value, format=format.value,
    channels=channels.value,
       address=address.value == memory.value, mode=mode.value, bias=bias.value,
       of_module=cuda.cuModuleGetTexRef(r(found), module, b"pictures"),
       destroyed=[cuda.cuTexRefDestroy(reference), cuda.cuTexRefDestroy(reference)])
"""
    assert driver.cuda(TEXTURES + code) == {
        "unbound": 1,
        "errors": [0] * 9,
        "wrong": [1] * 4,
        "own": True,
        "format": 0x20,
        "channels": 1,
        "address": True,
        "mode": 3,
        "bias": 0.5,
        "of_module": 500,
        "destroyed": [0, 1],
    }
