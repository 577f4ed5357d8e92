"""Waits for what NVML reports of the cards, in one thread of its own, for as long as the process lives.

NVML can hang inside the kernel, so nobody ever waits for this thread: not at exit, and not for longer than
asked in `let_go`. It is never replaced either: one that hangs is one thread, and goes on when NVML does.

NVML lives as long as anybody in the process has it open, and what was opened before a card was lost or a
driver was replaced may go on telling the old story. So whoever wants to ask anew calls `let_go` first, and
`watch` after it has the new answers. Errors that come between the two are not heard here; what they have led
to is seen by looking.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pynvml

from dra_driver.cards.nvml_answers import NO_ANSWER
from dra_driver.cards.xids import DOUBLE_BIT_ECC

_log = logging.getLogger(__name__)
_WAIT = 2000  # milliseconds that NVML is waited for at a time: after these it can be let go
_NO_INSTANCE = 0xFFFFFFFF
_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError
# What a card or a driver will not do tomorrow either; all else may be another answer next time.
_NEVER = (
    pynvml.NVMLError_NotSupported,
    pynvml.NVMLError_NoPermission,
    pynvml.NVMLError_FunctionNotFound,
)
_WHOLE_LIFE = 10.0  # seconds; a session that ends sooner has nothing new to say


@dataclass(frozen=True)
class CardEvent:
    """An error that a card has reported. The instance's numbers: None where the whole card is meant."""

    gpu_uuid: str
    xid: int
    gpu_instance: int | None = None
    compute_instance: int | None = None


class Watch:
    """Its callbacks are called in its own thread.

    `heard`: an error. `unheard`: UUID → why no errors of the card will be heard, each time it was found out.
    `troubled`: waiting has failed, so something has changed.
    """

    def __init__(
        self,
        *,
        heard: Callable[[CardEvent], None],
        unheard: Callable[[Mapping[str, str]], None],
        troubled: Callable[[], None],
        wait: int = _WAIT,
    ) -> None:
        self._heard = heard
        self._unheard = unheard
        self._troubled = troubled
        self._wait = wait
        self._changed = threading.Condition()
        self._gpus: frozenset[str] | None = None
        self._is_open = False
        self._thread: threading.Thread | None = None

    def watch(self, gpus: frozenset[str]) -> None:
        """Hears of these cards from now on, or soon. NVML's library has been loaded. Never blocks."""
        with self._changed:
            self._gpus = gpus
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nvml-events", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def let_go(self, seconds: float) -> bool:
        """Has NVML closed here; blocks. False: it is still open after so long."""
        with self._changed:
            self._gpus = None
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._is_open, seconds)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._gpus is not None)
                gpus = self._gpus
                self._is_open = True
            assert gpus is not None  # noqa: S101 - waited for
            began = time.monotonic()
            try:
                self._session(gpus)
            except NO_ANSWER as error:
                _log.info("errors of the cards are not heard for now: %s", error)
                if time.monotonic() - began > _WHOLE_LIFE:
                    self._troubled()
            with self._changed:
                self._is_open = False
                # What has failed, or had nothing to hear, is tried again when it is called for again.
                if self._gpus is gpus:
                    self._gpus = None
                self._changed.notify_all()

    def _session(self, gpus: frozenset[str]) -> None:
        pynvml.nvmlInit()
        try:
            events = pynvml.nvmlEventSetCreate()
            try:
                self._next(events, {}, wait=0)
                self._listen(events, gpus)
            except pynvml.NVMLError_FunctionNotFound:
                # Before 450; NVML has been able to wait, but not with the instances of MIG.
                self._unheard(dict.fromkeys(gpus, "the driver is too old to report its errors"))
            finally:
                with contextlib.suppress(pynvml.NVMLError):
                    pynvml.nvmlEventSetFree(events)
        finally:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()

    def _listen(self, events: Any, gpus: frozenset[str]) -> None:
        """Until other cards are to be heard. Raises NVMLError."""
        names: dict[int, str] = {}
        unheard: dict[str, str] = {}
        is_complete = True
        for uuid in sorted(gpus):
            try:
                _register(uuid, events, names)
            except _NEVER as error:
                unheard[uuid] = f"the driver does not report its errors: {error}"
            except NO_ANSWER as error:
                _log.info("errors of card %s are not heard for now: %s", uuid, error)
                is_complete = False
        self._unheard(unheard)
        while names and (self._gpus == gpus if is_complete else self._gpus is gpus):
            event = self._next(events, names, self._wait)
            if event is not None:
                self._heard(event)

    def _next(self, events: Any, names: Mapping[int, str], wait: int) -> CardEvent | None:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, wait)
        except pynvml.NVMLError_Timeout:
            return None
        uuid = names.get(_address(data.device))
        if uuid is None:
            return None
        if data.eventType == pynvml.nvmlEventTypeDoubleBitEccError:
            return CardEvent(uuid, DOUBLE_BIT_ECC)
        if data.gpuInstanceId == _NO_INSTANCE:
            return CardEvent(uuid, int(data.eventData))
        compute = None if data.computeInstanceId == _NO_INSTANCE else int(data.computeInstanceId)
        return CardEvent(uuid, int(data.eventData), int(data.gpuInstanceId), compute)


def _register(uuid: str, events: Any, names: dict[int, str]) -> None:
    """Adds the address of the card's handle to `names`. Raises NVMLError."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    supported = int(pynvml.nvmlDeviceGetSupportedEventTypes(handle))
    if not supported & pynvml.nvmlEventTypeXidCriticalError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    pynvml.nvmlDeviceRegisterEvents(handle, supported & _WANTED, events)
    names[_address(handle)] = uuid


def _address(handle: Any) -> int:
    """Two handles of one card are two Python objects, with one pointer in them."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
