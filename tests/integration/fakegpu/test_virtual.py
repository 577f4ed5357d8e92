# SPDX-License-Identifier: Apache-2.0
"""Virtual memory management: handles are charged, mapped, shared; addresses behave like others."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import Driver

MIB = 1 << 20

VIRTUAL = """
class Location(ctypes.Structure): _fields_ = [("type", ctypes.c_uint), ("id", ctypes.c_int)]
class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_uint), ("handles", ctypes.c_uint), ("location", Location),
                ("windows", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]
class Access(ctypes.Structure): _fields_ = [("location", Location), ("flags", ctypes.c_uint)]
UNIT = 2 << 20
def properties(device=0, handles=0, kind=1, where=1):
    return Properties(kind, handles, Location(where, device))
def create(size, *more, flags=0):
    handle = u64()
    p = properties(*more)
    return cuda.cuMemCreate(ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(p), u64(flags)), handle
def reserve(size, alignment=0, wish=0):
    address = u64()
    sizes = ctypes.c_size_t(size), ctypes.c_size_t(alignment)
    return cuda.cuMemAddressReserve(ctypes.byref(address), *sizes, u64(wish), u64(0)), address.value
def map_(address, size, handle, offset=0):
    return cuda.cuMemMap(u64(address), ctypes.c_size_t(size), ctypes.c_size_t(offset), handle, u64(0))
def access(address, size, flags=3, device=0):
    a = Access(Location(1, device), flags)
    return cuda.cuMemSetAccess(u64(address), ctypes.c_size_t(size), ctypes.byref(a), ctypes.c_size_t(1))
def unmap(address, size): return cuda.cuMemUnmap(u64(address), ctypes.c_size_t(size))
def free_address(address, size): return cuda.cuMemAddressFree(u64(address), ctypes.c_size_t(size))
def release(handle): return cuda.cuMemRelease(handle)
def used(): free, total = free_total(); return total - free
def write(address, data): return cuda.cuMemcpyHtoD_v2(u64(address), data, ctypes.c_size_t(len(data)))
def read(address, size):
    out = ctypes.create_string_buffer(size)
    check(cuda.cuMemcpyDtoH_v2(out, u64(address), ctypes.c_size_t(size)), "read")
    return out.raw.decode()
"""


def virtual(driver: Driver, code: str) -> dict[str, object]:
    found: dict[str, object] = driver.cuda(VIRTUAL + code)
    return found


def test_memory_is_charged_from_creation_until_neither_handle_nor_mapping_is_left(driver: Driver) -> None:
    found = virtual(
        driver,
        """
start()
error, handle = create(10 * UNIT); check(error)
sums = [used()]
_, base = reserve(16 * UNIT)
check(map_(base + 2 * UNIT, 10 * UNIT, handle)); check(release(handle))
sums.append(used())
check(unmap(base + 2 * UNIT, 10 * UNIT))
sums.append(used())
answer(sums=[s >> 20 for s in sums], again=release(handle), never=release(u64(12345)),
       free=[free_address(base, UNIT), free_address(base, 16 * UNIT), free_address(base, 16 * UNIT)])""",
    )
    assert found == {"sums": [20, 20, 0], "again": 1, "never": 1, "free": [1, 0, 1]}


def test_it_is_the_card_of_the_properties_that_pays(driver: Driver) -> None:
    found = virtual(
        driver,
        """
start(0)
check(create(10 * UNIT, 1)[0])
mine = used()
context = ctypes.c_void_p()
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1)); check(cuda.cuCtxSetCurrent(context))
host = create(10 * UNIT, 0, 0, 1, 2)[0]
answer(mine=mine, other=used() >> 20, host=host, missing=create(UNIT, 7)[0])""",
    )
    assert found == {"mine": 0, "other": 20, "host": 0, "missing": 101}


def test_what_does_not_fit_is_out_of_memory_and_leaves_nothing(driver: Driver) -> None:
    found = virtual(
        driver,
        """
start()
check(create(24 << 30 >> 1)[0])
errors = [create((24 << 30 >> 1) + UNIT)[0], create(1 << 40)[0]]
answer(errors=errors, used=used() >> 20, rest=create(24 << 30 >> 1)[0])""",
    )
    assert found == {"errors": [2, 2], "used": 12288, "rest": 0}


def test_bad_sizes_and_places_are_refused(driver: Driver) -> None:
    found = virtual(
        driver,
        """
early = create(UNIT)[0]
start()
_, handle = create(2 * UNIT)
_, base = reserve(8 * UNIT, 1 << 30)
granularity = ctypes.c_size_t()
check(cuda.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(properties()), 1))
answer(early=early, sizes=[create(0)[0], create(UNIT + 512)[0], create(UNIT, 0, 0, 2)[0]],
       reserve=[reserve(0)[0], reserve(4096)[0], reserve(UNIT, 3)[0]], aligned=base % (1 << 30),
       map=[map_(base, UNIT // 2, handle), map_(base + 512, UNIT, handle), map_(base, 4 * UNIT, handle),
            map_(base - UNIT, UNIT, handle), map_(base + 7 * UNIT, 2 * UNIT, handle),
            map_(base, UNIT, handle, UNIT), map_(base, 2 * UNIT, handle), map_(base + UNIT, UNIT, handle)],
       partly=[unmap(base, UNIT), unmap(base, 4 * UNIT), access(base, 4 * UNIT),
               free_address(base, 8 * UNIT)],
       granularity=granularity.value)""",
    )
    assert found == {
        "early": 3,
        "sizes": [1, 1, 1],
        "reserve": [1, 1, 1],
        "aligned": 0,
        "map": [1, 1, 1, 1, 1, 1, 0, 1],
        "partly": [1, 1, 1, 1],
        "granularity": 2 * MIB,
    }


def test_bytes_live_in_the_handle_not_in_the_address(driver: Driver) -> None:
    """Two mappings of one handle; access first; a copy over the border of two mappings."""
    found = virtual(
        driver,
        """
start()
_, one = create(UNIT)
_, two = create(UNIT)
_, base = reserve(4 * UNIT)
for place, handle in ((0, one), (1, two), (2, one)): check(map_(base + place * UNIT, UNIT, handle))
shut = write(base, b"x")
check(access(base, 3 * UNIT))
check(write(base + UNIT - 4, b"headtail"))
flags, location = u64(), Location(1, 0)
check(cuda.cuMemGetAccess(ctypes.byref(flags), ctypes.byref(location), u64(base)))
texts = [read(base + UNIT - 4, 8), read(base + 3 * UNIT - 4, 4)]
check(unmap(base, UNIT)); check(map_(base, UNIT, one)); check(access(base, UNIT))
answer(shut=shut, texts=texts + [read(base + UNIT - 4, 4)], flags=flags.value, used=used() >> 20,
       hole=write(base + 3 * UNIT - 4, b"headtail"))""",
    )
    assert found == {"shut": 1, "texts": ["headtail", "head", "head"], "flags": 3, "used": 4, "hole": 1}


def test_mapped_addresses_are_known_pointers_but_cannot_be_freed(driver: Driver) -> None:
    found = virtual(
        driver,
        """
start()
_, handle = create(UNIT, 1)
_, base = reserve(UNIT)
check(map_(base, UNIT, handle)); check(access(base, UNIT))
values = {}
for number, kind in ((2, ctypes.c_uint), (9, ctypes.c_int), (11, ctypes.c_ulonglong), (12, ctypes.c_size_t)):
    value = kind()
    check(cuda.cuPointerGetAttribute(ctypes.byref(value), number, u64(base + 100)), number)
    values[number] = value.value
again = u64()
check(cuda.cuMemRetainAllocationHandle(ctypes.byref(again), ctypes.c_void_p(base + 100)))
back = Properties()
check(cuda.cuMemGetAllocationPropertiesFromHandle(ctypes.byref(back), again))
answer(kind=values[2], device=values[9], start=values[11] == base, size=values[12] >> 20,
       free=cuda.cuMemFree_v2(u64(base)), same=again.value == handle.value, id=back.location.id,
       releases=[release(handle), release(again), release(again)])""",
    )
    assert found == {
        "kind": 2,
        "device": 1,
        "start": True,
        "size": 2,
        "free": 1,
        "same": True,
        "id": 1,
        "releases": [0, 0, 1],
    }


def test_memory_goes_to_another_process_and_is_charged_once(driver: Driver) -> None:
    code = (
        VIRTUAL
        + """
start()
def show(handle):
    _, base = reserve(UNIT)
    check(map_(base, UNIT, handle), "map"); check(access(base, UNIT), "access")
    return base
if len(sys.argv) > 1:
    handle = u64()
    file = ctypes.c_void_p(int(sys.argv[1]))
    check(cuda.cuMemImportFromShareableHandle(ctypes.byref(handle), file, 1), "import")
    base = show(handle)
    text = read(base, 5)
    check(write(base, b"world"))
    answer(text=text, used=used() >> 20)
else:
    import subprocess
    _, handle = create(UNIT, 0, 1)
    base = show(handle)
    check(write(base, b"hello"))
    file = ctypes.c_int()
    check(cuda.cuMemExportToShareableHandle(ctypes.byref(file), handle, 1, u64(0)), "export")
    done = subprocess.run([sys.executable, "-c", sys.orig_argv[2], str(file.value)], pass_fds=[file.value],
                          stdout=subprocess.PIPE, check=True)
    os.close(file.value)
    _, private = create(UNIT)
    answer(other=json.loads(done.stdout), text=read(base, 5), used=used() >> 20,
           refused=cuda.cuMemExportToShareableHandle(ctypes.byref(file), private, 1, u64(0)))"""
    )
    found = driver.cuda(code)
    assert found == {"other": {"text": "hello", "used": 2}, "text": "world", "used": 4, "refused": 1}


def test_memory_of_the_dead_is_back(driver: Driver) -> None:
    code = VIRTUAL + "start(); check(create(512 * UNIT)[0]); answer(ready=True); time.sleep(60)"
    with driver.spawn(*driver.client(code)) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert driver.used() == 1024 * MIB
        process.kill()
        process.wait()
    assert driver.used() == 0
