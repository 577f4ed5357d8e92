"""Asks the quotas of a namespace whether a Pod may come in.

1. The ledger's page is read: who has been let in lately.
2. Pods are listed, which the API server answers from its present state. Who of the page is among them, or has
   not come within `HOLD` seconds, is struck off.
3. Pods and page are what is used; those who ask are judged in their order.
4. The page is written, under the version that was read. If somebody was faster: once more from 1.

So a Pod that anybody let in before the write is in the list or on the page. All who ask at the same time
share one turn. Whoever let somebody in looks a moment later whether the Pod has come, and strikes it off:
else a Pod that is gone again soon would be waited for. A Pod that something else refuses after us is held for
HOLD seconds; Kubernetes' own quota holds it until its controller's next turn, minutes. Killed anywhere: a
reservation may be left, and lapses.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from claim_mutator.quota import cost, limits, usage
from claim_mutator.quota.cost import Cost, Demand, Sizes
from claim_mutator.quota.ledger import Ledger, Page
from claim_mutator.quota.limits import Quota, Traits
from claim_mutator.quota.usage import Held, Reservation
from kube import paths
from kube.client import Client
from kube.errors import AlreadyExists, ApiError, Conflict, NotFound, Unavailable

_log = logging.getLogger(__name__)

HOLD = 75.0  # seconds; a request ends after 60, unless an administrator allows more
_PATIENCE = 7.0  # seconds; the API server waits 10 for us
_TRIES = 12
_LOOKS = (0.5, 2.0, 8.0, 30.0)  # seconds between letting in and looks for who has come
_PAGE = "500"


class Exceeded(Exception):  # noqa: N818 - what happened
    """A quota has no room; the message is Kubernetes' own."""


@dataclass
class _Ask:
    mark: str
    cost: Cost
    traits: Traits
    is_trial: bool
    answer: asyncio.Future[str | None] = field(default_factory=asyncio.Future)


@dataclass
class _Queue:
    waiting: list[_Ask] = field(default_factory=list)
    page: Page | None = None
    task: asyncio.Task[None] | None = None
    look: asyncio.Task[None] | None = None
    let_in: set[str] = field(default_factory=set)
    """Marks of ours that are still on the page."""


@dataclass(frozen=True)
class World:
    """What the gate has to know of the cluster. demand: of our template of a namespace and name, if known."""

    demand: Callable[[str, str], Demand | None]
    sizes: Callable[[], Sizes]
    instance_class: str


@dataclass(frozen=True)
class _Listing:
    """marks: of all Pods, those that have ended included."""

    pods: Sequence[Held]
    marks: frozenset[str]


class Gate:
    """`quotas`: of a namespace, those that limit something of ours. `observe`: told what was counted."""

    def __init__(
        self,
        client: Client,
        ledger: Ledger,
        world: World,
        *,
        quotas: Callable[[str], Sequence[Quota]],
        observe: Callable[[Quota, Cost], None] = lambda *_: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._ledger = ledger
        self._world = world
        self._quotas = quotas
        self._observe = observe
        self._clock = clock
        self._queues: dict[str, _Queue] = {}

    def concerns(self, namespace: str) -> bool:
        return bool(self._quotas(namespace))

    async def ask(
        self,
        namespace: str,
        mark: str,
        spec: Mapping[str, Any],
        pod: Mapping[str, Any],
        *,
        is_trial: bool = False,
    ) -> None:
        """The same for a Pod with a claim of this spec."""
        sizes, traits = self._world.sizes(), limits.traits_of(pod)
        wanted = cost.most(cost.demand_of(spec, self._world.instance_class), sizes)
        if wanted is None:
            covering = (quota for quota in self._quotas(namespace) if quota.covers(traits))
            refusal = next(filter(None, map(limits.needs_sizes, covering)), None)
            if refusal is not None:
                raise Exceeded(refusal)
            wanted = cost.most(cost.demand_of(spec, self._world.instance_class), cost.UNKNOWN) or Cost()
        await self.enter(namespace, mark, wanted, traits, is_trial=is_trial)

    async def enter(
        self, namespace: str, mark: str, wanted: Cost, traits: Traits, *, is_trial: bool = False
    ) -> None:
        """Returns when the Pod may come in. is_trial: of a dry run, nothing is written down.

        Raises Exceeded, and ApiError where it can't be found out.
        """
        queue = self._queues.setdefault(namespace, _Queue())
        ask = _Ask(mark, wanted, traits, is_trial)
        queue.waiting.append(ask)
        if queue.task is None:
            queue.task = asyncio.create_task(self._serve(namespace, queue))
        try:
            async with asyncio.timeout(_PATIENCE):
                refusal = await ask.answer
        except TimeoutError as error:
            raise Unavailable(0, "Timeout", "the quotas could not be looked up in time") from error
        if refusal is not None:
            raise Exceeded(refusal)

    async def leave(self, namespace: str, mark: str) -> None:
        """Strikes off a reservation of ours that came to nothing, if that is easily done."""
        try:
            page = await self._ledger.read(namespace)
            kept = [each for each in page.reservations if each.mark != mark]
            if len(kept) < len(page.reservations):
                await self._ledger.write(namespace, page, kept)
        except ApiError as error:
            _log.debug("reservation %s of %s lapses later: %s", mark, namespace, error)

    async def forget(self, namespace: str) -> None:
        """It has no quota any more. Raises ApiError."""
        self._queues.pop(namespace, None)
        await self._ledger.forget(namespace)

    async def used(self, namespace: str) -> list[tuple[Quota, Cost]]:
        """What is used of each quota now. Raises ApiError."""
        page = await self._ledger.read(namespace)
        listing = await self._list(namespace)
        open_ = self._open(page, listing)
        return [(quota, usage.used(quota, listing.pods, open_)) for quota in self._quotas(namespace)]

    async def _serve(self, namespace: str, queue: _Queue) -> None:
        """Until nobody waits any more."""
        try:
            while queue.waiting:
                asks, queue.waiting = queue.waiting, []
                try:
                    refusals = await self._decide(namespace, queue, asks)
                except Exception as error:
                    queue.page = None
                    for ask in asks:
                        if not ask.answer.done():
                            ask.answer.set_exception(error)
                    continue
                for ask, refusal in zip(asks, refusals, strict=True):
                    if not ask.answer.done():
                        ask.answer.set_result(refusal)
        finally:
            queue.task = None

    async def _decide(self, namespace: str, queue: _Queue, asks: Sequence[_Ask]) -> list[str | None]:
        for attempt in range(_TRIES):
            if attempt:
                await asyncio.sleep(random.uniform(0, 0.01 * attempt))  # noqa: S311 - spreads, no secret
            remembered = queue.page
            page = remembered or await self._ledger.read(namespace)
            listing = await self._list(namespace)
            open_ = self._open(page, listing)
            before = len(open_)
            refusals = [self._judge(namespace, ask, listing.pods, open_) for ask in asks]
            if remembered is not None and any(refusals):
                queue.page = None  # nobody is turned away by what may be out of date
                continue
            if len(open_) == before:
                queue.page = page
                return refusals
            try:
                queue.page = await self._ledger.write(namespace, page, open_)
            except (Conflict, AlreadyExists, NotFound):
                queue.page = None  # another replica was faster
                continue
            queue.let_in |= {each.mark for each in open_[before:]}
            if queue.look is None:
                queue.look = asyncio.create_task(self._look(namespace, queue))
            return refusals
        raise Unavailable(0, "Contention", "the quotas are asked by too many at once")

    def _judge(self, namespace: str, ask: _Ask, pods: Sequence[Held], open_: list[Reservation]) -> str | None:
        """Appends to `open_` who is let in."""
        for quota in self._quotas(namespace):
            if not quota.covers(ask.traits):
                continue
            used = usage.used(quota, pods, open_)
            self._observe(quota, used)
            refusal = limits.excess(quota, used, ask.cost)
            if refusal is not None:
                return refusal
        if not ask.is_trial:
            open_.append(Reservation(ask.mark, self._clock(), ask.cost, ask.traits))
        return None

    async def _look(self, namespace: str, queue: _Queue) -> None:
        """Strikes off who has come."""
        try:
            number = 0
            while queue.let_in and number < len(_LOOKS):
                await asyncio.sleep(_LOOKS[number])
                before = len(queue.let_in)
                with contextlib.suppress(ApiError):  # the next turn of whoever is asked does it, too
                    await self._strike_off(namespace, queue)
                number = 0 if len(queue.let_in) > before else number + 1
            queue.let_in.clear()
        finally:
            queue.look = None

    async def _strike_off(self, namespace: str, queue: _Queue) -> None:
        page = await self._ledger.read(namespace)
        open_ = self._open(page, await self._list(namespace))
        if len(open_) < len(page.reservations):
            page = await self._ledger.write(namespace, page, open_)
        if queue.task is None:
            queue.page = page
        queue.let_in &= {each.mark for each in open_}

    def _open(self, page: Page, listing: _Listing) -> list[Reservation]:
        oldest = self._clock() - HOLD
        return [each for each in page.reservations if each.at > oldest and each.mark not in listing.marks]

    async def _list(self, namespace: str) -> _Listing:
        now = dt.datetime.now(dt.UTC)
        marks: set[str] = set()
        pods: list[Held] = []
        async for pod in self._all(paths.pods(namespace)):
            marks.add(usage.mark_of(pod))
            if (held := usage.held(pod, now)) is not None:
                pods.append(held)
        return _Listing(await self._costed(namespace, pods), frozenset(marks))

    async def _costed(self, namespace: str, pods: Sequence[Held]) -> Sequence[Held]:
        world = self._world
        demands = {name: await self._demand(namespace, name) for name in _templates(pods)}
        sizes = world.sizes()
        found = usage.costed(pods, demands, None, sizes, world.instance_class)
        if found is None:
            claims = {
                usage.place(claim): claim async for claim in self._all(paths.resource_claims(namespace))
            }
            found = usage.costed(pods, demands, claims, sizes, world.instance_class)
        return found or ()

    async def _demand(self, namespace: str, name: str) -> Demand | None:
        """Also of a template that another replica has just made."""
        known = self._world.demand(namespace, name)
        if known is None:
            with contextlib.suppress(NotFound):
                template = await self._client.get(paths.resource_claim_template(namespace, name))
                spec = (template.get("spec") or {}).get("spec") or {}
                return cost.demand_of(spec, self._world.instance_class)
        return known

    async def _all(self, path: str) -> AsyncIterator[Mapping[str, Any]]:
        token = ""
        while True:
            page = {"limit": _PAGE} | ({"continue": token} if token else {})
            answer = await self._client.get(path, params=page)
            for item in answer.get("items") or ():
                yield item
            token = (answer.get("metadata") or {}).get("continue") or ""
            if not token:
                return


def _templates(pods: Sequence[Held]) -> set[str]:
    return {template for pod in pods for _, template in pod.claims}
