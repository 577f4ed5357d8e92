"""Looks for the node's cards, again and again: drivers come late, are replaced, and cards are lost and found.

NVML may hang for good inside the kernel, so each look is made by a thread that nobody waits for at the end;
what is served meanwhile is the last that was seen.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from cdi.driver_files import Driver, DriverNotReadyError
from dra_driver.conditions import Condition, Conditions
from dra_driver.inventory import Inventory
from dra_driver.node import Node
from dra_driver.nvml import Nvml, NvmlError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_AGAIN_AFTER_FAILURE = 5.0  # seconds; a driver's installer takes minutes, so this is soon
_HANGS_AFTER = 15.0


class Discovery:
    """`found` is called on the event loop after each look, with the inventory; None: there never was one.

    `again`: seconds from one look to the next.
    """

    def __init__(
        self,
        *,
        nvml: Nvml,
        driver: Driver,
        node: Node,
        conditions: Conditions,
        found: Callable[[Inventory | None], None],
        again: float = 30.0,
    ) -> None:
        self._nvml = nvml
        self._driver = driver
        self._node = node
        self._conditions = conditions
        self._found = found
        self._again = again

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            is_good = await self.look()
            await asyncio.sleep(self._again if is_good else min(self._again, _AGAIN_AFTER_FAILURE))

    async def look(self) -> bool:
        """Once; says whether everything is there."""
        files = await self._look_for_files()
        cards = await self._look_for_cards()
        if files is None and isinstance(cards, Inventory):
            self._node.found(cards)
        else:
            self._node.not_found(files or str(cards))
        self._found(self._node.cards)
        return files is None and isinstance(cards, Inventory)

    async def _look_for_files(self) -> str | None:
        try:
            files = await asyncio.to_thread(self._driver.files)
        except (DriverNotReadyError, OSError) as error:
            self._conditions.fail(Condition.DRIVER_FILES, str(error))
            return str(error)
        self._conditions.hold(
            Condition.DRIVER_FILES, f"driver {files.version}, {len(files.libraries)} libraries"
        )
        return None

    async def _look_for_cards(self) -> Inventory | str:
        answer = _in_a_thread(self._nvml.read)
        done, _ = await asyncio.wait({answer}, timeout=_HANGS_AFTER)
        if not done:
            silence = f"the NVIDIA driver has not answered for {_HANGS_AFTER:g} s; waiting for it"
            self._conditions.fail(Condition.GPUS, silence)
            self._node.not_found(silence)
        try:
            inventory = await answer
        except NvmlError as error:
            self._conditions.fail(Condition.GPUS, str(error))
            return str(error)
        faults = "; ".join(f"{fault.card} {fault.reason}" for fault in inventory.faults)
        summary = f"{len(inventory.cards)} cards usable" + (f", not used: {faults}" if faults else "")
        if inventory.cards or not inventory.faults:
            self._conditions.hold(Condition.GPUS, summary)
        else:
            self._conditions.fail(Condition.GPUS, summary)
        return inventory


def _in_a_thread(work: Callable[[], _T]) -> asyncio.Future[_T]:
    """As asyncio.to_thread, but the interpreter does not wait for the thread at exit."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_T] = loop.create_future()

    def settle(outcome: Callable[[], None]) -> None:
        if not future.cancelled():
            outcome()

    def run() -> None:
        outcome: Callable[[], None]
        try:
            outcome = partial(future.set_result, work())
        except BaseException as error:
            outcome = partial(future.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended while the driver was silent
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="nvml", daemon=True).start()
    return future
