"""Compares what the ledger, the grant directories, the CDI directory and the API server have, and converges.

The kubelet asks once: within a boot nobody but us brings back a document that was lost, and nobody at all
takes back a claim that went while we were away. `decide` is pure: what there is of one claim → what to do.
What destroys is done only when it is called for again some time later, and only after the API server has
said that the claim is gone; an API server that does not answer has said nothing.

The API server and the driver are asked without a lock, so neither can hold up Prepare or Unprepare; what is
done then happens under the claim's lock, and not at all if anybody has worked on the claim meanwhile. While
a new agent replaces an old one both write here: what the ledger's directory says counts more than memory.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from cdi.store import Store
from dra_driver.claims import ClaimRef, is_held_here
from dra_driver.conditions import Condition, Conditions
from dra_driver.errors import ClaimError, GoneError
from dra_driver.grants import GrantDirectories
from dra_driver.inventory import Inventory
from dra_driver.ledger import Entry, Ledger, State, Stored
from dra_driver.names import DRIVER, ClaimUID
from dra_driver.prepare import Preparer, Record

_log = logging.getLogger(__name__)
_AT_ONCE = 4  # requests; a thousand nodes do this to one API server


class Api(enum.Enum):
    """What the API server says of a claim."""

    UNKNOWN = "unknown"
    """It was not asked, or did not answer, or the answer can't be compared (no driver yet)."""
    HELD = "held"
    """It is allocated to this node."""
    GONE = "gone"
    """It does not exist, or is another one by now, or is not allocated to this node any more."""


class Action(enum.Enum):
    """What is done to a claim."""

    REWRITE = "rewrite"
    RESTORE = "restore"
    FINISH = "finish"
    FOLLOW = "follow"
    UNPREPARE = "unprepare"
    REMOVE = "remove"

    @property
    def destroys(self) -> bool:
        return self in (Action.UNPREPARE, Action.REMOVE)


_WORDS = {
    Action.REWRITE: "files were lost or changed; written again",
    Action.RESTORE: "its ledger entry was lost; made again from the claim",
    Action.FINISH: "was left half prepared; prepared",
    Action.FOLLOW: "was changed in the ledger by another agent; counted as it is there",
    Action.UNPREPARE: "is gone or no longer allocated to this node; unprepared",
    Action.REMOVE: "files without a ledger entry of this boot; removed",
}


@dataclass(frozen=True)
class Found:
    """One claim. `is_whole`: its files are as Prepare would write them; of meaning where the API holds it."""

    held: Entry | None = None
    stored: Stored | None = None
    has_files: bool = False
    api: Api = Api.UNKNOWN
    is_whole: bool = True


def decide(found: Found, boot_id: str) -> Action | None:
    """What to do; None: nothing, or nothing that is known to be right."""
    stored = found.stored.entry if found.stored is not None else None
    if stored is not None and stored.boot_id != boot_id:
        return Action.REMOVE if found.held is None else None
    if stored is not None and stored != found.held:
        return Action.FOLLOW
    if found.held is None:
        if found.stored is None:
            return Action.REMOVE if found.has_files else None
        # A file that can't be read is the entry of a claim that may well run; and it may have a wrong name in
        # it, so that the API server has none of it proves nothing.
        return Action.RESTORE if found.api is Api.HELD else None
    if found.stored is None and not found.has_files:
        return Action.FOLLOW
    if found.api is Api.GONE:
        return Action.UNPREPARE
    if found.api is Api.UNKNOWN:
        return None
    if found.held.state is State.PREPARING:
        return Action.FINISH
    return None if stored is not None and found.is_whole else Action.REWRITE


FAILED = "failed"
OUTCOMES = (*(action.value for action in Action), FAILED)


@dataclass(frozen=True)
class _Wanted:
    action: Action
    since: float


class Reconciler:
    """`period`: seconds; what destroys waits for half of it at least. `count` is told each of OUTCOMES.

    `fetch` reads a claim from the API server; raises ClaimError, GoneError where there is none.
    """

    def __init__(
        self,
        *,
        node: str,
        ledger: Ledger,
        directories: GrantDirectories,
        store: Store,
        preparer: Preparer,
        conditions: Conditions,
        fetch: Callable[[ClaimRef], Awaitable[dict[str, Any]]],
        count: Callable[[str], None],
        period: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._ledger = ledger
        self._directories = directories
        self._store = store
        self._preparer = preparer
        self._conditions = conditions
        self._fetch = fetch
        self._count = count
        self._period = period
        self._clock = clock
        self._wanted: dict[ClaimUID, _Wanted] = {}
        self._inventory: Inventory | None = None
        self._sooner = asyncio.Event()

    async def run(self) -> NoReturn:
        """Until cancelled: at once, each period, and when the cards have changed."""
        while True:
            self._sooner.clear()
            try:
                await self.look()
            except OSError as error:
                self._count(FAILED)
                _log.error("nothing can be reconciled: %s", error)
            wait = self._period * random.uniform(0.9, 1.1)  # noqa: S311 - so that nodes spread
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                pass

    def found(self, inventory: Inventory | None) -> None:
        """The cards as they are now: documents may be other ones."""
        if inventory != self._inventory:
            self._inventory = inventory
            self._sooner.set()

    async def look(self) -> None:
        """Once, at all claims. Raises OSError where a directory can't be read."""
        files, stored = await asyncio.to_thread(self._look_at_disk)
        uids = list(files | stored.keys() | self._ledger.entries.keys())
        self._wanted = {uid: wanted for uid, wanted in self._wanted.items() if uid in uids}
        # An API server that fails is left alone for this round; the order is another one in the next.
        random.shuffle(uids)
        asking = _Asking()
        await asyncio.gather(*(self._claim(uid, uid in files, stored.get(uid), asking) for uid in uids))
        if not self._conditions[Condition.LEDGER].holds and stored.keys() <= self._ledger.entries.keys():
            self._conditions.hold(Condition.LEDGER, "every claim is counted")
        if asking.problem is not None:
            self._count(FAILED)
            _log.warning("not all claims can be compared: %s", asking.problem)

    def _look_at_disk(self) -> tuple[frozenset[ClaimUID], dict[ClaimUID, Stored]]:
        # In this order: an entry is written before, and removed after, the files that it stands for.
        documents = (ClaimUID(identity) for identity in self._store.identities())
        return self._directories.claims().union(documents), self._ledger.all_stored()

    async def _claim(self, uid: ClaimUID, has_files: bool, stored: Stored | None, asking: _Asking) -> None:
        try:
            await self._converge(uid, has_files, stored, asking)
        except ClaimError as error:
            self._count(FAILED)
            _log.warning("%s", error)
        except Exception:
            # One claim that we don't understand must end neither the others' round nor the agent.
            self._count(FAILED)
            _log.exception("claim %s can't be reconciled", uid)

    async def _converge(self, uid: ClaimUID, has_files: bool, stored: Stored | None, asking: _Asking) -> None:
        held = self._ledger.entries.get(uid)
        ref = _ref(uid, held, stored)
        raw: dict[str, Any] = {}
        api, is_whole = Api.UNKNOWN, True
        if ref.name:
            async with asking.slots:
                raw, api, is_whole = await self._ask(ref, asking)
        found = Found(held, stored, has_files, api, is_whole)
        action = self._in_time(uid, decide(found, self._ledger.boot_id))
        if action is None:
            return
        if await self._act(action, ref, raw, Record(held, stored)):
            self._wanted.pop(uid, None)
            self._count(action.value)
            _log.warning("ResourceClaim %s: %s", ref, _WORDS[action])

    async def _ask(self, ref: ClaimRef, asking: _Asking) -> tuple[dict[str, Any], Api, bool]:
        if asking.problem is not None:
            return {}, Api.UNKNOWN, True
        try:
            raw = await self._fetch(ref)
        except GoneError:
            return {}, Api.GONE, True
        except ClaimError as error:
            asking.problem = str(error)
            return {}, Api.UNKNOWN, True
        if not is_held_here(ref, raw, driver=DRIVER, node=self._node):
            return raw, Api.GONE, True
        try:
            return raw, Api.HELD, await self._preparer.is_whole(ref, raw)
        except ClaimError as error:
            # No driver yet, a card that is lost: other conditions say so, and a claim that runs stays.
            _log.debug("%s", error)
            return raw, Api.UNKNOWN, True

    def _in_time(self, uid: ClaimUID, action: Action | None) -> Action | None:
        """None instead of what destroys, unless it has been wanted for a while, without a break."""
        if action is None or not action.destroys:
            self._wanted.pop(uid, None)
            return action
        wanted = self._wanted.get(uid)
        if wanted is None or wanted.action is not action:
            wanted = self._wanted[uid] = _Wanted(action, self._clock())
        return action if self._clock() - wanted.since >= self._period / 2 else None

    async def _act(self, action: Action, ref: ClaimRef, raw: dict[str, Any], seen: Record) -> bool:
        match action:
            case Action.REWRITE | Action.RESTORE | Action.FINISH:
                return await self._preparer.mend(ref, raw, seen)
            case Action.FOLLOW:
                return await self._preparer.follow(ref, seen)
            case Action.UNPREPARE | Action.REMOVE:
                return await self._preparer.remove(ref, seen)


def _ref(uid: ClaimUID, held: Entry | None, stored: Stored | None) -> ClaimRef:
    """Without a name where none is known."""
    entry = held or (stored.entry if stored is not None else None)
    if entry is not None:
        return ClaimRef(entry.namespace, entry.name, uid)
    return ClaimRef(*(stored.name if stored is not None and stored.name is not None else ("", "")), uid)


class _Asking:
    """The state of one round's questions; `problem`: why no more are put."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_AT_ONCE)
        self.problem: str | None = None
