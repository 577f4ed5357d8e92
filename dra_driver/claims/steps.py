"""The steps of Prepare and Unprepare, by name: for histograms, and for tests that fail or kill between."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Step(enum.Enum):
    """In the order in which a claim goes through them."""

    CLAIM = "claim"
    PLAN = "plan"
    LOCK = "lock"
    LEDGER_PREPARING = "ledger-preparing"
    GRANTS = "grants"
    CDI = "cdi"
    LEDGER_PREPARED = "ledger-prepared"
    REMOVE_CDI = "remove-cdi"
    REMOVE_GRANTS = "remove-grants"
    REMOVE_LEDGER = "remove-ledger"


UNPREPARE = (Step.LOCK, *(step for step in Step if step.value.startswith("remove-")))
PREPARE = tuple(step for step in Step if not step.value.startswith("remove-"))


class Timer(Protocol):
    """Where the seconds of a step go; called from any thread."""

    def __call__(self, step: Step, seconds: float, /) -> None: ...


class Steps:
    """`reached` is called before each step and may raise, `passed` after each that succeeded: for tests."""

    def __init__(
        self,
        *,
        took: Timer,
        clock: Callable[[], float],
        reached: Callable[[Step], None] | None = None,
        passed: Callable[[Step], None] | None = None,
    ) -> None:
        self._took = took
        self._clock = clock
        self._reached = reached
        self._passed = passed

    @contextmanager
    def step(self, step: Step) -> Iterator[None]:
        """Times what is done inside, also when it fails."""
        began = self._clock()
        try:
            if self._reached is not None:
                self._reached(step)
            yield
            if self._passed is not None:
                self._passed(step)
        finally:
            self._took(step, self._clock() - began)
