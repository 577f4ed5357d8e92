"""What /readyz says: a closed set of conditions, each holding or not, with the reason in words.

Not ready is a statement to people and to the DaemonSet's rollout; the agent goes on serving what it can.
"""

from __future__ import annotations

import enum
import logging
from dataclasses import dataclass

_log = logging.getLogger(__name__)


class Condition(enum.Enum):
    """What must hold for the node to be of full use."""

    REGISTERED = "registered"
    GPUS = "gpus"
    DRIVER_FILES = "driver-files"
    LIBRARY = "library"
    LEDGER = "ledger"
    SLICES = "slices"
    FEATURES = "features"


@dataclass(frozen=True)
class State:
    """`detail`: one sentence, of use to somebody who sees nothing else."""

    holds: bool
    detail: str


class Conditions:
    """The present states; changes are logged, repetitions are not."""

    def __init__(self) -> None:
        self._states = {condition: State(False, "not known yet") for condition in Condition}

    def hold(self, condition: Condition, detail: str) -> None:
        self._set(condition, State(True, detail))

    def fail(self, condition: Condition, detail: str) -> None:
        self._set(condition, State(False, detail))

    def __getitem__(self, condition: Condition) -> State:
        return self._states[condition]

    @property
    def ready(self) -> bool:
        return all(state.holds for state in self._states.values())

    def describe(self) -> str:
        """A line for each condition, those that fail first."""
        ordered = sorted(self._states.items(), key=lambda item: item[1].holds)
        return "".join(
            f"[{'+' if state.holds else '-'}] {condition.value}: {state.detail}\n"
            for condition, state in ordered
        )

    def _set(self, condition: Condition, state: State) -> None:
        if self._states[condition] != state:
            self._states[condition] = state
            level = logging.INFO if state.holds else logging.WARNING
            _log.log(level, "%s: %s", condition.value, state.detail)
