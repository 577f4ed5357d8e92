"""What /readyz says: a closed set of conditions, each holding or not, with the reason in words.

Not ready is a statement to people and to the DaemonSet's rollout; the agent goes on serving what it can.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable
from dataclasses import dataclass

_log = logging.getLogger(__name__)


class Condition(enum.Enum):
    """What must hold for the node to be of full use."""

    REGISTERED = "registered"
    GPUS = "gpus"
    DRIVER_FILES = "driver-files"
    LIBRARY = "library"
    CONFIGURATION = "configuration"
    LEDGER = "ledger"
    SLICES = "slices"
    FEATURES = "features"
    DEVICE_PLUGIN = "device-plugin"


@dataclass(frozen=True)
class State:
    """`detail`: one sentence, of use to somebody who sees nothing else."""

    holds: bool
    detail: str
    is_known: bool = True


class Conditions:
    """The present states; changes are logged, repetitions are not."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[Condition, State], None]] = []
        self._states = {condition: State(False, "not known yet", is_known=False) for condition in Condition}

    def hold(self, condition: Condition, detail: str) -> None:
        self._set(condition, State(True, detail))

    def fail(self, condition: Condition, detail: str) -> None:
        self._set(condition, State(False, detail))

    def listen(self, listener: Callable[[Condition, State], None]) -> None:
        """`listener` is called with each change, and at once with what fails by now."""
        self._listeners.append(listener)
        for condition, state in self._states.items():
            if state.is_known and not state.holds:
                listener(condition, state)

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
            for listener in self._listeners:
                listener(condition, state)
