"""The steps of Prepare and Unprepare, by name: for histograms, and for tests that fail or kill between."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager
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
        self.took = took
        self.clock = clock
        self.reached = reached
        self.passed = passed

    def step(self, step: Step) -> AbstractContextManager[None]:
        """Times what is done inside, also when it fails."""
        return _Timed(self, step)


class _Timed:
    """Written out: half the time of a generator, seven times in each Prepare."""

    __slots__ = ("_began", "_step", "_steps")

    def __init__(self, steps: Steps, step: Step) -> None:
        self._steps = steps
        self._step = step

    def __enter__(self) -> None:
        self._began = self._steps.clock()
        if self._steps.reached is not None:
            try:
                self._steps.reached(self._step)
            except BaseException:
                self._end()
                raise

    def __exit__(self, kind: type[BaseException] | None, *_rest: object) -> None:
        try:
            if kind is None and self._steps.passed is not None:
                self._steps.passed(self._step)
        finally:
            self._end()

    def _end(self) -> None:
        self._steps.took(self._step, self._steps.clock() - self._began)
