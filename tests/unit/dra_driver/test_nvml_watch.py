"""The watch against an NVML that the test plays: what threads and sessions it makes, and what it hears."""

# ruff: noqa: N802 - the names are NVML's

from __future__ import annotations

import ctypes
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from dra_driver.cards import nvml_watch
from dra_driver.cards.nvml_watch import CardEvent, Watch

XID, DOUBLE = pynvml.nvmlEventTypeXidCriticalError, pynvml.nvmlEventTypeDoubleBitEccError
WHOLE = 0xFFFFFFFF


def error(code: int) -> pynvml.NVMLError:
    return pynvml.NVMLError(code)


class ScriptedNvml:
    """As much of pynvml as the watch uses."""

    def __init__(self) -> None:
        self.sessions: list[list[str]] = []
        self.asked = 0
        self.open = 0
        self.events: queue.Queue[Any] = queue.Queue()
        self.supported: dict[str, int] = {}
        self.refuses: dict[str, int] = {}
        self.hang = threading.Event()
        self.hang.set()
        self._cells: dict[str, ctypes.c_int] = {}

    def handle(self, uuid: str) -> ctypes.c_void_p:
        """Another object each time, of the same address, as pynvml's."""
        cell = self._cells.setdefault(uuid, ctypes.c_int())
        return ctypes.cast(ctypes.byref(cell), ctypes.c_void_p)

    def says(self, uuid: str, xid: int, gpu_instance: int = WHOLE, compute_instance: int = WHOLE) -> None:
        self._put(uuid, XID, xid, gpu_instance, compute_instance)

    def says_double_bit(self, uuid: str) -> None:
        self._put(uuid, DOUBLE, 0, WHOLE, WHOLE)

    def _put(self, uuid: str, kind: int, data: int, gpu_instance: int, compute_instance: int) -> None:
        self.events.put(
            SimpleNamespace(
                device=self.handle(uuid),
                eventType=kind,
                eventData=data,
                gpuInstanceId=gpu_instance,
                computeInstanceId=compute_instance,
            )
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(pynvml, name)  # constants and errors

    def nvmlInit(self) -> None:
        self.asked += 1
        self.hang.wait(60)
        self.open += 1
        self.sessions.append([])

    def nvmlShutdown(self) -> None:
        self.open -= 1

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, _events: object) -> None:
        pass

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        if uuid in self.refuses:
            raise error(self.refuses[uuid])
        return self.handle(uuid)

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        return int(self.supported.get(self._name(handle), XID | DOUBLE))

    def nvmlDeviceRegisterEvents(self, handle: Any, types: int, _events: object) -> None:
        uuid = self._name(handle)
        assert types & ~self.supported.get(uuid, XID | DOUBLE) == 0
        self.sessions[-1].append(uuid)

    def nvmlEventSetWait_v2(self, _events: object, milliseconds: int) -> Any:
        self.hang.wait(60)
        try:
            found = self.events.get(timeout=milliseconds / 1000)
        except queue.Empty:
            raise error(pynvml.NVML_ERROR_TIMEOUT) from None
        if isinstance(found, int):
            raise error(found)
        return found

    def _name(self, handle: Any) -> str:
        return next(uuid for uuid in self._cells if self.handle(uuid).value == handle.value)


class Setting:
    def __init__(self, nvml: ScriptedNvml) -> None:
        self.nvml = nvml
        self.heard: list[CardEvent] = []
        self.unheard: list[Mapping[str, str]] = []
        self.troubles = 0
        self.watch = Watch(
            heard=self.heard.append, unheard=self.unheard.append, troubled=self._trouble, wait=10
        )

    def _trouble(self) -> None:
        self.troubles += 1


@pytest.fixture
def setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    nvml = ScriptedNvml()
    monkeypatch.setattr(nvml_watch, "pynvml", nvml)
    made = Setting(nvml)
    yield made
    nvml.hang.set()
    assert made.watch.let_go(60)


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.005)


def gpus(*uuids: str) -> frozenset[str]:
    return frozenset(uuids)


def threads() -> int:
    return [thread.name for thread in threading.enumerate()].count("nvml-events")


def test_what_it_hears(setting: Setting) -> None:
    setting.watch.watch(gpus("GPU-a", "GPU-b"))
    until(lambda: setting.unheard)  # it has begun
    setting.nvml.says("GPU-b", 79)
    setting.nvml.says("GPU-a", 95, 3, 0)
    setting.nvml.says("GPU-a", 94, 3)
    setting.nvml.says_double_bit("GPU-a")
    setting.nvml.says("GPU-strange", 79)
    setting.nvml.says("GPU-a", 13)
    until(lambda: len(setting.heard) == 5)
    assert setting.heard == [
        CardEvent("GPU-b", 79),
        CardEvent("GPU-a", 95, 3, 0),
        CardEvent("GPU-a", 94, 3),
        CardEvent("GPU-a", 48),
        CardEvent("GPU-a", 13),
    ]
    assert setting.unheard == [{}]


def test_the_same_cards_again_are_the_same_session(setting: Setting) -> None:
    for _ in range(5):
        setting.watch.watch(gpus("GPU-a"))
        until(lambda: setting.nvml.sessions == [["GPU-a"]])
        time.sleep(0.02)
    setting.watch.watch(gpus("GPU-a", "GPU-b"))
    until(lambda: len(setting.nvml.sessions) == 2)
    until(lambda: setting.nvml.sessions == [["GPU-a"], ["GPU-a", "GPU-b"]])
    assert setting.nvml.open == 1


def test_let_go_has_nvml_closed(setting: Setting) -> None:
    setting.watch.watch(gpus("GPU-a"))
    until(lambda: setting.nvml.open == 1)
    assert setting.watch.let_go(60)
    assert setting.nvml.open == 0
    time.sleep(0.05)
    assert len(setting.nvml.sessions) == 1  # it rests until it is told
    setting.watch.watch(gpus("GPU-a"))
    until(lambda: setting.nvml.open == 1)


def test_a_hang_is_one_thread_and_holds_up_nobody(setting: Setting) -> None:
    others = threads()  # of other tests: a watch is for ever
    setting.nvml.hang.clear()
    setting.watch.watch(gpus("GPU-a"))
    until(lambda: setting.nvml.asked)
    for _ in range(3):
        began = time.monotonic()
        assert not setting.watch.let_go(0.02)
        setting.watch.watch(gpus("GPU-a"))
        assert time.monotonic() - began < 20
    assert (threads(), setting.nvml.asked) == (others + 1, 1)
    setting.nvml.hang.set()
    until(lambda: setting.unheard)
    setting.nvml.says("GPU-a", 79)
    until(lambda: setting.heard == [CardEvent("GPU-a", 79)])


def test_cards_without_events(setting: Setting) -> None:
    setting.nvml.supported = {"GPU-b": 0, "GPU-c": XID}
    setting.watch.watch(gpus("GPU-a", "GPU-b", "GPU-c"))
    until(lambda: setting.unheard)
    assert setting.unheard == [{"GPU-b": "the driver does not report its errors: Not Supported"}]
    until(lambda: setting.nvml.sessions == [["GPU-a", "GPU-c"]])


def test_nothing_to_hear_is_nothing_held_open(setting: Setting) -> None:
    setting.nvml.supported = {"GPU-a": 0}
    setting.watch.watch(gpus("GPU-a"))
    until(lambda: setting.unheard)
    until(lambda: setting.nvml.open == 0)
    time.sleep(0.05)
    assert len(setting.nvml.sessions) == 1


def test_a_card_that_does_not_answer_takes_no_other_down_and_is_tried_again(setting: Setting) -> None:
    setting.nvml.refuses = {"GPU-b": pynvml.NVML_ERROR_GPU_IS_LOST}
    setting.watch.watch(gpus("GPU-a", "GPU-b"))
    until(lambda: setting.nvml.sessions == [["GPU-a"]])
    assert setting.unheard == [{}]
    setting.nvml.refuses = {}
    setting.watch.watch(gpus("GPU-a", "GPU-b"))  # after the next look
    until(lambda: setting.nvml.sessions == [["GPU-a"], ["GPU-a", "GPU-b"]])


def test_trouble_is_told_and_waits_for_the_next_look(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml_watch, "_WHOLE_LIFE", 0.0)
    setting.watch.watch(gpus("GPU-a"))
    until(lambda: setting.unheard)
    setting.nvml.events.put(pynvml.NVML_ERROR_GPU_IS_LOST)
    until(lambda: setting.troubles == 1)
    until(lambda: setting.nvml.open == 0)
    time.sleep(0.05)
    assert len(setting.nvml.sessions) == 1


def test_trouble_that_comes_at_once_each_time_is_no_reason_to_look(setting: Setting) -> None:
    for number in range(3):
        setting.watch.watch(gpus("GPU-a"))
        until(lambda: len(setting.unheard) == number + 1)  # noqa: B023
        setting.nvml.events.put(pynvml.NVML_ERROR_GPU_IS_LOST)
        until(lambda: setting.nvml.open == 0)
    assert setting.troubles == 0


def test_an_old_driver_that_has_no_events(setting: Setting) -> None:
    for number in range(3):
        setting.nvml.events.put(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        setting.watch.watch(gpus("GPU-a"))
        until(lambda: len(setting.unheard) == number + 1 and setting.nvml.open == 0)  # noqa: B023
    assert setting.unheard == 3 * [{"GPU-a": "the driver is too old to report its errors"}]
