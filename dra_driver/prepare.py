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
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
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
from dra_driver.ledger import Entry, GrantEntry, Ledger, State
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
            with self._steps.step(Step.PLAN):
                allocation = read_allocation(ref, raw, driver=DRIVER, node=self._node.name)
                if not allocation.results:
                    return ()
                plan = make_plan(allocation, self._node.inventory(), self._node.scales)
                refuse_overcommit(plan, self._ledger.held_by_others(ref.uid), self._node.scales)
                is_limited = any(grant.limits is not None for grant in plan.grants)
                library = self._node.library() if is_limited else None
            before = self._ledger.entries.get(ref.uid)
            entry = self._entry(plan, library.version if library else None)
            self._ledger.hold(entry)
            was_prepared = before is not None and before.state is State.PREPARED
            try:
                await asyncio.to_thread(self._make, plan, entry, before if was_prepared else None, library)
            except (OSError, AbiError, DriverNotReadyError) as error:
                await self._give_up(ref, before if was_prepared else None)
                raise RetryableError(f"ResourceClaim {ref} can't be prepared: {error}") from error
            except BaseException:
                await self._give_up(ref, before if was_prepared else None)
                raise
            return tuple(self._answer(grant) for grant in plan.grants)

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
