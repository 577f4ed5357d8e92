"""Supervised tasks: all run side by side until the process is told to stop; one that ends, ends everything.

Kubernetes starts the process anew then, from what is on disk: a half-dead agent helps nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn


class TaskEndedError(Exception):
    """A task that should run for ever has returned."""


async def until(stop: asyncio.Event, works: Mapping[str, Coroutine[Any, Any, Any]]) -> None:
    """Runs all of them, named by their keys, until `stop`. Raises an ExceptionGroup with what ended one."""
    async with asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(_for_ever(name, work), name=name) for name, work in works.items()]
        await stop.wait()
        for task in running:
            task.cancel()


async def _for_ever(name: str, work: Coroutine[Any, Any, Any]) -> NoReturn:
    try:
        await work
    except Exception as error:
        error.add_note(f"this ended the task {name}, and with it the agent")
        raise
    raise TaskEndedError(f"the task {name} has ended, which it never should")


def reasons(error: BaseException) -> list[str]:
    """What ended the process, a sentence for each exception of a group."""
    if isinstance(error, BaseExceptionGroup):
        return [reason for inner in error.exceptions for reason in reasons(inner)]
    notes = "; ".join(getattr(error, "__notes__", ()))
    return [f"{error!r}{f' ({notes})' if notes else ''}"]
