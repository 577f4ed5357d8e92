"""Who has the card and who may have it: the loop without files (test_monitor_files.py has those).

`Card` is a small model: kernels of each grant take turns on one card as the fake driver has them, and each
grant launches when its budget allows it, reckoned with the terms that the control loop gave last.
"""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.monitor.control import LEASE, Grant, Memory, Process, Snapshot, Terms, control
from dra_driver.monitor.turns import TURN
from interposer.abi import Policy, Span

MS = 1_000_000
PERIOD = 100 * MS


# --- the loop ----------------------------------------------------------------------------------------------


class Load:
    """One grant with kernels of `kernel` ms, back to back from `begin` to `end` (ms); else idle."""

    def __init__(
        self,
        cores: int,
        kernel: float,
        *,
        begin: float = 0,
        end: float = 1e9,
        policy: Policy = Policy.DEFAULT,
        priority: int = 1,
    ) -> None:
        self.cores, self.kernel, self.policy, self.priority = cores, int(kernel * MS), policy, priority
        self.begin, self.end = int(begin * MS), int(end * MS)
        self.ready = 0.0
        self.left = 0
        self.came = 0
        self.busy = self.estimate = 0.0
        self.had = self.launches = self.waited = 0
        self.is_waiting = False
        self.spans: list[Span] = []
        self.terms: Terms | None = None

    def rate(self, now: int) -> int:
        leased = self.terms is not None and self.terms.until > now and self.policy is Policy.DEFAULT
        return self.terms.cores if leased and self.terms is not None else self.cores

    def stretch(self, now: int) -> float:
        if self.terms is None:
            return 1
        return (self.terms.stretch if self.terms.until > now else self.terms.stretch_unlent) / 1000

    def charge(self, cost: float, now: int) -> None:
        self.busy += cost
        self.ready = max(self.ready, now - 50 * MS) + cost * 100 / self.rate(now)

    def may_launch(self, now: int) -> bool:
        if self.left or not self.begin <= now < self.end:
            self.is_waiting = False
            return False
        self.is_waiting = self.policy is not Policy.DISABLE and self.ready > now
        self.waited += self.is_waiting
        return not self.is_waiting

    def launch(self, now: int) -> None:
        self.left, self.came = self.kernel, now
        self.launches += 1
        self.charge(self.estimate, now)

    def finish(self, now: int) -> None:
        cost = (now - self.came) / self.stretch(now)
        self.charge(cost - self.estimate, now)
        self.estimate += (cost - self.estimate) / 4
        if self.policy is not Policy.DISABLE:
            self.spans.append(Span(0, self.came, now))

    def snapshot(self, name: str, since: int) -> Grant:
        there = (self.came, self.came + 2 * self.kernel) if self.left else None
        process = Process(0, int(self.busy), self.waited, self.launches, self.is_waiting, there=there)
        spans = tuple(span for span in self.spans if span.end_ns > since)
        return Grant(name, self.cores, self.policy, self.priority, (process,) if self.launches else (), spans)


class Card:
    """Loads on one card, in steps of a tenth of a millisecond."""

    STEP = MS // 10

    def __init__(self, **loads: Load) -> None:
        self.loads = loads
        self.now = 1000 * MS
        self.memory = Memory()
        self.order: list[Load] = []
        self.turn = 0
        self.writes: list[tuple[int, str, Terms]] = []
        self.has_agent = True

    def run(self, milliseconds: int) -> dict[str, float]:
        """Percent of the card that each had."""
        before = {name: load.had for name, load in self.loads.items()}
        until = self.now + milliseconds * MS
        while self.now < until:
            if self.now % PERIOD == 0 and self.has_agent:
                self.look()
            self.step()
        return {
            name: (load.had - before[name]) / milliseconds / MS * 100 for name, load in self.loads.items()
        }

    def step(self) -> None:
        start = self.now - 1000 * MS
        for load in self.loads.values():
            if load.may_launch(start):
                load.launch(start)
                self.order.append(load)
                self.turn = self.turn if len(self.order) > 1 else start
        self.now += self.STEP
        start += self.STEP
        if not self.order:
            return
        first = self.order[0]
        first.left -= self.STEP
        first.had += self.STEP
        if first.left <= 0:
            first.left = 0
            first.finish(start)
            has_had_its_turn = start - self.turn >= TURN
            if first.may_launch(start):  # it had queued one more
                first.launch(start)
            if not first.left or has_had_its_turn:
                self.order.pop(0)
                self.order += [first] if first.left else []
                self.turn = start
        elif len(self.order) > 1 and start - self.turn >= TURN:
            self.order.append(self.order.pop(0))
            self.turn = start

    def look(self) -> None:
        now = self.now - 1000 * MS + MS // 100
        grants = tuple(load.snapshot(name, self.memory.seen_until) for name, load in self.loads.items())
        self.memory, terms = control(self.memory, Snapshot(now, grants))
        for name, each in terms.items():
            self.loads[name].terms = each
            self.writes.append((now, name, each))


@pytest.mark.parametrize(
    ("first", "second"), [(10, 10), (1, 1), (100, 5), (3, 50)], ids=lambda kernel: f"{kernel}ms"
)
def test_each_gets_what_was_promised(first: float, second: float) -> None:
    card = Card(a=Load(30, first), b=Load(70, second))
    card.run(2000)
    assert card.run(6000) == pytest.approx({"a": 30, "b": 70}, abs=2)


def test_what_is_idle_is_lent_and_given_back_within_a_period() -> None:
    card = Card(a=Load(30, 5), b=Load(70, 5, begin=3000, end=5000))
    card.run(1000)
    assert card.run(2000)["a"] > 95
    card.run(200)
    assert card.run(1700) == pytest.approx({"a": 30, "b": 70}, abs=4)
    card.run(300)
    assert card.run(1000)["a"] > 95


def test_who_is_forced_borrows_nothing() -> None:
    card = Card(a=Load(30, 5, policy=Policy.FORCE), b=Load(20, 5, end=4000))
    card.run(1000)
    assert card.run(3000) == pytest.approx({"a": 30, "b": 70}, abs=3)
    card.run(500)
    assert card.run(2000) == pytest.approx({"a": 30, "b": 0}, abs=2)


def test_priority_0_has_what_is_left() -> None:
    card = Card(a=Load(20, 5, priority=0), b=Load(20, 5))
    card.run(2000)
    assert card.run(4000) == pytest.approx({"a": 80, "b": 20}, abs=4)


def test_equals_share_what_is_left_by_their_cores() -> None:
    card = Card(a=Load(10, 5), b=Load(20, 5), c=Load(20, 5))
    card.run(2000)
    assert card.run(6000) == pytest.approx({"a": 20, "b": 40, "c": 40}, abs=4)


def test_nothing_is_written_about_who_does_nothing() -> None:
    card = Card(a=Load(30, 5), b=Load(70, 5, begin=1e8))
    card.run(3000)
    assert {name for _, name, _ in card.writes} == {"a"}
    writes = len(card.writes)
    card.loads["a"].end = 0
    card.run(3000)
    assert len(card.writes) <= writes + 2


def test_at_most_ten_writes_a_second_and_few_where_little_changes() -> None:
    card = Card(a=Load(30, 7), b=Load(70, 11))
    card.run(2000)
    card.writes.clear()
    card.run(5000)
    assert len(card.writes) <= 2 * 5 * 10
    for name in card.loads:
        times = [moment for moment, each, _ in card.writes if each == name]
        assert all(later - earlier >= PERIOD for earlier, later in itertools.pairwise(times))


def test_what_was_lent_ends_with_the_agent() -> None:
    card = Card(a=Load(30, 5))
    card.run(2000)
    card.has_agent = False
    card.run(LEASE // MS + 100)
    assert card.run(2000)["a"] == pytest.approx(30, abs=1)


def test_without_the_agent_what_was_lent_is_not_kept_by_the_stretch() -> None:
    """The others have less of the card then, so kernels no longer take as long as they did."""
    card = Card(forced=Load(10, 5, policy=Policy.FORCE), before=Load(20, 5, priority=0), after=Load(20, 5))
    assert card.run(6000)["before"] > 60
    card.has_agent = False
    card.run(LEASE // MS + 100)
    assert card.run(4000) == pytest.approx({"forced": 10, "before": 20, "after": 20}, rel=0.3)


def test_the_first_look_decides_nothing() -> None:
    process = Process(0, 10**12, 10**12, 100, waiting=True)
    memory, terms = control(Memory(), Snapshot(10**12, (Grant("a", 30, Policy.DEFAULT, 1, (process,)),)))
    assert terms == {}
    _, terms = control(memory, Snapshot(10**12 + PERIOD, (Grant("a", 30, Policy.DEFAULT, 1, (process,)),)))
    assert terms == {"a": Terms(100, 1000, 1000, 10**12 + PERIOD + LEASE)}


@pytest.mark.parametrize(
    ("age", "stretch"),
    [
        pytest.param(0, 1900, id="lasts"),
        pytest.param(20_000, 1900, id="ended"),
        pytest.param(31_000, 1000, id="old"),
    ],
)
def test_what_another_agent_has_told_counts_until_this_one_knows(age: int, stretch: int) -> None:
    """For a moment it has seen too little of who had the card when."""
    now = 10**12
    told = Terms(70, 1900, 1500, now + PERIOD - age * MS)
    process = Process(0, 10**12, 10**12, 100, waiting=True)
    grant = Grant("a", 30, Policy.DEFAULT, 1, (process,), told=told)
    memory, _ = control(Memory(), Snapshot(now, (grant,)))
    _, terms = control(memory, Snapshot(now + PERIOD, (grant,)))
    assert (terms["a"].cores, terms["a"].stretch) == (100, stretch)


def test_who_is_not_throttled_is_told_nothing() -> None:
    process = Process(0, 0, 0, 0, waiting=True)
    grants = (
        Grant("disabled", 30, Policy.DISABLE, 1, (process,)),
        Grant("whole", 100, Policy.DEFAULT, 1, (process,)),
    )
    memory, _ = control(Memory(), Snapshot(PERIOD, grants))
    assert control(memory, Snapshot(2 * PERIOD, grants))[1] == {}


_PROCESSES = st.builds(
    Process,
    slot=st.integers(0, 3),
    busy_ns=st.integers(0, 2**64 - 1),
    waited_ns=st.integers(0, 2**64 - 1),
    launches=st.integers(0, 2**64 - 1),
    waiting=st.booleans(),
    short_ns=st.integers(0, 2**64 - 1),
    there=st.none() | st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1)),
)
_GRANTS = st.builds(
    Grant,
    name=st.sampled_from("abc"),
    guaranteed=st.integers(0, 200),
    policy=st.sampled_from(Policy),
    priority=st.integers(0, 1),
    processes=st.lists(_PROCESSES, max_size=3).map(tuple),
    spans=st.lists(
        st.builds(Span, st.integers(0, 3), st.integers(0, 2**64), st.integers(0, 2**64)), max_size=3
    ).map(tuple),
)


@given(
    st.lists(
        st.tuples(st.integers(-10, 10**10), st.lists(_GRANTS, max_size=3, unique_by=lambda g: g.name)),
        max_size=4,
    )
)
def test_whatever_a_tenant_writes_there_are_terms_that_a_file_can_hold(
    looks: list[tuple[int, list[Grant]]],
) -> None:
    memory, now = Memory(), 10**12
    for passed, grants in looks:
        now += passed
        memory, terms = control(memory, Snapshot(now, tuple(grants)))
        for grant in grants:
            if grant.name in terms:
                found = terms[grant.name]
                assert grant.guaranteed <= found.cores <= 100 or found.cores == 1
                assert 1000 <= found.stretch_unlent <= found.stretch < 2**32
