"""Keeps what is known against the node's cards: hears of errors, looks again, remembers, sees the end of it.

Between the effects (the watch of NVML's events, two kinds of files) and the pure rules
(`inventory.with_lost`, xids.py, taints.py). All of it runs on the event loop but the files, which are read
and written in threads. Without a writable disk everything works but the memory over restarts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

from dra_driver.cards import xids
from dra_driver.cards.inventory import Inventory, with_lost, with_unlisted
from dra_driver.cards.nvml_watch import CardEvent, Watch
from dra_driver.cards.remembered_cards import RememberedCards
from dra_driver.cards.xid_files import XidFiles
from dra_driver.cards.xids import Sight, Xid
from dra_driver.node import Node

_log = logging.getLogger(__name__)
_LETS_GO_WITHIN = 5.0  # seconds; longer than the watch waits at a time
_LONGEST_PAUSE = 10  # looks, from one session in which a lost card is asked for to the next
_REPEATED = 10.0  # seconds; of a card that reports errors all the time not each is written down


class CardHealth:
    """`life`: tells this boot and this load of the NVIDIA kernel driver from all others.

    `driven`: how many cards that driver has, which may be more than NVML lists.
    `ignored`: errors that an administrator doesn't mind. `count` is told the number of each error.
    """

    def __init__(
        self,
        *,
        node: Node,
        cards: RememberedCards,
        files: XidFiles,
        life: Callable[[], str],
        driven: Callable[[], int],
        ignored: frozenset[int] = frozenset(),
        count: Callable[[int], None],
        clock: Callable[[], float] = time.time,
        watch: Callable[..., Watch] = Watch,
    ) -> None:
        self._node = node
        self._cards = cards
        self._files = files
        self._life = life
        self._driven = driven
        self._life_now = ""
        self._ignored = ignored
        self._count = count
        self._clock = clock
        self._found: Inventory | None = None
        self._saved: dict[str, Xid] = {}
        self._dirty = asyncio.Event()
        self._on_disk = asyncio.Lock()
        self._look_soon: Callable[[], None] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._must_renew = False
        self._trouble: set[str] = set()
        self._pause = self._looks_left = 1
        self._watch = watch(
            heard=lambda event: self._call(self._hear, event),
            unheard=lambda why: self._call(self._unheard, why),
            troubled=lambda: self._call(self._look_soon),
        )

    # --- at start -----------------------------------------------------------------------------------------

    async def recall(self) -> None:
        """What an earlier agent of this boot has known; before the first look."""
        self._loop = asyncio.get_running_loop()
        self._found = await asyncio.to_thread(self._cards.read)
        if self._found is not None:
            self._node.recall(self._found)
        self._saved = await self._read()
        self._life_now = await asyncio.to_thread(self._life)
        self._set({uuid: xid for uuid, xid in self._saved.items() if xid.life == self._life_now})

    async def run(self) -> NoReturn:
        """Writes down what was heard, until cancelled."""
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            async with self._on_disk:
                await self._save()

    # --- what discovery tells -----------------------------------------------------------------------------

    def when_news(self, look_soon: Callable[[], None]) -> None:
        """`look_soon` is called when a look at the cards is worth while before its time."""
        self._look_soon = look_soon

    def before_look(self) -> bool:
        """In the thread that is about to ask NVML. True: it must be closed first, to be asked anew."""
        if self._must_renew and not self._watch.let_go(_LETS_GO_WITHIN):
            _log.warning("NVML's events are not let go of; the cards are asked in the old session")
            return False
        return self._must_renew

    async def looked(self, raw: Inventory) -> Inventory:
        """The driver has answered; returns what it lacks, too."""
        found = with_unlisted(with_lost(self._found, raw), await asyncio.to_thread(self._driven))
        self._found = found
        self._life_now = await asyncio.to_thread(self._life)
        async with self._on_disk:
            on_disk = await self._read()
            known = _merged(self._node.ailments.xids, self._saved, on_disk)
            self._saved = on_disk
            instances = frozenset(card.uuid for card in found.cards if card.mig is not None)
            self._set(xids.looked(known, _sights(found), instances, self._life_now, self._clock()))
            await self._save()
        try:
            await asyncio.to_thread(self._cards.write, found)
        except OSError as error:
            _log.warning("the cards can't be written down for the next start: %s", error)
        self._plan_renewal(found)
        self._watch.watch(frozenset(uuid for uuid in raw.gpus if raw.answers(uuid)))
        return found

    def _plan_renewal(self, found: Inventory) -> None:
        """A card that is lost is asked for in a session of its own, or it would stay lost for this one.

        Not with each look where it stays lost: the others' errors are not heard meanwhile, and a driver that
        nobody has open may put them to sleep.
        """
        trouble = {lost.card.uuid for lost in found.lost}
        trouble |= {fault.card for fault in found.faults if fault.unanswered}
        if trouble != self._trouble:
            self._trouble, self._pause, self._looks_left = trouble, 1, 1
        self._looks_left -= 1
        self._must_renew = bool(trouble) and self._looks_left <= 0
        if self._must_renew:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self._looks_left = self._pause

    def silent(self, for_long: bool) -> None:
        """The driver does not answer, or has no card, or lacks files. `for_long`: so that it counts."""
        self._must_renew = True
        self._ail(is_silent=for_long)

    def answered(self) -> None:
        """The driver is all there again."""
        self._ail(is_silent=False)

    # --- what the watch tells -----------------------------------------------------------------------------

    def _call(self, work: Callable[..., None], *arguments: object) -> None:
        """From the watch's thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(work, *arguments)

    def _hear(self, event: CardEvent) -> None:
        self._count(event.xid)
        counts = xids.is_fault(event.xid, self._ignored)
        _log.log(
            logging.WARNING if counts else logging.INFO,
            "card %s reports XID %d%s",
            event.gpu_uuid,
            event.xid,
            f": tainted until it is over, or {self._files.path(event.gpu_uuid)} is removed"
            if counts
            else ", which says nothing against it",
        )
        if event.xid == xids.RECOVERY_ACTION_CHANGED:
            self._look_soon()
        if not counts:
            return
        known = dict(self._node.ailments.xids)
        now = self._clock()
        is_new = False
        for uuid in self._meant(event):
            before = known.get(uuid)
            new = Xid(
                uuid=uuid,
                gpu_uuid=event.gpu_uuid,
                number=event.xid,
                first=now,
                last=now,
                life=self._life_now,
            )
            if before is None or now - before.last >= _REPEATED:
                known[uuid] = xids.reported(before, new)
                is_new = is_new or before is None
        self._set(known)
        self._dirty.set()
        if is_new:
            self._look_soon()

    def _meant(self, event: CardEvent) -> list[str]:
        """UUIDs of the instances that an error is about, or of the card."""
        if event.gpu_instance is None or self._found is None:
            return [event.gpu_uuid]
        meant = [
            card.uuid
            for card in self._found.cards
            if card.mig is not None
            and card.gpu_uuid == event.gpu_uuid
            and card.mig.gpu_instance == event.gpu_instance
            and event.compute_instance in (None, card.mig.compute_instance)
        ]
        return meant or [event.gpu_uuid]

    def _unheard(self, why: Mapping[str, str]) -> None:
        for uuid, reason in why.items():
            if self._node.ailments.unheard.get(uuid) != reason:
                _log.info("card %s is not monitored: %s", uuid, reason)
        self._ail(unheard=dict(why))

    # --- state and files ----------------------------------------------------------------------------------

    def _set(self, known: Mapping[str, Xid]) -> None:
        # What was reported before an administrator said that it doesn't matter doesn't matter either.
        after = {uuid: xid for uuid, xid in known.items() if xid.number not in self._ignored}
        for uuid in self._node.ailments.xids.keys() - after.keys():
            _log.warning("card %s is well again, its error is over", uuid)
        self._ail(xids=after)

    def _ail(self, **changes: object) -> None:
        self._node.ail(replace(self._node.ailments, **changes))  # type: ignore[arg-type]

    async def _read(self) -> dict[str, Xid]:
        """What is known stays where the disk can't be read."""
        try:
            return await asyncio.to_thread(self._files.read)
        except OSError as error:
            _log.warning("remembered errors of cards can't be read: %s", error)
            return dict(self._saved)

    async def _save(self) -> None:
        after = dict(self._node.ailments.xids)
        try:
            await asyncio.to_thread(self._files.write, self._saved, after)
        except OSError as error:
            _log.warning("errors of cards can't be written down for the next start: %s", error)
        else:
            self._saved = after


def _merged(known: Mapping[str, Xid], saved: Mapping[str, Xid], on_disk: Mapping[str, Xid]) -> dict[str, Xid]:
    """What is known, less what somebody has removed from the disk, and what another agent has written there.

    `saved`: what we believed to be on disk.
    """
    kept = {uuid: xid for uuid, xid in known.items() if uuid not in saved or uuid in on_disk}
    others = {uuid: xid for uuid, xid in on_disk.items() if uuid not in known and saved.get(uuid) != xid}
    return others | kept


def _sights(found: Inventory) -> dict[str, Sight]:
    gpus = found.gpus | {lost.card.gpu_uuid for lost in found.lost}
    return {uuid: Sight(found.answers(uuid), found.actions.get(uuid)) for uuid in gpus}


def life_of_driver(boot_id: str, sys_root: Path) -> str:
    """Differs after each boot and each time that the NVIDIA kernel driver is loaded.

    The kernel gives each directory of sysfs a number when it makes it, and makes one for a module as it is
    loaded.
    """
    try:
        return f"{boot_id}/{(sys_root / 'module' / 'nvidia').stat().st_ino}"
    except OSError:
        return boot_id
