# SPDX-License-Identifier: Apache-2.0
"""Arrays, mipmaps, and copies of rectangles and boxes."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import Driver

ARRAYS = """
S, P, U = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint
class Flat(ctypes.Structure): _fields_ = [("w", S), ("h", S), ("format", U), ("channels", U)]
class Deep(ctypes.Structure):
    _fields_ = [("w", S), ("h", S), ("d", S), ("format", U), ("channels", U), ("flags", U)]
class Copy2(ctypes.Structure):
    _fields_ = [("sx", S), ("sy", S), ("st", U), ("sh", P), ("sd", u64), ("sa", P), ("sp", S),
                ("tx", S), ("ty", S), ("tt", U), ("th", P), ("td", u64), ("ta", P), ("tp", S),
                ("w", S), ("h", S)]
class Copy3(ctypes.Structure):
    _fields_ = [("sx", S), ("sy", S), ("sz", S), ("sl", S), ("st", U), ("sh", P), ("sd", u64), ("sa", P),
                ("s0", P), ("sp", S), ("sH", S), ("tx", S), ("ty", S), ("tz", S), ("tl", S), ("tt", U),
                ("th", P), ("td", u64), ("ta", P), ("t0", P), ("tp", S), ("tH", S),
                ("w", S), ("h", S), ("d", S)]
HOST, DEVICE, ARRAY = 1, 2, 3
def array(w, h=0, d=0, format=1, channels=1, flags=0):
    made = P()
    descriptor = Deep(w, h, d, format, channels, flags)
    return cuda.cuArray3DCreate_v2(ctypes.byref(made), ctypes.byref(descriptor)), made
def mipmap(levels, *shape):
    made = P()
    descriptor = Deep(*shape, 1, 1, 0)
    return cuda.cuMipmappedArrayCreate(ctypes.byref(made), ctypes.byref(descriptor), levels), made
def used(): free, total = free_total(); return total - free
def buffer(text): return ctypes.create_string_buffer(text, len(text))
start()
"""


def arrays(driver: Driver, code: str) -> dict[str, object]:
    found: dict[str, object] = driver.cuda(ARRAYS + code)
    return found


def test_arrays_take_what_their_padded_rows_take(driver: Driver) -> None:
    found = arrays(
        driver,
        """
sums, made = [], []
for shape in ((1000,), (100, 100), (100, 100, 10), (1024, 1024, 0, 0x20, 4)):
    before = used()
    error, one = array(*shape); check(error)
    made.append(one); sums.append(used() - before)
check(cuda.cuArrayDestroy(made[0]))
answer(sums=sums, twice=cuda.cuArrayDestroy(made[0]), after=[check(cuda.cuArrayDestroy(m)) for m in made[1:]],
       left=used())""",
    )
    # 1000 bytes in rows of 64, rounded to 512; 104 rows of 128; that ten times; 1024 rows of 16 KiB
    expected = [1024, 128 * 104, 128 * 104 * 10, 16 << 20]
    assert found == {"sums": expected, "twice": 400, "after": [None] * 3, "left": 0}


def test_mipmaps_take_all_their_levels(driver: Driver) -> None:
    found = arrays(
        driver,
        """
error, made = mipmap(99, 256, 256, 0); check(error)
taken = used()
level, descriptor, widths = P(), Deep(), []
for number in range(9):
    check(cuda.cuMipmappedArrayGetLevel(ctypes.byref(level), made, number))
    check(cuda.cuArray3DGetDescriptor_v2(ctypes.byref(descriptor), level))
    widths.append(descriptor.w)
answer(taken=taken, widths=widths, beyond=cuda.cuMipmappedArrayGetLevel(ctypes.byref(level), made, 9),
       level=cuda.cuArrayDestroy(level), gone=cuda.cuMipmappedArrayDestroy(made), left=used(),
       stale=cuda.cuMipmappedArrayGetLevel(ctypes.byref(level), made, 0))""",
    )
    levels = [256, 128, 64, 32, 16, 8, 4, 2, 1]
    padded = sum(max(64, side) * (1 if side == 1 else max(8, side)) for side in levels)
    assert found == {
        "taken": -(-padded // 512) * 512,
        "widths": levels,
        "beyond": 1,
        "level": 400,
        "gone": 0,
        "left": 0,
        "stale": 400,
    }


def test_arrays_are_refused_by_the_drivers_errors(driver: Driver) -> None:
    found = arrays(
        driver,
        """
check(allocate((24 << 30) - 4096)[0])
shapes = (0,), (8, 8, 0, 7), (8, 8, 0, 1, 3), (8, 0, 8), (8, 4, 6, 1, 1, 4), (1 << 20,), (256, 256)
errors = [array(*shape)[0] for shape in shapes] + [mipmap(n, 256, 256, 0)[0] for n in (3, 0)]
left = used() - (24 << 30) + 4096
answer(errors=errors, left=left, sparse=array(256, 256, 0, 1, 1, 0x40)[0], fits=array(4096)[0])""",
    )
    assert found == {"errors": [1, 1, 1, 1, 1, 1, 2, 2, 1], "left": 0, "sparse": 0, "fits": 0}


def test_arrays_die_with_their_context(driver: Driver) -> None:
    found = arrays(
        driver,
        """
context = P()
check(cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0))
error, one = array(1000, 1000); check(error)
check(cuda.cuCtxDestroy_v2(context))
answer(left=used(), stale=cuda.cuArrayDestroy(one))""",
    )
    assert found == {"left": 0, "stale": 400}


def test_rectangles_go_from_host_to_array_to_device_and_back(driver: Driver) -> None:
    found = arrays(
        driver,
        """
_, picture = array(4, 3)
source, target = buffer(b"..abcd....efgh....ijkl.."), buffer(b"-" * 15)
_, memory = allocate(4096)
def copy(name, **more): return getattr(cuda, name)(ctypes.byref(Copy2(**more)))
check(copy("cuMemcpy2D_v2", st=HOST, sh=ctypes.addressof(source), sp=8, sx=2, tt=ARRAY, ta=picture, w=4, h=3))
check(copy("cuMemcpy2DUnaligned_v2", st=ARRAY, sa=picture, sx=1, sy=1, tt=DEVICE, td=memory.value, tp=512,
           w=3, h=2))
check(copy("cuMemcpy2D_v2", st=DEVICE, sd=memory.value, sp=512, tt=HOST, th=ctypes.addressof(target), tp=5,
           tx=1, w=3, h=2))
check(cuda.cuMemsetD2D8_v2(memory, S(512), ctypes.c_ubyte(0x2a), S(2), S(2)))
row = ctypes.create_string_buffer(3)
check(cuda.cuMemcpyDtoH_v2(row, u64(memory.value + 512), S(3)))
beyond = [copy("cuMemcpy2D_v2", st=HOST, sh=ctypes.addressof(source), sp=8, tt=ARRAY, ta=picture, **shape)
          for shape in ({"w": 5, "h": 1}, {"w": 4, "h": 4}, {"w": 4, "h": 1, "ty": 3}, {"w": 9, "h": 2})]
beyond.append(copy("cuMemcpy2D_v2", st=HOST, sh=ctypes.addressof(source), sp=2048, tt=DEVICE, td=memory.value,
                   tp=2048, w=2048, h=3))
answer(text=target.raw.decode(), row=row.raw.decode(), beyond=beyond)""",
    )
    assert found == {"text": "-fgh--jkl------", "row": "**l", "beyond": [1, 1, 1, 1, 1]}


def test_boxes_keep_their_slices(driver: Driver) -> None:
    found = arrays(
        driver,
        """
_, block = array(4, 2, 3)
source, target = buffer(b"abcdefghijklmnopqrstuvwx"), buffer(b"-" * 24)
inn = Copy3(st=HOST, sh=ctypes.addressof(source), sp=4, sH=2, tt=ARRAY, ta=block, w=4, h=2, d=3)
check(cuda.cuMemcpy3D_v2(ctypes.byref(inn)))
out = Copy3(st=ARRAY, sa=block, sx=1, sz=1, tt=HOST, th=ctypes.addressof(target), tp=4, tH=2, w=2, h=2, d=2)
check(cuda.cuMemcpy3DAsync_v2(ctypes.byref(out), None))
answer(text=target.raw.decode())""",
    )
    assert found == {"text": "jk--no--rs--vw----------"}


def test_a_row_of_bytes_runs_through_an_array(driver: Driver) -> None:
    found = arrays(
        driver,
        """
_, one = array(10, 3)
_, two = array(7, 5)
source, target = buffer(bytes(range(48, 78))), buffer(b"-" * 30)
check(cuda.cuMemcpyHtoA_v2(one, S(0), source, S(30)))
check(cuda.cuMemcpyAtoA_v2(two, S(2), one, S(0), S(30)))
check(cuda.cuMemcpyAtoH_v2(target, two, S(2), S(30)))
_, memory = allocate(64)
check(cuda.cuMemcpyAtoD_v2(memory, one, S(5), S(20)))
check(cuda.cuMemcpyDtoA_v2(one, S(0), memory, S(20)))
short = buffer(b"-" * 4)
check(cuda.cuMemcpyAtoH_v2(short, one, S(8), S(4)))
answer(same=target.raw == source.raw, short=short.raw.decode(),
       beyond=cuda.cuMemcpyHtoA_v2(one, S(29), source, S(2)),
       stale=cuda.cuMemcpyHtoA_v2(None, S(0), source, S(1)))""",
    )
    assert found == {"same": True, "short": "=>?@", "beyond": 1, "stale": 1}
