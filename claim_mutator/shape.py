"""What the containers of a Pod ask for, together → the requests of one claim. Pure.

Application containers and sidecars run at the same time: each has cards of its own. Init containers run
before the application containers and one after the other, so they use the cards of those (raised where they
need more), or some among themselves: the peak, not the sum. A container that is to have less than its cards
were raised to has the smaller numbers as a cap. A sidecar's cards are never lent: the sidecar is running.

An init container that wants fewer cards than it could borrow splits a share in two, of which the lender has
both; one that wants more takes all and has the rest to itself. Of several shares those that have to grow
least are borrowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claim_mutator.container import Kind, Percent, Request
from claim_mutator.names import MAX_CAPS, MEBIBYTE
from claim_mutator.placement import ANY, Level
from claim_mutator.terms import PLAIN, Terms


@dataclass(frozen=True)
class Amount:
    """Of each card: memory is the larger of `mebibytes` and `percent` of the card's; 100 is all of it.

    cores 0: no limit. alone: nobody else on the card.
    """

    mebibytes: int = 0
    percent: int = 0
    cores: int = 0
    alone: bool = False

    @property
    def whole(self) -> bool:
        return self.percent == 100

    @property
    def fraction(self) -> bool:
        """Whether it depends on the card's size how much this is."""
        return 0 < self.percent < 100

    def memory(self, size: int) -> int:
        """MiB on a card of so many bytes."""
        share = size // MEBIBYTE * self.percent // 100
        return max(1, self.mebibytes, share)


@dataclass(frozen=True)
class Ask:
    """One container that asks for cards. alone: whatever its request says."""

    container: str
    kind: Kind
    request: Request
    terms: Terms = PLAIN
    alone: bool = False

    def amount(self, *, hundred_is_alone: bool = True) -> Amount:
        memory, cores = self.request.memory, self.request.cores
        alone = self.alone or (cores == 100 and hundred_is_alone)
        if memory is None:
            return Amount(0, 100, cores, alone)
        if isinstance(memory, Percent):
            return Amount(0, memory.value, cores, alone)
        return Amount(memory, 0, cores, alone)


@dataclass(frozen=True)
class Cap:
    """A container's limit, where it is smaller than its share's."""

    container: str
    amount: Amount


@dataclass(frozen=True)
class Share:
    """`count` cards, equal amounts of each: one request of the claim. And the caps of those who use it."""

    count: int
    amount: Amount
    terms: Terms = PLAIN
    caps: tuple[Cap, ...] = ()


@dataclass(frozen=True)
class Shape:
    """Equal shapes share a template. `shares` are in the order of their first container, init first."""

    shares: tuple[Share, ...]
    together: tuple[tuple[int, ...], ...] = ()
    """Shares whose cards one container uses, where these are several cards: they have to be different."""
    selectors: tuple[str, ...] = ()
    levels: tuple[Level, ...] = (ANY,)
    cards: bool = True
    instances: bool = False

    @property
    def devices(self) -> int:
        return sum(share.count for share in self.shares)


@dataclass(frozen=True)
class Grouping:
    """shares and together as in Shape; for each ask, in their order, the indexes of its shares."""

    shares: tuple[Share, ...]
    together: tuple[tuple[int, ...], ...]
    users: tuple[tuple[int, ...], ...]


class _Part:
    """A share in the making."""

    def __init__(self, count: int, ask: Ask, amount: Amount, *, lasting: bool) -> None:
        self.count = count
        self.amount = amount
        self.terms = ask.terms
        self.lasting = lasting
        """Of an application container: what it is given, it keeps."""
        self.lendable = ask.kind is not Kind.SIDECAR
        self.users: list[tuple[Ask, Amount]] = [(ask, amount)]

    def split(self, count: int) -> _Part:
        """Takes `count` cards out, into a part that is otherwise the same."""
        other = _Part(count, self.users[0][0], self.amount, lasting=self.lasting)
        other.terms, other.lendable, other.users = self.terms, self.lendable, list(self.users)
        self.count -= count
        return other

    def raised(self, amount: Amount) -> Amount:
        """The least amount that serves those who are there and one more."""
        held = self.amount
        return Amount(
            max(held.mebibytes, amount.mebibytes),
            max(held.percent, amount.percent),
            _cores(held.cores, amount.cores, lasting=self.lasting),
            held.alone or amount.alone,
        )

    def cost(self, amount: Amount, wanted: int) -> tuple[float, float, int, int, float]:
        """What is borrowed first costs least."""
        raised, held = self.raised(amount), self.amount
        growth = float(raised.percent - held.percent) * _MEBIBYTES_OF_A_PERCENT
        growth += raised.mebibytes - held.mebibytes
        conflict = int(not amount.cores and 0 < held.cores < 100)
        size = held.mebibytes + held.percent * _MEBIBYTES_OF_A_PERCENT
        return growth, raised.cores - held.cores, conflict, abs(self.count - wanted), size

    def lend(self, ask: Ask, amount: Amount, terms: Terms) -> None:
        self.amount, self.terms = self.raised(amount), terms
        self.users.append((ask, amount))

    def share(self, asks: Sequence[Ask]) -> Share:
        order = {id(ask): index for index, ask in enumerate(asks)}
        users = sorted(self.users, key=lambda user: order[id(user[0])])
        caps = (Cap(ask.container, amount) for ask, amount in users if _is_less(amount, self.amount))
        return Share(self.count, self.amount, self.terms, tuple(caps))


_MEBIBYTES_OF_A_PERCENT = 1024.0  # only to compare growth; which card it will be is not known


def group(asks: Sequence[Ask], *, hundred_is_alone: bool = True) -> Grouping:
    """Asks in the order of the Pod, init containers first."""
    parts: list[_Part] = []
    # Longest-lived first, so that init containers find what they can use.
    for ask in sorted(asks, key=lambda ask: ask.kind is Kind.INIT):
        amount = ask.amount(hundred_is_alone=hundred_is_alone)
        missing = ask.request.count
        if ask.kind is Kind.INIT:
            missing -= _borrow(parts, ask, amount)
        if missing:
            parts.append(_Part(missing, ask, amount, lasting=ask.kind is not Kind.INIT))
    used_by = [[part for part in parts if any(user is ask for user, _ in part.users)] for ask in asks]
    ordered = list(dict.fromkeys(part for used in used_by for part in used))
    users = tuple(tuple(sorted(ordered.index(part) for part in used)) for used in used_by)
    several = (used for used, ask in zip(users, asks, strict=True) if ask.request.count > 1)
    together = tuple(dict.fromkeys(several))
    return Grouping(tuple(part.share(asks) for part in ordered), together, users)


def _borrow(parts: list[_Part], ask: Ask, amount: Amount) -> int:
    """Makes an init container a user of cards that are there; how many."""
    wanted = ask.request.count
    candidates = [part for part in parts if part.lendable and len(part.users) < MAX_CAPS]
    borrowed = 0
    for part in sorted(candidates, key=lambda part: part.cost(amount, wanted)):
        terms = part.terms.together(ask.terms)
        if terms is None:
            continue
        if part.count > wanted - borrowed:
            part = part.split(wanted - borrowed)  # noqa: PLW2901 - the other half stays as it is
            parts.append(part)
        part.lend(ask, amount, terms)
        borrowed += part.count
        if borrowed == wanted:
            break
    return borrowed


def _cores(held: int, wanted: int, *, lasting: bool) -> int:
    """0 and 100 are no limit: who has none keeps it, and who has one gets it as a cap.

    What an application container is guaranteed it keeps, also where an init container without a limit uses
    its card.
    """
    if held == 0 and 0 < wanted < 100:
        return 0
    if wanted == 0 and 0 < held < 100 and not lasting:
        return 0
    return max(held, wanted)


def _is_less(own: Amount, held: Amount) -> bool:
    limited = 0 < own.cores < 100 and own.cores != held.cores
    return limited or (not own.whole and (own.mebibytes, own.percent) != (held.mebibytes, held.percent))
