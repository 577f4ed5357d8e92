"""Prepare and Unprepare of one claim: the order of the effects, and their undoing.

Prepare:    claim → plan → ledger (preparing) → grant files → CDI document → ledger (prepared)
Unprepare:  CDI document → grant files → ledger entry

A crash between any two steps leaves a ledger entry, and both operations start over from there; every step is
safe to repeat. Files are written on every Prepare, also for a claim that is prepared: after a reboot, or when
somebody has emptied the CDI directory, the kubelet asks again and the answer must be true. A Prepare that
fails undoes what it made; one of a claim that was prepared before undoes nothing, since its containers run.
Unprepare uses names derived from the UID and this node's files: no API server, no GPU driver, no ledger entry
needed.

One claim is handled by one task at a time; different claims side by side. A kubelet that gives up waiting
does not stop the work: its next request finds it done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from cdi.driver_files import Driver, DriverNotReadyError
from cdi.model import Spec
from cdi.store import Store
from dra_driver.claims import ClaimRef, read_allocation
from dra_driver.document import cdi_document
from dra_driver.errors import PermanentError, RetryableError
from dra_driver.grants import GrantDirectories
from dra_driver.ledger import Entry, GrantEntry, Ledger, State, Stored
from dra_driver.library import InstalledLibrary
from dra_driver.names import DRIVER, ClaimUID
from dra_driver.node import Node
from dra_driver.plan import Grant, Plan, make_plan, refuse_overcommit
from dra_driver.steps import Step, Steps
from interposer.abi import AbiError

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


@dataclass(frozen=True)
class PreparedDevice:
    """What the kubelet is told of one grant."""

    request: str
    pool: str
    device: str
    cdi_id: str
    share_id: str | None


@dataclass(frozen=True)
class Record:
    """What the ledger had of a claim when somebody looked: in memory, and in its directory."""

    held: Entry | None
    stored: Stored | None


class Preparer:
    """Everything it touches comes in here; `fetch` reads a claim from the API server."""

    def __init__(
        self,
        *,
        node: Node,
        driver: Driver,
        ledger: Ledger,
        directories: GrantDirectories,
        store: Store,
        steps: Steps,
        fetch: Callable[[ClaimRef], Awaitable[dict[str, Any]]],
    ) -> None:
        self._node = node
        self._driver = driver
        self._ledger = ledger
        self._directories = directories
        self._store = store
        self._steps = steps
        self._fetch = fetch
        self._locks: dict[ClaimUID, _Lock] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Raises ClaimError; then nothing of the claim is left, unless it was prepared before."""
        return await self._to_the_end(self._prepare(ref))

    async def unprepare(self, ref: ClaimRef) -> None:
        """Of an unknown claim too. Raises ClaimError; what is left then, the next call removes."""
        await self._to_the_end(self._unprepare(ref))

    async def is_whole(self, ref: ClaimRef, raw: Mapping[str, Any]) -> bool:
        """Whether everything of the claim is there, as Prepare would write it. Raises ClaimError."""
        plan, library = self._plan(ref, raw)
        try:
            return await asyncio.to_thread(self._is_written, plan, library)
        except (OSError, DriverNotReadyError) as error:
            raise RetryableError(f"ResourceClaim {ref} can't be compared: {error}") from error

    async def mend(self, ref: ClaimRef, raw: Mapping[str, Any], seen: Record) -> bool:
        """Writes everything of a claim again that the ledger has, or had: its entry may be what was lost.

        False, and nothing done, if the claim is not as seen any more. Raises ClaimError.
        """

        async def work() -> None:
            entry = seen.held
            if entry is None:
                # Its entry was lost, its containers may run: a failure below must not take their files away.
                plan, library = self._plan(ref, raw)
                entry = self._entry(plan, library.version if library else None)
            if seen.stored != Stored(entry):
                await asyncio.to_thread(self._ledger.write, entry)
            self._ledger.hold(entry)
            await self._hand_out(ref, raw)

        return await self._to_the_end(self._if_still(ref, seen, work))

    async def remove(self, ref: ClaimRef, seen: Record) -> bool:
        """Removes everything of a claim that nobody will unprepare. False as of `mend`; raises ClaimError."""

        async def work() -> None:
            await asyncio.to_thread(self._remove, ref.uid)
            self._ledger.release(ref.uid)

        return await self._to_the_end(self._if_still(ref, seen, work))

    async def follow(self, ref: ClaimRef, seen: Record) -> bool:
        """Counts what the ledger's directory has of a claim. False as of `mend`; raises ClaimError."""

        async def work() -> None:
            if seen.stored is None:
                self._ledger.release(ref.uid)
            elif seen.stored.entry is not None:
                self._ledger.hold(seen.stored.entry)

        return await self._to_the_end(self._if_still(ref, seen, work))

    async def finish(self) -> None:
        """Waits for the work that is going on."""
        if self._running:
            await asyncio.wait(self._running)

    async def _to_the_end(self, work: Coroutine[Any, Any, _T]) -> _T:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.debug("failed: %s", task.exception())

    @asynccontextmanager
    async def _only_one(self, ref: ClaimRef) -> AsyncIterator[None]:
        if not ref.uid or "/" in ref.uid or ref.uid.startswith("."):
            raise PermanentError(f"ResourceClaim {ref}: {ref.uid!r} can't be a UID")
        lock = self._locks.setdefault(ref.uid, _Lock())
        lock.waiting += 1
        try:
            async with lock.lock:
                yield
        finally:
            lock.waiting -= 1
            if not lock.waiting:
                del self._locks[ref.uid]

    async def _prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        async with self._only_one(ref):
            with self._steps.step(Step.CLAIM):
                raw = await self._fetch(ref)
            return await self._hand_out(ref, raw)

    async def _hand_out(self, ref: ClaimRef, raw: Mapping[str, Any]) -> tuple[PreparedDevice, ...]:
        with self._steps.step(Step.PLAN):
            plan, library = self._plan(ref, raw)
            if not plan.grants:
                return ()
            refuse_overcommit(plan, self._ledger.held_by_others(ref.uid), self._node.scales)
        known = self._ledger.entries.get(ref.uid)
        before = known if known is not None and known.state is State.PREPARED else None
        entry = self._entry(plan, library.version if library else None)
        unfinished = msgspec.structs.replace(entry, state=State.PREPARING)
        self._ledger.hold(unfinished if before is None else entry)
        try:
            await asyncio.to_thread(self._make, plan, entry, before, library)
        except (OSError, AbiError, DriverNotReadyError) as error:
            await self._give_up(ref, before)
            raise RetryableError(f"ResourceClaim {ref} can't be prepared: {error}") from error
        except BaseException:
            await self._give_up(ref, before)
            raise
        self._ledger.hold(entry)
        return tuple(self._answer(grant) for grant in plan.grants)

    def _plan(self, ref: ClaimRef, raw: Mapping[str, Any]) -> tuple[Plan, InstalledLibrary | None]:
        """No grants where nothing is ours; the library where something needs it. Raises ClaimError."""
        allocation = read_allocation(ref, raw, driver=DRIVER, node=self._node.name)
        if not allocation.results:
            return Plan(ref, ()), None
        plan = make_plan(allocation, self._node.inventory(), self._node.scales)
        is_limited = any(grant.limits is not None for grant in plan.grants)
        return plan, self._node.library() if is_limited else None

    def _is_written(self, plan: Plan, library: InstalledLibrary | None) -> bool:
        return self._store.read(plan.claim.uid) == self._document(
            plan, library
        ).to_json() and self._directories.are_made(plan.claim.uid, plan.grants)

    async def _if_still(self, ref: ClaimRef, seen: Record, work: Callable[[], Awaitable[None]]) -> bool:
        """Whoever asks the API server does so without the lock; so what it answered may be of the past."""
        async with self._only_one(ref):
            try:
                stored = await asyncio.to_thread(self._ledger.stored, ref.uid)
                # Each Prepare makes an entry of its own, so the same object means that there was none.
                if self._ledger.entries.get(ref.uid) is not seen.held or stored != seen.stored:
                    return False
                await work()
            except OSError as error:
                raise RetryableError(f"ResourceClaim {ref} can't be reconciled: {error}") from error
            return True

    def _make(self, plan: Plan, entry: Entry, before: Entry | None, library: InstalledLibrary | None) -> None:
        """The effects, in a thread."""
        with self._steps.step(Step.PLAN):
            spec = self._document(plan, library)
        if before is None:
            with self._steps.step(Step.LEDGER_PREPARING):
                self._ledger.write(msgspec.structs.replace(entry, state=State.PREPARING))
        with self._steps.step(Step.GRANTS):
            self._directories.make(plan.claim.uid, plan.grants)
        with self._steps.step(Step.CDI):
            self._store.write(plan.claim.uid, spec)
        if before != entry:
            with self._steps.step(Step.LEDGER_PREPARED):
                self._ledger.write(entry)

    def _document(self, plan: Plan, library: InstalledLibrary | None) -> Spec:
        return cdi_document(
            plan,
            driver=self._driver.files().edits,
            nodes={grant.card.uuid: self._driver.card(grant.card.minor) for grant in plan.grants},
            library=library,
            directories=self._directories,
        )

    async def _give_up(self, ref: ClaimRef, before: Entry | None) -> None:
        if before is not None:
            self._ledger.hold(before)
            return
        try:
            await asyncio.to_thread(self._remove, ref.uid)
        except OSError as error:
            # The entry stays, in memory as on disk: the kubelet's next call of either kind takes it up.
            _log.error("ResourceClaim %s: what was made for it can't be removed: %s", ref, error)
        else:
            self._ledger.release(ref.uid)

    async def _unprepare(self, ref: ClaimRef) -> None:
        async with self._only_one(ref):
            try:
                await asyncio.to_thread(self._remove, ref.uid)
            except OSError as error:
                raise RetryableError(f"ResourceClaim {ref} can't be unprepared: {error}") from error
            self._ledger.release(ref.uid)

    def _remove(self, uid: ClaimUID) -> None:
        """Everything of a claim, the ledger's entry last; in a thread."""
        with self._steps.step(Step.REMOVE_CDI):
            self._store.remove(uid)
        with self._steps.step(Step.REMOVE_GRANTS):
            self._directories.remove(uid)
        with self._steps.step(Step.REMOVE_LEDGER):
            self._ledger.erase(uid)

    def _entry(self, plan: Plan, library: str | None) -> Entry:
        return Entry(
            uid=plan.claim.uid,
            namespace=plan.claim.namespace,
            name=plan.claim.name,
            boot_id=self._ledger.boot_id,
            state=State.PREPARED,
            grants=tuple(_grant_entry(grant) for grant in plan.grants),
            library=library,
        )

    def _answer(self, grant: Grant) -> PreparedDevice:
        return PreparedDevice(
            request=grant.request,
            pool=grant.pool,
            device=grant.device,
            cdi_id=f"{self._store.kind}={grant.name}",
            share_id=grant.share_id,
        )


class _Lock:
    """A claim's lock, there as long as somebody wants it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0


def _grant_entry(grant: Grant) -> GrantEntry:
    return GrantEntry(
        name=grant.name,
        request=grant.request,
        device=grant.device,
        uuid=grant.card.uuid,
        memory=grant.held.memory,
        cores=grant.held.cores,
        shares=grant.held.shares,
        share_id=grant.share_id,
        limited=grant.limits is not None,
    )
