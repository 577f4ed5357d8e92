"""Compares what the ledger, the grant directories, the CDI directory and the API server have, and converges.

The kubelet asks once: within a boot nobody but us brings back a document that was lost, and nobody at all
takes back a claim that went while we were away. `decide` is pure: what there is of one claim → what to do.
What destroys is done only when it is called for again some time later, and only after the API server has
said that the claim is gone; an API server that does not answer has said nothing.

The API server and the driver are asked without a lock, so neither can hold up Prepare or Unprepare; what is
done then happens under the claim's lock and the node's, and not at all if anybody has worked on the claim
meanwhile. While a new agent replaces an old one, only the one that leads converges: to its own release's
documents and library. The other only keeps its count of what is handed out.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import random
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from cdi.store import Store
from dra_driver.cards.inventory import Inventory
from dra_driver.claims import stock
from dra_driver.claims.allocation import ClaimRef, is_held_here
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger import Ledger, Stored
from dra_driver.claims.ledger_file import Entry, State
from dra_driver.claims.prepare import Preparer, Record
from dra_driver.conditions import Condition, Conditions
from dra_driver.errors import ClaimError, GoneError
from dra_driver.kubelet.lead import Lead
from dra_driver.kubelet.node_lock import NodeLock
from dra_driver.names import DRIVER, ClaimUID
from dra_driver.process import logs

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
    UNPREPARE = "unprepare"
    REMOVE = "remove"

    @property
    def destroys(self) -> bool:
        return self in (Action.UNPREPARE, Action.REMOVE)


_WORDS = {
    Action.REWRITE: "files were lost or changed; written again",
    Action.RESTORE: "its ledger entry was lost; made again from the claim",
    Action.FINISH: "was left half prepared; prepared",
    Action.UNPREPARE: "is gone or no longer allocated to this node; unprepared",
    Action.REMOVE: "files without a ledger entry of this boot, and of no claim; removed",
}


@dataclass(frozen=True)
class Found:
    """One claim: what is counted, its file in the ledger, and the rest.

    `api` GONE is certain, also where the file can't be read and its name may be wrong. `is_whole`: its files
    are as Prepare would write them; of meaning where the API holds it.
    """

    held: Entry | None = None
    stored: Stored | None = None
    has_files: bool = False
    api: Api = Api.UNKNOWN
    is_whole: bool = True

    @property
    def is_unknown(self) -> bool:
        """There is something of it, maybe in use, and no entry to be read: the API server may know it."""
        if self.held is not None:
            return False
        return self.has_files if self.stored is None else self.stored.entry is None


def decide(found: Found) -> Action | None:
    """What to do; None: nothing, or nothing that is known to be right."""
    if found.held is None and not found.is_unknown:
        return Action.REMOVE if found.stored is not None else None  # what an earlier boot has left
    if found.api is Api.UNKNOWN:
        return None
    if found.held is None and found.api is Api.HELD:
        return Action.RESTORE
    if found.held is None:
        return Action.UNPREPARE if found.stored is not None else Action.REMOVE
    if found.api is Api.GONE:
        return Action.UNPREPARE
    if found.held.state is State.PREPARING:
        return Action.FINISH
    is_stored = found.stored is not None and found.stored.entry == found.held
    return None if is_stored and found.is_whole else Action.REWRITE


FAILED = "failed"
OUTCOMES = (*(action.value for action in Action), FAILED)


@dataclass(frozen=True)
class _Wanted:
    action: Action
    since: float


class Reconciler:
    """`period`: seconds; what destroys waits for half of it at least. `count` is told each of OUTCOMES.

    `fetch` reads a claim from the API server; raises ClaimError, GoneError where there is none. `search`
    finds those of some UIDs that there are; raises ClaimError. `tidy` is called, under the node's lock, when
    all that this node holds is as this release makes it; it blocks.
    """

    def __init__(
        self,
        *,
        node: str,
        ledger: Ledger,
        directories: GrantDirectories,
        store: Store,
        preparer: Preparer,
        lock: NodeLock,
        lead: Lead,
        conditions: Conditions,
        fetch: Callable[[ClaimRef], Awaitable[dict[str, Any]]],
        search: Callable[[Collection[ClaimUID]], Awaitable[dict[ClaimUID, dict[str, Any]]]],
        tidy: Callable[[], None],
        count: Callable[[str], None],
        period: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._ledger = ledger
        self._directories = directories
        self._store = store
        self._preparer = preparer
        self._lock = lock
        self._lead = lead
        self._conditions = conditions
        self._fetch = fetch
        self._search = search
        self._tidy = tidy
        self._count = count
        self._period = period
        self._clock = clock
        self._wanted: dict[ClaimUID, _Wanted] = {}
        self._inventory: Inventory | None = None
        self._sooner = asyncio.Event()
        preparer.restore_by(self.sooner)
        lead.listen(self.sooner)

    async def run(self) -> NoReturn:
        """Until cancelled: at once, each period, and when the cards have changed."""
        while True:
            self._sooner.clear()
            try:
                await self.look()
            except (OSError, ClaimError) as error:
                self._count(FAILED)
                _log.error("nothing can be reconciled: %s", error)
            wait = self._period * random.uniform(0.9, 1.1)  # noqa: S311 - so that nodes spread
            try:
                async with asyncio.timeout(wait):
                    await self._sooner.wait()
            except TimeoutError:
                pass

    def sooner(self) -> None:
        """Looks now instead of at the end of the period."""
        self._sooner.set()

    def found(self, inventory: Inventory | None) -> None:
        """The cards as they are now: documents may be other ones."""
        if inventory != self._inventory:
            self._inventory = inventory
            self._sooner.set()

    async def look(self) -> None:
        """Once, at all claims. Raises OSError for a directory that can't be read, ClaimError for the lock."""
        async with self._lock.held(anew=True):
            # In this order: an entry is written before, and removed after, the files that it stands for.
            files = await asyncio.to_thread(self._files)
            held, stored = dict(self._ledger.entries), dict(self._ledger.stored)
        if not self._lead.holds():
            self._wanted.clear()
            return
        uids = list(files | stored.keys() | held.keys())
        self._wanted = {uid: wanted for uid, wanted in self._wanted.items() if uid in uids}
        # An API server that fails is left alone for this round; the order is another one in the next.
        random.shuffle(uids)
        found = {uid: Found(held.get(uid), stored.get(uid), uid in files) for uid in uids}
        asking = _Asking([uid for uid, one in found.items() if one.is_unknown])
        await asyncio.gather(*(self._claim(uid, one, asking) for uid, one in found.items()))
        self._say_what_is_counted()
        if asking.problem is not None:
            self._count(FAILED)
            _log.warning("not all claims can be compared: %s", asking.problem)
        if not asking.is_partial:
            async with self._lock.held():
                await asyncio.to_thread(self._tidy)

    def _say_what_is_counted(self) -> None:
        uncounted = self._ledger.uncounted
        if uncounted:
            self._conditions.fail(Condition.LEDGER, stock.not_counted(uncounted))
        elif not self._conditions[Condition.LEDGER].holds:
            self._conditions.hold(Condition.LEDGER, "every claim is counted")

    def _files(self) -> frozenset[ClaimUID]:
        documents = (ClaimUID(identity) for identity in self._store.identities())
        return self._directories.claims().union(documents)

    async def _claim(self, uid: ClaimUID, found: Found, asking: _Asking) -> None:
        try:
            await self._converge(uid, found, asking)
        except ClaimError as error:
            asking.is_partial = True
            self._count(FAILED)
            _log.warning("%s", error)
        except Exception:
            # One claim that we don't understand must end neither the others' round nor the agent.
            asking.is_partial = True
            self._count(FAILED)
            _log.exception("claim %s can't be reconciled", uid)

    async def _converge(self, uid: ClaimUID, found: Found, asking: _Asking) -> None:
        seen = Record(found.held, found.stored)
        raw: dict[str, Any] = {}
        ref = _ref(uid, seen)
        logs.task_is_about(claim=str(ref))
        if ref.name or found.is_unknown:
            async with asking.slots:
                raw, api, is_whole = await self._ask(ref, found, asking)
            ref = _named_by(raw, ref) if api is Api.HELD else ref
            found = replace(found, api=api, is_whole=is_whole)
        action = self._in_time(uid, decide(found))
        if action is None:
            return
        if await self._act(action, ref, raw, seen):
            self._wanted.pop(uid, None)
            self._count(action.value)
            _log.warning("ResourceClaim %s: %s", ref, _WORDS[action])

    async def _ask(self, ref: ClaimRef, found: Found, asking: _Asking) -> tuple[dict[str, Any], Api, bool]:
        if asking.problem is not None:
            return {}, Api.UNKNOWN, True
        try:
            raw = await self._claim_of(ref, found, asking)
        except GoneError:
            return {}, Api.GONE, True
        except ClaimError as error:
            asking.failed(str(error), ends=not found.is_unknown)
            return {}, Api.UNKNOWN, True
        ref = _named_by(raw, ref) if found.is_unknown else ref
        if not is_held_here(ref, raw, driver=DRIVER, node=self._node):
            return raw, Api.GONE, True
        try:
            return raw, Api.HELD, await self._preparer.is_whole(ref, raw)
        except ClaimError as error:
            # No driver yet, a card that is lost: other conditions say so, and a claim that runs stays.
            asking.is_partial = True
            _log.debug("%s", error)
            return raw, Api.UNKNOWN, True

    async def _claim_of(self, ref: ClaimRef, found: Found, asking: _Asking) -> dict[str, Any]:
        """Also where the name is not known, or may be wrong; then all claims are looked through, once."""
        if not found.is_unknown:
            return await self._fetch(ref)
        if ref.name:
            try:
                raw = await self._fetch(ref)
            except GoneError:
                pass
            else:
                if (raw.get("metadata") or {}).get("uid") == ref.uid:
                    return raw
        async with asking.searching:
            if asking.found is None:
                asking.found = await self._search(asking.unknown)
        if ref.uid not in asking.found:
            raise GoneError(f"no ResourceClaim has the UID {ref.uid}")
        return asking.found[ref.uid]

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
        if action.destroys:
            return await self._preparer.remove(ref, seen)
        return await self._preparer.mend(ref, raw, seen)


def _ref(uid: ClaimUID, seen: Record) -> ClaimRef:
    """Without a name where none is known."""
    stored = seen.stored
    entry = seen.held or (stored.entry if stored is not None else None)
    if entry is not None:
        return ClaimRef(entry.namespace, entry.name, uid)
    return ClaimRef(*(stored.name if stored is not None and stored.name is not None else ("", "")), uid)


def _named_by(raw: dict[str, Any], ref: ClaimRef) -> ClaimRef:
    metadata = raw.get("metadata") or {}
    return ClaimRef(metadata.get("namespace", ref.namespace), metadata.get("name", ref.name), ref.uid)


class _Asking:
    """One round's questions. `problem`: why no more are put; `is_partial`: not all is known to be right."""

    def __init__(self, unknown: Collection[ClaimUID]) -> None:
        self.slots = asyncio.Semaphore(_AT_ONCE)
        self.problem: str | None = None
        self.is_partial = False
        self.unknown = unknown
        self.searching = asyncio.Lock()
        self.found: dict[ClaimUID, dict[str, Any]] | None = None

    def failed(self, why: str, *, ends: bool) -> None:
        """`ends`: the others would fail as well."""
        self.is_partial = True
        if ends:
            self.problem = why
        else:
            _log.warning("%s", why)
