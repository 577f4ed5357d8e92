"""HAMi's variables in a container's environment, and its priority → the terms of its share. Pure.

HAMi's library believes these variables; ours believes nobody but the node agent, so what they mean goes into
the claim. What loosens a limit takes effect in trusted namespaces alone, and is told elsewhere.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from claim_mutator.names import TRUSTED_LABEL
from claim_mutator.pod import Container, Variable
from claim_mutator.refusal import Notice, Pointer
from claim_mutator.rules import HighPriority, Rules

PRIORITY = "CUDA_TASK_PRIORITY"
CORE_POLICY = "GPU_CORE_UTILIZATION_POLICY"
DISABLE = "CUDA_DISABLE_CONTROL"

TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False", "")
"""As Go's ParseBool has it, and not set."""


class CorePolicy(enum.Enum):
    """When compute is limited, loosest first."""

    DISABLE = "disable"
    DEFAULT = "default"
    FORCE = "force"


_ORDER = tuple(CorePolicy)


@dataclass(frozen=True)
class Terms:
    """high: goes before the others on the card. unlimited: without the library."""

    high: bool = False
    core_policy: CorePolicy = CorePolicy.DEFAULT
    unlimited: bool = False

    def together(self, other: Terms) -> Terms | None:
        """Of a share that both use: the higher priority, the stricter policy. None: they can't share."""
        if self.unlimited != other.unlimited:
            return None
        stricter = max(self.core_policy, other.core_policy, key=_ORDER.index)
        return Terms(self.high or other.high, stricter, self.unlimited)


PLAIN = Terms()


def read(
    pointer: Pointer, container: Container, priority: int | None, rules: Rules, *, trusted: bool
) -> tuple[Terms, tuple[Notice, ...]]:
    """priority: the resource's, which goes before the variable, as HAMi appends its own. Never raises."""
    reader = _Reader(pointer, container, trusted)
    return (
        Terms(reader.high(priority, rules), reader.core_policy(), reader.unlimited()),
        tuple(reader.notices),
    )


class _Reader:
    def __init__(self, pointer: Pointer, container: Container, trusted: bool) -> None:
        self._pointer = (*pointer, "env")
        self._name = container.name
        self._trusted = trusted
        self._variables = _literals(container)
        self.notices: list[Notice] = []

    def high(self, priority: int | None, rules: Rules) -> bool:
        if priority is None:
            index, variable = self._variables.get(PRIORITY, (0, None))
            value = (variable.value or "").strip() if variable else ""
            if value not in ("", "0", "1"):
                self._note(index, f"{PRIORITY}={value} has no effect: write 0 (high) or 1 (low)")
            wanted = value == "0"
        else:
            index, wanted = None, priority == 0
        if wanted and not self._trusted and rules.high_priority is HighPriority.TRUSTED:
            self._note(index, f"priority 0 (high) has no effect here: {_needs_label()}")
            return False
        return wanted

    def core_policy(self) -> CorePolicy:
        index, variable = self._variables.get(CORE_POLICY, (0, None))
        value = (variable.value or "").strip() if variable else ""
        if not value:
            return CorePolicy.DEFAULT
        try:
            policy = CorePolicy(value.lower())
        except ValueError:
            self._note(index, f"{CORE_POLICY}={value} has no effect: write default, force or disable")
            return CorePolicy.DEFAULT
        if policy is CorePolicy.DISABLE and not self._trusted:
            self._note(index, f"{CORE_POLICY}={value} has no effect here: {_needs_label()}")
            return CorePolicy.DEFAULT
        return policy

    def unlimited(self) -> bool:
        index, variable = self._variables.get(DISABLE, (0, None))
        value = (variable.value or "").strip() if variable else ""
        if value in FALSE:
            return False
        if value not in TRUE:
            self._note(index, f"{DISABLE}={value} has no effect: write true or false")
            return False
        if not self._trusted:
            self._note(index, f"{DISABLE}={value} has no effect here, the limits hold: {_needs_label()}")
            return False
        return True

    def _note(self, index: int | None, text: str) -> None:
        pointer = self._pointer if index is None else (*self._pointer, index)
        self.notices.append(Notice(pointer, f"container {self._name!r}: {text}"))


def _literals(container: Container) -> dict[str, tuple[int, Variable]]:
    """Of each name the last entry, which is the one that counts. Values from elsewhere are not known here."""
    return {
        variable.name: (index, variable)
        for index, variable in enumerate(container.env or ())
        if variable.value is not None
    }


def _needs_label() -> str:
    return f'an administrator has to label the namespace {TRUSTED_LABEL}: "true"'
