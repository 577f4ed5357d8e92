# SPDX-License-Identifier: Apache-2.0
"""Virtual time for a group of processes on the fake driver; src/virtual_time.c says how.

A test makes a `VirtualTime`, starts its programs with `member()` in their environment, waits for all of
them, and lets time go on with `advance`. Between two calls everything stands still: what the driver counts
can be read (by programs with `observer()` in their environment) and files can be changed, as an agent would
at that moment. The same programs give the same figures each time, on any machine.
"""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

from tests.fakegpu import driver_root

LIBRARY = driver_root.build_directory() / "libvirtual-time.so"


class VirtualTime:
    """The clock of one group; one in a process, since its record locks belong to the process."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._places = 0
        self._library = ctypes.CDLL(str(LIBRARY))
        self._library.virtual_time_now.restype = ctypes.c_uint64
        self._library.virtual_time_advance.argtypes = (ctypes.c_uint64, ctypes.c_uint64)
        error = self._library.virtual_time_create(str(file).encode())
        if error != 0:
            raise OSError(error, os.strerror(error), str(file))

    def member(self) -> dict[str, str]:
        """The environment of the next program that lives in this time."""
        self._places += 1
        return {"FAKEGPU_TIME": f"{self.file},{self._places - 1}", "LD_PRELOAD": str(LIBRARY)}

    def observer(self) -> dict[str, str]:
        """The environment of a program that reads this clock and takes no part."""
        return {"FAKEGPU_TIME": f"{self.file},-", "LD_PRELOAD": str(LIBRARY)}

    def wait_for_members(self, seconds: float = 300.0) -> None:
        """Waits in real time until all programs have come; TimeoutError."""
        end = time.monotonic() + seconds
        while (come := self._library.virtual_time_members()) < self._places:
            if time.monotonic() > end:
                raise TimeoutError(f"{come} of {self._places} programs have come")
            time.sleep(0.005)

    def now_ns(self) -> int:
        """CLOCK_MONOTONIC of the members, in nanoseconds."""
        return int(self._library.virtual_time_now())

    def advance(self, seconds: float, patience: float = 300.0) -> None:
        """Lets the members go on for so long; TimeoutError after `patience` real seconds."""
        error = self._library.virtual_time_advance(round(seconds * 1e9), round(patience * 1e9))
        if error != 0:
            raise OSError(error, os.strerror(error), f"virtual time stopped at {self.now_ns()} ns")
