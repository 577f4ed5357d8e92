from __future__ import annotations

import pytest

from dra_driver.announcements import Announcements
from dra_driver.cards.inventory import inventory, with_lost
from dra_driver.cards.rules import Rules
from dra_driver.cards.taints import Ailments
from dra_driver.cards.xids import Xid
from dra_driver.conditions import Condition, Conditions
from dra_driver.errors import ConfigError, GoneError, OvercommitError, PermanentError, RetryableError
from dra_driver.node import Node
from kube.events import ObjectRef
from tests.unit.dra_driver.allocations import claim_ref
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards

REF = claim_ref()
NODE, CLAIM = ObjectRef.of_node("node-a"), ObjectRef.of_claim(REF.namespace, REF.name, REF.uid)


class Said:
    """In the place of events.Recorder."""

    def __init__(self) -> None:
        self.warnings: list[tuple[ObjectRef, str, str]] = []
        self.notes: list[tuple[ObjectRef, str, str]] = []

    def warn(self, about: ObjectRef, reason: str, message: str, *, part: str = "") -> None:
        assert part in message
        self.warnings.append((about, reason, message))

    def note(self, about: ObjectRef, reason: str, message: str, *, part: str = "") -> None:
        assert part in message
        self.notes.append((about, reason, message))


@pytest.fixture
def said() -> Said:
    return Said()


@pytest.fixture
def announcements(said: Said) -> Announcements:
    return Announcements(said, "node-a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(ConfigError("caps[0].memory", "too much"), "ShareConfigRefused", id="config"),
        pytest.param(PermanentError("another node's"), "PrepareRefused", id="permanent"),
        pytest.param(OvercommitError("over-committed"), "CardOvercommitted", id="over-commit"),
        pytest.param(RetryableError("no driver yet"), None, id="passes-by-itself"),
        pytest.param(GoneError("no such claim"), None, id="there-is-nothing-to-say-it-about"),
        pytest.param(RuntimeError("ours"), None, id="our-own-fault"),
    ],
)
def test_refused(said: Said, announcements: Announcements, error: Exception, reason: str | None) -> None:
    announcements.refused(REF, error)
    assert said.warnings == ([(CLAIM, reason, str(error))] if reason is not None else [])


@pytest.mark.parametrize("condition", list(Condition))
def test_every_condition_is_the_nodes_or_nobodys(
    said: Said, announcements: Announcements, condition: Condition
) -> None:
    conditions = Conditions()
    conditions.listen(announcements.condition)
    conditions.fail(condition, "why")
    conditions.fail(condition, "why")
    conditions.hold(condition, "good again")
    conditions.hold(condition, "good in other words")
    if condition in (Condition.REGISTERED, Condition.SLICES):
        assert (said.warnings, said.notes) == ([], [])
        return
    ((about, reason, message),) = said.warnings
    assert (about, message) == (NODE, "why")
    assert said.notes == [(NODE, f"{reason}Recovered", "good again")]


def test_what_has_failed_before_anybody_listened(said: Said, announcements: Announcements) -> None:
    conditions = Conditions()
    conditions.fail(Condition.LEDGER, "a file is corrupt")
    conditions.hold(Condition.LIBRARY, "installed")
    conditions.listen(announcements.condition)
    assert said.warnings == [(NODE, "LedgerDamaged", "a file is corrupt")]


def test_claim_status(said: Said, announcements: Announcements) -> None:
    announcements.claim_status_not_written("forbidden")
    assert said.warnings == [(NODE, "ClaimStatusNotWritten", "forbidden")]


def test_cards(said: Said, announcements: Announcements) -> None:
    node = Node("node-a", Rules())
    node.listen(lambda: announcements.cards(node))
    node.not_found("not yet")
    node.found(two_cards())
    assert (said.warnings, said.notes) == ([], [])
    error = Xid(uuid=A100.uuid, gpu_uuid=A100.uuid, number=79, first=1.0, last=1.0, life="boot-1")
    node.ail(Ailments(xids={A100.uuid: error}))
    node.found(with_lost(two_cards(), inventory("1", "1", [RTX_4090])))
    node.not_found("no answer")  # says nothing new of the card
    assert [(about, reason) for about, reason, _ in said.warnings] == [
        (NODE, "CardError"),
        (NODE, "CardLost"),
    ]
    assert said.warnings[0][2].startswith(f"device {A100.name}: XID 79 reported by the card")
    assert said.warnings[1][2] == f"device {A100.name}: the NVIDIA driver does not list the card any more"
    node.found(two_cards())
    assert said.notes == []  # its error is still there
    node.ail(Ailments())
    assert said.notes == [(NODE, "CardWell", f"device {A100.name} is well again")]
