"""Prepare and Unprepare of one claim: the order of the effects, and their undoing.

Prepare:    claim → plan → lock → ledger (preparing) → grant files → CDI document → ledger (prepared)
Unprepare:  lock → CDI document → grant files → ledger entry

A crash between any two steps leaves a ledger entry, and both operations start over from there; every step is
safe to repeat. A Prepare of a claim that is prepared looks at every file, and makes all again where anything
is not as it was left: after a reboot, or when somebody has emptied the CDI directory, the kubelet asks again
and the answer must be true. A Prepare that fails undoes what it made; one of a claim that was prepared before
undoes nothing, since its containers run. Unprepare uses names derived from the UID and this node's files: no
API server, no GPU driver, no ledger entry needed.

One claim is handled by one task at a time; different claims side by side, but for their files. What changes
the node happens under the node's lock, so that another agent, which this one replaces or is replaced by, sees
it whole.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from cdi.errors import DriverNotReadyError
from cdi.store import Store
from dra_driver.cards.capacity import NOTHING, Amounts
from dra_driver.claims import uncounted
from dra_driver.claims.allocation import ClaimRef, read_allocation
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.claims.claim_files import ClaimFiles
from dra_driver.claims.claim_tasks import ClaimTasks
from dra_driver.claims.document import files_said_by
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.handed import Handed, Left, PreparedDevice, prepared_devices
from dra_driver.claims.ledger import Ledger, Stored
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.metadata import MetadataFiles
from dra_driver.claims.plan import DriverFiles, Grant, Plan, make_plan, refuse_overcommit
from dra_driver.claims.remembered_claims import Remembered, RememberedClaims
from dra_driver.claims.steps import Step, Steps
from dra_driver.errors import ClaimError, OvercommitError, RetryableError
from dra_driver.kubelet.node_lock import NodeLock
from dra_driver.names import DRIVER, ClaimUID, DeviceName
from dra_driver.node import Node
from interposer.abi import AbiError

_log = logging.getLogger(__name__)
_RESTORE_LIMIT = 5.0  # seconds in which a lost entry may be made again, before others are refused
_LOOK_LIMIT = 10.0  # seconds in which the driver may give its first answer: it may start the cards for it
_ROOM_LIMIT = 5.0  # seconds in which who is gone may be unprepared, before who needs its room is refused
_POLL = 0.1  # seconds from one look to the next, while a Prepare waits for any of these


@dataclass(frozen=True)
class Record:
    """What the ledger had of a claim when somebody looked: what was counted, and its file."""

    held: Entry | None
    stored: Stored | None


class Fetch(Protocol):
    """Reads a claim. `at_least`: a resourceVersion than which it must not be older; as it is now for None."""

    def __call__(self, ref: ClaimRef, at_least: str | None = None, /) -> Coroutine[Any, Any, dict[str, Any]]:
        """Raises ClaimError."""


class Preparer:
    """Everything it touches comes in here; `fetch` reads a claim from the API server."""

    def __init__(
        self,
        *,
        node: Node,
        base: BaseEdits,
        ledger: Ledger,
        directories: GrantDirectories,
        store: Store,
        steps: Steps,
        lock: NodeLock,
        fetch: Fetch,
        metadata: MetadataFiles | None = None,
        restore_limit: float = _RESTORE_LIMIT,
        room_limit: float = _ROOM_LIMIT,
    ) -> None:
        self._node = node
        self._base = base
        self._ledger = ledger
        self._steps = steps
        self._lock = lock
        self._fetch = fetch
        self._files = ClaimFiles(
            base=base,
            ledger=ledger,
            directories=directories,
            store=store,
            metadata=metadata or MetadataFiles(directories, None),
            steps=steps,
        )
        self._restore_limit = restore_limit
        self._room_limit = room_limit
        self._restore: Callable[[], None] = lambda: None
        self._remembered = RememberedClaims()
        self.tasks = ClaimTasks()

    def restore_by(self, restore: Callable[[], None]) -> None:
        """`restore` is called when an entry that can't be read holds up a claim."""
        self._restore = restore

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        """Raises ClaimError; then nothing of the claim is left, unless it was prepared before."""
        return await self.tasks.to_the_end(self._prepare(ref))

    async def unprepare(self, ref: ClaimRef) -> None:
        """Of an unknown claim too. Raises ClaimError; what is left then, the next call removes."""
        await self.tasks.to_the_end(self._unprepare(ref))

    async def is_whole(self, ref: ClaimRef, raw: Mapping[str, Any]) -> bool:
        """Whether everything of the claim is there, as Prepare would write it. Raises ClaimError.

        What a newer release has written is not compared: it knows better.
        """
        plan, library = self._plan(ref, raw)
        stored = self._ledger.stored.get(ref.uid)
        try:
            if stored is not None and stored.is_newer:
                return await self.tasks.with_files(self._files.read_document, ref.uid) is not None
            return await self.tasks.with_files(self._files.are_made, plan, library)
        except (OSError, DriverNotReadyError) as error:
            raise RetryableError(f"ResourceClaim {ref} can't be compared: {error}") from error

    async def mend(self, ref: ClaimRef, raw: Mapping[str, Any], seen: Record) -> bool:
        """Writes everything of a claim again that the ledger has, or had: its entry may be what was lost.

        False, and nothing done, if the claim is not as seen any more. Raises ClaimError.
        """
        plan, library = self._plan(ref, raw, has_lost_entry=seen == Record(None, None))

        async def work() -> None:
            await self._hand_out(plan, library)

        return await self.tasks.to_the_end(self._if_still(ref, seen, work))

    async def remove(self, ref: ClaimRef, seen: Record) -> bool:
        """Removes everything of a claim that nobody will unprepare. False as of `mend`; raises ClaimError."""

        async def work() -> None:
            await self.tasks.with_files(self._files.remove, ref.uid)
            self._ledger.release(ref.uid)

        return await self.tasks.to_the_end(self._if_still(ref, seen, work))

    async def _prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        async with self.tasks.only_one(ref):
            known = self._remembered.of(ref.uid, self._ledger.entries.get(ref.uid))
            if known is not None:
                return await self._prepare_again(ref, known)
            with self._steps.step(Step.CLAIM):
                raw = await self._fetch(ref)
            return await self._prepare_as(ref, raw, _version(raw))

    async def _prepare_again(self, ref: ClaimRef, known: Remembered) -> tuple[PreparedDevice, ...]:
        """Looks whether its files are as they were left, while the API server is asked whether it is."""
        looking = asyncio.create_task(self._as_handed(known.handed))
        try:
            raw = await self._fetch(ref, known.version)
        finally:
            answer = await looking  # also of no use: it may mend a file, which is for who has the claim alone
        if answer is not None and known.is_still(raw) and self._ledger.entries.get(ref.uid) is known.entry:
            # Each Prepare makes an entry of its own: so whoever looked before it sees that there was one.
            self._ledger.hold(self._remembered.renew(known.entry))
            return answer
        return await self._prepare_as(ref, raw, _version(raw))

    async def _prepare_as(
        self, ref: ClaimRef, raw: Mapping[str, Any], version: str | None
    ) -> tuple[PreparedDevice, ...]:
        await self._wait_for_first_look()
        with self._steps.step(Step.PLAN):
            plan, library = self._plan(ref, raw)
        if not plan.grants:
            return ()
        await self._wait_until_counted(plan, library)
        await self._wait_for_room(plan)
        async with self._changing(ref):
            self._remembered.forget(ref.uid)
            left = await self._hand_out(plan, library)
            handed = Handed(prepared_devices(plan), left, self._node.cards, self._node.rules, library)
            self._remembered.keep(self._ledger.entries[ref.uid], raw, version, handed)
        return handed.devices

    async def _as_handed(self, handed: Handed) -> tuple[PreparedDevice, ...] | None:
        """The answer that was given before, where nothing has changed since; changes nothing."""
        # Of an error: making it again says what is wrong.
        with suppress(OSError, AbiError, DriverNotReadyError, ClaimError):
            if self._ledger.uncounted or not handed.is_of(self._node):
                return None
            if await self.tasks.with_files(self._files.are_as_left, handed.left):
                return handed.devices
        return None

    async def _unprepare(self, ref: ClaimRef) -> None:
        async with self.tasks.only_one(ref), self._changing(ref):
            self._remembered.forget(ref.uid)
            try:
                await self.tasks.with_files(self._files.remove, ref.uid)
            except OSError as error:
                raise RetryableError(f"ResourceClaim {ref} can't be unprepared: {error}") from error
            self._ledger.release(ref.uid)

    @asynccontextmanager
    async def _changing(self, ref: ClaimRef) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            with self._steps.step(Step.LOCK):
                try:
                    await stack.enter_async_context(self._lock.held())
                except RetryableError as error:
                    raise RetryableError(f"ResourceClaim {ref}: {error}") from error
                except OSError as error:
                    raise RetryableError(f"ResourceClaim {ref}: the node can't be locked: {error}") from error
            with self.tasks.changing():
                yield

    async def _if_still(self, ref: ClaimRef, seen: Record, work: Callable[[], Awaitable[None]]) -> bool:
        """Whoever asks the API server does so without a lock; so what it answered may be of the past."""
        async with self.tasks.only_one(ref), self._changing(ref):
            # Each Prepare makes an entry of its own, so the same object means that there was none.
            if (
                self._ledger.entries.get(ref.uid) is not seen.held
                or self._ledger.stored.get(ref.uid) is not seen.stored
            ):
                return False
            try:
                await work()
            except OSError as error:
                raise RetryableError(f"ResourceClaim {ref} can't be reconciled: {error}") from error
            return True

    async def _hand_out(self, plan: Plan, library: InstalledLibrary | None) -> Left:
        """Under the lock."""
        ref = plan.claim
        await self._refuse_uncounted(plan, library)
        self._refuse_overcommit(plan, self._ledger.held_by_others(ref.uid))
        before = self._prepared(ref)
        entry = self._entry(plan, library.version if library else None)
        is_known = ref.uid not in self._ledger.uncounted and not self._ledger.has_lost(ref.uid)
        may_run = before is not None or not is_known
        first = before or (entry if may_run else msgspec.structs.replace(entry, state=State.PREPARING))
        self._ledger.hold(entry if may_run else first)
        try:
            left = await self.tasks.with_files(self._files.make, plan, first, entry, library)
        except (OSError, AbiError, DriverNotReadyError) as error:
            await self._give_up(ref, before, may_run)
            raise RetryableError(f"ResourceClaim {ref} can't be prepared: {error}") from error
        except BaseException:
            await self._give_up(ref, before, may_run)
            raise
        self._ledger.hold(entry)
        return left

    def _plan(
        self, ref: ClaimRef, raw: Mapping[str, Any], *, has_lost_entry: bool = False
    ) -> tuple[Plan, InstalledLibrary | None]:
        """No grants where nothing is ours; the library where something needs it. Raises ClaimError."""
        allocation = read_allocation(ref, raw, driver=DRIVER, node=self._node.name)
        if not allocation.results:
            return Plan(ref, ()), None
        rules = self._node.rules
        inventory = self._node.inventory()
        plan = make_plan(allocation, inventory, rules.scales, rules.interposition, rules.memory_overflow)
        plan = dataclasses.replace(plan, files=self._driver_files(plan, has_lost_entry=has_lost_entry))
        is_limited = any(grant.limits is not None for grant in plan.grants)
        return plan, self._node.library() if is_limited else None

    def _driver_files(self, plan: Plan, *, has_lost_entry: bool) -> DriverFiles:
        if has_lost_entry or plan.claim.uid in self._ledger.uncounted:
            return files_said_by(self._files.read_document(plan.claim.uid))
        return self._base.files((grant.card for grant in plan.grants), self._prepared(plan.claim))

    def _prepared(self, ref: ClaimRef) -> Entry | None:
        known = self._ledger.entries.get(ref.uid)
        return known if known is not None and known.state is State.PREPARED else None

    def _refuse_overcommit(self, plan: Plan, others: Mapping[DeviceName, Amounts]) -> None:
        refuse_overcommit(plan, others, self._node.scales, _held(self._prepared(plan.claim)))

    async def _wait_for_first_look(self) -> None:
        """The kubelet asks as soon as we are registered: after a boot no card is known by then."""
        for _ in range(round(_LOOK_LIMIT / _POLL)):
            if self._node.cards is not None or self._node.was_asked:
                return
            await asyncio.sleep(_POLL)

    async def _wait_until_counted(self, plan: Plan, library: InstalledLibrary | None) -> None:
        """An entry of another claim that can't be read is made again, if the API server answers."""
        if not uncounted.others(self._ledger.uncounted, plan.claim):
            return
        self._restore()
        for _ in range(round(self._restore_limit / _POLL)):
            try:
                await self._refuse_uncounted(plan, library)
                return
            except RetryableError:
                await asyncio.sleep(_POLL)

    async def _wait_for_room(self, plan: Plan) -> None:
        """For Pods deleted by force; once refused, the kubelet would ask again after a minute or more."""
        with suppress(RetryableError):  # what no waiting helps is refused later
            for _ in range(round(self._room_limit / _POLL)):
                try:
                    self._refuse_overcommit(plan, self._ledger.held_by_others(plan.claim.uid))
                    break
                except OvercommitError:
                    self._refuse_overcommit(plan, {})
                    await asyncio.sleep(_POLL)

    async def _refuse_uncounted(self, plan: Plan, library: InstalledLibrary | None) -> None:
        others = uncounted.others(self._ledger.uncounted, plan.claim)
        if not others:
            return

        def look() -> None:
            unknown = [(stored, self._files.read_document(ClaimUID(stored.path.stem))) for stored in others]
            uncounted.refuse(plan.claim, self._files.document(plan, library), unknown)

        try:
            await self.tasks.with_files(look)
        except (OSError, DriverNotReadyError) as error:
            raise RetryableError(f"ResourceClaim {plan.claim} can't be prepared: {error}") from error

    async def _give_up(self, ref: ClaimRef, before: Entry | None, may_run: bool) -> None:
        if before is not None:
            self._ledger.hold(before)
            return
        if may_run:
            if ref.uid in self._ledger.unreadable:
                self._ledger.release(ref.uid)
            return
        try:
            await self.tasks.with_files(self._files.remove, ref.uid)
        except OSError as error:
            # The entry stays, in memory as on disk: the kubelet's next call of either kind takes it up.
            _log.error("ResourceClaim %s: what was made for it can't be removed: %s", ref, error)
        else:
            self._ledger.release(ref.uid)

    def _entry(self, plan: Plan, library: str | None) -> Entry:
        """As this release writes it, or as a newer one has, if that says the same."""
        entry = Entry(
            uid=plan.claim.uid,
            namespace=plan.claim.namespace,
            name=plan.claim.name,
            boot_id=self._ledger.boot_id,
            state=State.PREPARED,
            grants=tuple(_grant_entry(grant, plan.files) for grant in plan.grants),
            library=library,
        )
        stored = self._ledger.stored.get(entry.uid)
        if stored is not None and stored.is_newer and stored.entry is not None:
            newer = stored.entry
            if (newer.boot_id, newer.amounts) == (entry.boot_id, entry.amounts):
                return newer
        return entry


def _held(entry: Entry | None) -> dict[DeviceName, Amounts]:
    held: dict[DeviceName, Amounts] = {}
    for grant in entry.grants if entry is not None else ():
        held[grant.device] = held.get(grant.device, NOTHING) + grant.held
    return held


def _grant_entry(grant: Grant, files: DriverFiles) -> GrantEntry:
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
        toolkit=files is DriverFiles.TOOLKIT,
        beside=files is DriverFiles.BESIDE,
        shim=grant.needs_shim,
    )


def _version(raw: Mapping[str, Any]) -> str | None:
    return (raw.get("metadata") or {}).get("resourceVersion")
