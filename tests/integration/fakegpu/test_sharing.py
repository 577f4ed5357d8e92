# SPDX-License-Identifier: Apache-2.0
"""IPC of memory and events, exported pools, foreign memory: bytes are shared, the exporter pays."""

from __future__ import annotations

from tests.integration.fakegpu.conftest import Driver

SHARING = """
import subprocess
P, S, U = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
class Handle(ctypes.Structure): _fields_ = [("bytes", ctypes.c_ubyte * 64)]
class Foreign(ctypes.Structure):
    _fields_ = [("type", U), ("gap", U), ("file", ctypes.c_int), ("rest", U * 3), ("size", u64), ("flags", U),
                ("reserved", U * 16)]
def foreign(type, file, size=0): return ctypes.byref(Foreign(type, 0, file, size=size))
class Buffer(ctypes.Structure):
    _fields_ = [("offset", u64), ("size", u64), ("flags", U), ("reserved", U * 16)]
class Pool(ctypes.Structure):
    _fields_ = [("kind", U), ("handles", U), ("where", U), ("id", ctypes.c_int), ("security", P), ("most", S),
                ("usage", ctypes.c_ushort), ("reserved", ctypes.c_ubyte * 54)]
def used(): free, total = free_total(); return (total - free) >> 20
def write(address, data): return cuda.cuMemcpyHtoD_v2(u64(address), data, S(len(data)))
def read(address, size):
    out = ctypes.create_string_buffer(size)
    check(cuda.cuMemcpyDtoH_v2(out, u64(address), S(size)), "read")
    return out.raw.decode()
def other(*arguments, **more):
    again = [sys.executable, "-c", sys.orig_argv[2], *arguments]
    done = subprocess.run(again, stdout=subprocess.PIPE, **more)
    return json.loads(done.stdout)
def given(text): return Handle.from_buffer_copy(bytes.fromhex(text))
MIB = 1 << 20
start()
"""


def sharing(driver: Driver, code: str) -> dict[str, object]:
    found: dict[str, object] = driver.cuda(SHARING + code)
    return found


def test_memory_by_ipc_handle(driver: Driver) -> None:
    found = sharing(
        driver,
        """
if len(sys.argv) > 1:
    handle, address, again = given(sys.argv[1]), u64(), u64()
    check(cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), handle, 1), "open")
    check(cuda.cuIpcOpenMemHandle_v2(ctypes.byref(again), handle, 1), "open again")
    text = read(address.value, 5)
    check(write(address.value + 5, b", world"))
    answer(text=text, used=used(), same=address.value == again.value, free=cuda.cuMemFree_v2(address),
           close=[cuda.cuIpcCloseMemHandle(address) for _ in range(3)])
else:
    _, memory = allocate(3 * MIB)
    _, small = allocate(100)
    check(write(memory.value, b"hello"))
    handles = Handle(), Handle()
    check(cuda.cuIpcGetMemHandle(ctypes.byref(handles[0]), u64(memory.value + 100)), "get")
    check(cuda.cuIpcGetMemHandle(ctypes.byref(handles[1]), small), "get small")
    told = other(bytes(handles[0]).hex())
    text, own = read(memory.value, 12), u64()
    own_error = cuda.cuIpcOpenMemHandle_v2(ctypes.byref(own), handles[0], 1)
    check(cuda.cuMemFree_v2(memory)); check(cuda.cuMemFree_v2(small))
    _, fresh = allocate(3 * MIB)
    check(cuda.cuMemsetD8_v2(fresh, ctypes.c_ubyte(0x2e), S(3 * MIB)))
    answer(told=told, text=text, own=own_error, used=used(), fresh=read(fresh.value, 3),
           stranger=cuda.cuIpcGetMemHandle(ctypes.byref(handles[0]), u64(4096)))""",
    )
    told = {"text": "hello", "used": 3, "same": True, "free": 1, "close": [0, 0, 1]}
    assert found == {
        "told": told,
        "text": "hello, world",
        "own": 201,
        "used": 3,
        "fresh": "...",
        "stranger": 1,
    }


def test_a_handle_of_what_is_gone_opens_nothing(driver: Driver) -> None:
    found = sharing(
        driver,
        """
if len(sys.argv) > 1:
    address = u64()
    answer(errors=[cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), given(sys.argv[1]), 1),
                   cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), Handle(), 1),
                   cuda.cuIpcOpenMemHandle_v2(ctypes.byref(address), given(sys.argv[1]), 0)])
else:
    _, memory = allocate(MIB)
    handle = Handle()
    check(cuda.cuIpcGetMemHandle(ctypes.byref(handle), memory)); check(cuda.cuMemFree_v2(memory))
    answer(**other(bytes(handle).hex()))""",
    )
    assert found == {"errors": [205, 1, 1]}


def test_an_event_tells_another_process_when_work_is_done(driver: Driver) -> None:
    found = sharing(
        driver,
        """
if len(sys.argv) > 1:
    event = P()
    check(cuda.cuIpcOpenEventHandle(ctypes.byref(event), given(sys.argv[1])), "open")
    stream = P()
    check(cuda.cuStreamCreate(ctypes.byref(stream), 1))
    answer(is_open=True)
    sys.stdin.readline()
    early = cuda.cuEventQuery(event)
    check(cuda.cuStreamWaitEvent(stream, event, 0)); check(cuda.cuEventSynchronize(event))
    answer(early=early, late=cuda.cuEventQuery(event), ended=time.monotonic())
else:
    event, plain, handle = P(), P(), Handle()
    check(cuda.cuEventCreate(ctypes.byref(event), 6)); check(cuda.cuEventCreate(ctypes.byref(plain), 0))
    refused = cuda.cuIpcGetEventHandle(ctypes.byref(handle), plain)
    check(cuda.cuIpcGetEventHandle(ctypes.byref(handle), event), "get")
    f = kernel()
    again = [sys.executable, "-c", sys.orig_argv[2], bytes(handle).hex()]
    peer = subprocess.Popen(again, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    peer.stdout.readline()
    begin = time.monotonic()
    check(launch(f, 3000)); check(cuda.cuEventRecord(event, None))
    told = json.loads(peer.communicate(b"recorded\\n")[0])
    answer(told=told, refused=refused, after=cuda.cuEventQuery(event), seconds=told["ended"] - begin)""",
    )
    told = found["told"]
    assert isinstance(told, dict)
    assert (told["early"], told["late"], found["refused"], found["after"]) == (600, 0, 400, 0)
    assert float(str(found["seconds"])) >= 3


def test_pointers_of_an_exported_pool(driver: Driver) -> None:
    found = sharing(
        driver,
        """
if len(sys.argv) > 1:
    pool, address, data = P(), u64(), given(sys.argv[2])
    file = P(int(sys.argv[1]))
    check(cuda.cuMemPoolImportFromShareableHandle(ctypes.byref(pool), file, 1, u64(0)), "import")
    check(cuda.cuMemPoolImportPointer(ctypes.byref(address), pool, ctypes.byref(data)), "pointer")
    own = u64()
    answer(text=read(address.value, 4), used=used(), free=cuda.cuMemFreeAsync(address, None),
           allocate=cuda.cuMemAllocFromPoolAsync(ctypes.byref(own), S(64), pool, None))
else:
    pool, private, address, data = P(), P(), u64(), Handle()
    check(cuda.cuMemPoolCreate(ctypes.byref(pool), ctypes.byref(Pool(1, 1, 1, 0))))
    check(cuda.cuMemPoolCreate(ctypes.byref(private), ctypes.byref(Pool(1, 0, 1, 0))))
    check(cuda.cuMemAllocFromPoolAsync(ctypes.byref(address), S(2 * MIB), pool, None))
    check(write(address.value + 8, b"pool"))
    file = ctypes.c_int()
    refused = cuda.cuMemPoolExportToShareableHandle(ctypes.byref(file), private, 1, u64(0))
    check(cuda.cuMemPoolExportToShareableHandle(ctypes.byref(file), pool, 1, u64(0)), "export")
    check(cuda.cuMemPoolExportPointer(ctypes.byref(data), u64(address.value + 8)), "export pointer")
    told = other(str(file.value), bytes(data).hex(), pass_fds=[file.value])
    answer(told=told, refused=refused, used=used())""",
    )
    assert found == {"told": {"text": "pool", "used": 2, "free": 1, "allocate": 1}, "refused": 1, "used": 2}


def test_memory_of_another_interface_is_charged_to_nobody_here(driver: Driver) -> None:
    found = sharing(
        driver,
        """
import mmap
file = os.memfd_create("vulkan")
os.ftruncate(file, MIB)
window = mmap.mmap(file, MIB)
window[4096:4103] = b"outside"
memory, address, bad = P(), u64(), P()
check(cuda.cuImportExternalMemory(ctypes.byref(memory), foreign(1, os.dup(file), MIB)))
def mapped(offset, size):
    wanted = ctypes.byref(Buffer(offset, size))
    return cuda.cuExternalMemoryGetMappedBuffer(ctypes.byref(address), memory, wanted)
errors = [mapped(0, 0), mapped(0, MIB + 1), mapped(MIB - 1, 2), mapped(4096, 8192)]
text = read(address.value, 7)
check(write(address.value, b"inside!"))
errors.append(cuda.cuMemFree_v2(address)); errors.append(cuda.cuMemFree_v2(address))
windows = cuda.cuImportExternalMemory(ctypes.byref(bad), foreign(2, 0, MIB))
semaphore = P()
check(cuda.cuImportExternalSemaphore(ctypes.byref(semaphore), foreign(1, os.dup(file))))
values = ctypes.create_string_buffer(256)
signal = cuda.cuSignalExternalSemaphoresAsync(ctypes.byref(semaphore), values, 1, None)
check(cuda.cuDestroyExternalSemaphore(semaphore)); check(cuda.cuDestroyExternalMemory(memory))
answer(errors=errors, text=text, seen=window[4096:4103].decode(), used=used(), windows=windows, signal=signal,
       stale=[cuda.cuDestroyExternalMemory(memory), cuda.cuDestroyExternalSemaphore(semaphore),
              mapped(0, 1)])""",
    )
    assert found == {
        "errors": [1, 1, 1, 0, 0, 1],
        "text": "outside",
        "seen": "inside!",
        "used": 0,
        "windows": 801,
        "signal": 0,
        "stale": [400, 400, 400],
    }
