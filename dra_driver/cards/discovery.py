"""Looks for the node's cards, again and again: drivers come late, are replaced, and cards are lost and found.

NVML may hang for good inside the kernel, so each look is made by a thread that nobody waits for at the end,
and there is no second look before the first has ended: it ends when the driver answers again, and until then
what is served is the last that was seen. Nothing else in the agent but the watch of events asks NVML.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NoReturn, TypeVar

from cdi.errors import DriverNotReadyError
from dra_driver.cards import rules
from dra_driver.cards.card_health import CardHealth
from dra_driver.cards.inventory import Inventory
from dra_driver.cards.nvml import Nvml, NvmlError
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.conditions import Condition, Conditions
from dra_driver.node import Node

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_AGAIN_AFTER_FAILURE = 5.0  # seconds; a driver's installer takes minutes, so this is soon
_HANGS_AFTER = 15.0
_SILENT_FOR_LONG = 60.0  # seconds; a driver that is replaced is back sooner, or takes minutes
_BETWEEN_LOOKS = 1.0  # seconds at least, whatever happens


class Discovery:
    """`found` is called on the event loop after each look, with the inventory; None: there never was one.

    `again`: seconds from one look to the next.
    """

    def __init__(
        self,
        *,
        nvml: Nvml,
        base: BaseEdits,
        node: Node,
        conditions: Conditions,
        health: CardHealth,
        found: Callable[[Inventory | None], None],
        again: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._nvml = nvml
        self._base = base
        self._node = node
        self._conditions = conditions
        self._health = health
        self._found = found
        self._again = again
        self._clock = clock
        self._soon = asyncio.Event()
        self._silent_since: float | None = None
        health.when_news(self.look_soon)

    def look_soon(self) -> None:
        """There is something new to be seen."""
        self._soon.set()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            self._soon.clear()
            is_good = await self.look()
            pause = self._again if is_good else min(self._again, _AGAIN_AFTER_FAILURE)
            await asyncio.sleep(min(pause, _BETWEEN_LOOKS))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(pause - _BETWEEN_LOOKS, 0)):
                    await self._soon.wait()

    async def look(self) -> bool:
        """Once; says whether everything is there."""
        files = await self._look_for_files()
        cards = await self._look_for_cards()
        if isinstance(cards, Inventory):
            cards = await self._health.looked(cards)
            self._tell(rules.apply(self._node.rules, cards))
        if files is None and isinstance(cards, Inventory):
            self._silent_since = None
            self._health.answered()
            self._node.found(cards)
        else:
            self._silent(files or str(cards))
        self._found(self._node.cards)
        return files is None and isinstance(cards, Inventory)

    async def _look_for_files(self) -> str | None:
        known = self._node.cards
        try:
            found = await asyncio.to_thread(self._base.look, known.cards if known is not None else ())
        except (DriverNotReadyError, OSError) as error:
            self._conditions.fail(Condition.DRIVER_FILES, str(error))
            return str(error)
        self._conditions.hold(Condition.DRIVER_FILES, found)
        return None

    async def _look_for_cards(self) -> Inventory | str:
        answer = _in_a_thread(self._ask)
        while not (await asyncio.wait({answer}, timeout=_HANGS_AFTER))[0]:
            silence = f"the NVIDIA driver has not answered for {_HANGS_AFTER:g} s; waiting for it"
            self._conditions.fail(Condition.GPUS, silence)
            self._silent(silence)
            self._found(self._node.cards)
        try:
            inventory = answer.result()
        except NvmlError as error:
            self._conditions.fail(Condition.GPUS, str(error))
            return str(error)
        return inventory

    def _ask(self) -> Inventory:
        """In a thread of its own."""
        if self._health.before_look():
            self._nvml.close()
        return self._nvml.read()

    def _silent(self, why: str) -> None:
        now = self._clock()
        if self._silent_since is None:
            self._silent_since = now
        self._node.not_found(why)
        self._health.silent(now - self._silent_since >= _SILENT_FOR_LONG)

    def _tell(self, inventory: Inventory) -> None:
        lost = [one for one in inventory.lost if one.card.withheld is None]
        not_used = [f"{one.card.uuid} is lost: {one.reason}" for one in lost]
        not_used += [f"{fault.card} {fault.reason}" for fault in inventory.faults]
        not_used += [f"{card.uuid} {card.withheld}" for card in inventory.cards if card.withheld is not None]
        usable = len(inventory.published) - len(lost)
        summary = f"{usable} cards usable" + (f", not used: {'; '.join(not_used)}" if not_used else "")
        if usable or not (inventory.faults or lost):
            self._conditions.hold(Condition.GPUS, summary)
        else:
            self._conditions.fail(Condition.GPUS, summary)


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
