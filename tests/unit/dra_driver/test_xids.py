from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from dra_driver.cards.xids import (
    APPLICATION,
    LABELS,
    RECOVERY_ACTION_CHANGED,
    SETTLED,
    Sight,
    Xid,
    describe,
    is_fault,
    label,
    looked,
    reported,
    seen,
)

GPU, OTHER, MIG = "GPU-a", "GPU-b", "MIG-a1"
HERE = Sight(answers=True)
LOST = Sight(answers=False)
NEEDS_NOTHING, NEEDS_RESET = Sight(answers=True, action=0), Sight(answers=True, action=1)
NOW = 1000.0


def xid(uuid: str = GPU, gpu_uuid: str = GPU, **changes: object) -> Xid:
    known = Xid(uuid=uuid, gpu_uuid=gpu_uuid, number=48, first=NOW, last=NOW, life="boot-1")
    return replace(known, **changes)


@pytest.mark.parametrize(
    ("number", "ignored", "expected"),
    [
        *(pytest.param(number, (), False, id=f"application-{number}") for number in sorted(APPLICATION)),
        pytest.param(79, (), True, id="fallen-off-the-bus"),
        pytest.param(48, (), True, id="double-bit"),
        pytest.param(48, (48, 63), False, id="ignored-by-configuration"),
        pytest.param(RECOVERY_ACTION_CHANGED, (), False, id="only-news-of-the-recovery-action"),
        pytest.param(7777, (), True, id="unknown-to-us"),
    ],
)
def test_which_errors_count(number: int, ignored: tuple[int, ...], expected: bool) -> None:
    assert is_fault(number, frozenset(ignored)) is expected


def test_the_first_error_stays_until_it_is_over() -> None:
    assert reported(None, xid()) == xid()
    assert reported(xid(), xid(number=95, first=NOW + 9, last=NOW + 9)) == xid(last=NOW + 9)
    assert reported(xid(gone=True), xid(number=95, last=NOW + 9)) == xid(gone=True, last=NOW + 9)
    assert reported(xid(), xid(number=95, life="boot-2")) == xid(number=95, life="boot-2")


@pytest.mark.parametrize(
    ("known", "sight", "later", "expected"),
    [
        pytest.param(xid(), HERE, 1e9, xid(), id="a-driver-that-can-not-tell-leaves-it"),
        pytest.param(xid(), LOST, 1, xid(gone=True), id="gone"),
        pytest.param(xid(gone=True), LOST, 1, xid(gone=True), id="still-gone"),
        pytest.param(xid(gone=True), HERE, 1, None, id="back-again"),
        pytest.param(xid(gone=True), NEEDS_NOTHING, 1, None, id="back-and-well"),
        pytest.param(xid(gone=True), NEEDS_RESET, 1, xid(asked=True), id="back-but-not-well"),
        pytest.param(xid(), NEEDS_RESET, 1, xid(asked=True), id="the-driver-wants-a-reset"),
        pytest.param(xid(asked=True), NEEDS_RESET, 1e9, xid(asked=True), id="it-still-does"),
        pytest.param(xid(asked=True), NEEDS_NOTHING, 1, None, id="it-was-reset"),
        pytest.param(xid(asked=True), HERE, 1e9, xid(asked=True), id="it-can-not-tell-any-more"),
        pytest.param(xid(), NEEDS_NOTHING, SETTLED - 1, xid(), id="too-early-to-believe-it"),
        pytest.param(xid(), NEEDS_NOTHING, SETTLED, None, id="nothing-was-ever-needed"),
        pytest.param(xid(), HERE, -500, xid(first=NOW - 500, last=NOW - 500), id="the-clock-was-set-back"),
    ],
)
def test_what_a_look_makes_of_an_error(known: Xid, sight: Sight, later: float, expected: Xid | None) -> None:
    assert seen(known, sight, NOW + later) == expected


def test_an_error_of_the_future_ends_as_any_other() -> None:
    """Reported before the node's clock was set back by years."""
    now = NOW - 1e8
    known = seen(xid(), NEEDS_NOTHING, now)
    assert known is not None
    assert seen(known, NEEDS_NOTHING, now + SETTLED - 1) == known
    assert seen(known, NEEDS_NOTHING, now + SETTLED) is None


NEED = xid(number=RECOVERY_ACTION_CHANGED, asked=True)


@pytest.mark.parametrize(
    ("known", "sights", "instances", "life", "expected"),
    [
        pytest.param({}, {GPU: HERE}, (), "boot-1", {}, id="all-well"),
        pytest.param({}, {GPU: NEEDS_RESET}, (), "boot-1", {GPU: NEED}, id="a-need-without-an-error"),
        pytest.param({GPU: NEED}, {GPU: NEEDS_NOTHING}, (), "boot-1", {}, id="the-need-is-over"),
        pytest.param({GPU: xid()}, {GPU: HERE}, (), "boot-2", {}, id="another-boot"),
        pytest.param(
            {GPU: xid()}, {GPU: NEEDS_RESET}, (), "boot-2", {GPU: replace(NEED, life="boot-2")},
            id="another-boot-did-not-help",
        ),
        pytest.param({GPU: xid()}, {OTHER: HERE}, (), "boot-1", {GPU: xid(gone=True)}, id="not-listed"),
        pytest.param({GPU: xid()}, {}, (), "boot-1", {GPU: xid(gone=True)}, id="no-card-at-all"),
        pytest.param(
            {GPU: xid()}, {GPU: HERE, OTHER: NEEDS_RESET}, (), "boot-1",
            {GPU: xid(), OTHER: replace(NEED, uuid=OTHER, gpu_uuid=OTHER)},
            id="each-card-for-itself",
        ),
        pytest.param({MIG: xid(MIG)}, {GPU: HERE}, (MIG,), "boot-1", {MIG: xid(MIG)}, id="an-instance"),
        pytest.param({MIG: xid(MIG)}, {GPU: HERE}, (), "boot-1", {}, id="an-instance-that-is-no-more"),
        pytest.param(
            {MIG: xid(MIG)}, {GPU: LOST}, (), "boot-1", {MIG: xid(MIG, gone=True)}, id="lost-with-its-gpu"
        ),
        pytest.param(
            {MIG: xid(MIG)}, {GPU: NEEDS_RESET}, (MIG,), "boot-1", {MIG: xid(MIG, asked=True)},
            id="what-its-gpu-needs-is-known-already",
        ),
    ],
)  # fmt: skip
def test_a_look_at_all(
    known: Mapping[str, Xid],
    sights: Mapping[str, Sight],
    instances: tuple[str, ...],
    life: str,
    expected: Mapping[str, Xid],
) -> None:
    assert looked(known, sights, frozenset(instances), life, NOW) == expected


SIGHTS = st.builds(Sight, st.booleans(), st.none() | st.integers(0, 7))


@given(st.lists(SIGHTS, max_size=6), st.floats(0, 1e6))
def test_a_card_that_is_well_by_the_drivers_word_has_no_error_for_long(
    history: list[Sight], late: float
) -> None:
    known: dict[str, Xid] = {GPU: xid()}
    for sight in history:
        known = looked(known, {GPU: sight}, frozenset(), "boot-1", NOW)
    after = looked(known, {GPU: NEEDS_NOTHING}, frozenset(), "boot-1", NOW + SETTLED + late)
    assert after == {}
    assert looked(after, {GPU: NEEDS_NOTHING}, frozenset(), "boot-1", NOW) == {}


def test_labels_are_a_closed_set() -> None:
    assert {label(number) for number in range(1, 9999)} == set(LABELS)
    assert len(LABELS) < 30


@pytest.mark.parametrize(
    ("known", "action", "expected"),
    [
        (xid(), None, "XID 48 reported by the card; reset the card or reboot the node, and the taint goes"),
        (
            xid(),
            0,
            "XID 48 reported by the card; the driver wants nothing done, so the taint goes 300 s after the"
            " last error",
        ),
        (xid(), 2, "XID 48 reported by the card; reboot the node, and the taint goes"),
        (NEED, 1, "the NVIDIA driver says that the card needs attention; reset the GPU, and the taint goes"),
        (
            NEED,
            99,
            "the NVIDIA driver says that the card needs attention; recovery action 99, and the taint goes",
        ),
    ],
)
def test_it_is_told_what_to_do(known: Xid, action: int | None, expected: str) -> None:
    assert describe(known, action) == expected
