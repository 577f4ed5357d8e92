"""The agent's whole state, for people who look for what is wrong: written down at SIGUSR1.

It is collected on the event loop, so that it is one moment's; where the loop does not answer, that is said
instead, and the threads' stacks tell why. The file holds names of claims and settings, no payloads and no
secrets; it is root's.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import TimeoutError as NoAnswer
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

_log = logging.getLogger(__name__)
FILE = "state.json"
PID_FILE = "driver.pid"
_PATIENCE = 2.0  # seconds for the event loop

Parts = Mapping[str, Callable[[], Any]]
"""What there is to tell, by name; each is called on the event loop and gives plain values or dataclasses."""


def announce(directory: Path) -> None:
    """Writes our process id to where people find it: `kill -USR1 $(cat /run/tessera/driver.pid)`."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / PID_FILE).write_text(f"{os.getpid()}\n")
    except OSError as error:
        _log.warning("%s can't be written: %s", directory / PID_FILE, error)


class Dump:
    """Call it from any thread but the event loop's."""

    def __init__(
        self, parts: Parts, directory: Path, loop: asyncio.AbstractEventLoop, *, patience: float = _PATIENCE
    ) -> None:
        self._parts = parts
        self._path = directory / FILE
        self._loop = loop
        self._patience = patience

    def __call__(self) -> None:
        text = json.dumps(self._state() | {"threads": thread_stacks()}, indent=1, ensure_ascii=False)
        try:
            _write(self._path, text)
        except OSError as error:
            _log.warning("the state can't be written to %s (%s), so here it is: %s", self._path, error, text)
        else:
            _log.info("the state is written to %s", self._path)

    def _state(self) -> dict[str, Any]:
        header = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), "pid": os.getpid()}
        try:
            asked = asyncio.run_coroutine_threadsafe(self._collect(), self._loop)
        except RuntimeError as error:
            return header | {"loop": f"the event loop has ended: {error}"}
        began = time.monotonic()
        try:
            collected = asked.result(self._patience)
        except NoAnswer:
            asked.cancel()
            return header | {"loop": f"the event loop has not answered for {self._patience:g} s"}
        return header | {"loop": f"answered after {time.monotonic() - began:.3f} s"} | collected

    async def _collect(self) -> dict[str, Any]:
        state = {name: _plain(part) for name, part in self._parts.items()}
        return state | {"tasks": task_stacks()}


def thread_stacks() -> dict[str, list[str]]:
    """Of each thread of the process what it is doing, the innermost call last."""
    frames = sys._current_frames()
    return {
        f"{thread.name} ({thread.native_id})": _frames(traceback.extract_stack(frames[thread.ident]))
        for thread in threading.enumerate()
        if thread.ident in frames
    }


def task_stacks() -> dict[str, list[str]]:
    """Of each task of the running loop where it waits."""
    found: dict[str, list[str]] = {}
    for task in asyncio.all_tasks():
        name = task.get_name()
        found[name if name not in found else f"{name} ({id(task):x})"] = list(_awaits(task.get_coro()))
    return found


def _awaits(waiting: Any) -> Iterator[str]:
    """What a coroutine waits for, what that waits for, and so on, the innermost last."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            yield f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_qualname}"
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


def _frames(stack: traceback.StackSummary) -> list[str]:
    return [f"{frame.filename}:{frame.lineno} {frame.name}: {frame.line}" for frame in stack]


def _plain(part: Callable[[], Any]) -> Any:
    """One part that fails says so, and takes no other with it."""
    try:
        return msgspec.to_builtins(part(), str_keys=True, enc_hook=_other)
    except Exception as error:
        return f"can't be told: {error!r}"


def _other(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)


def _write(path: Path, text: str) -> None:
    """For root alone, whole or not at all. Raises OSError."""
    unfinished = path.with_suffix(".tmp")
    unfinished.unlink(missing_ok=True)
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{text}\n")
    unfinished.rename(path)
