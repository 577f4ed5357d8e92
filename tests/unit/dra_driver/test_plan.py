from __future__ import annotations

import contextlib
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from dra_driver.cards.capacity import NOTHING, Amounts, Scales
from dra_driver.cards.inventory import Card, Inventory, inventory
from dra_driver.claims.allocation import read_allocation
from dra_driver.claims.plan import Plan, make_plan, refuse_overcommit
from dra_driver.errors import ConfigError, PermanentError, RetryableError
from dra_driver.names import DRIVER, DeviceName
from interposer.abi import Cap, Limits, Policy
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, opaque, result
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090, instance, two_cards

REF = claim_ref()
WHOLE: dict[str, Any] = {"memory": "24Gi", "cores": "100", "shares": "1k"}


def plan(
    *results: dict[str, Any],
    config: list[Any] | None = None,
    scales: Scales = Scales(),  # noqa: B008 - immutable
    found: Inventory | None = None,
) -> Plan:
    allocation = read_allocation(REF, claim(REF, *results, config=config), driver=DRIVER, node=NODE)
    return make_plan(allocation, found or two_cards(), scales)


def test_a_share() -> None:
    (grant,) = plan(result(RTX_4090, "3000Mi", "30", "100")).grants
    assert grant.name == f"{REF.uid}-g0-00000001"
    assert grant.card == RTX_4090
    assert grant.held == Amounts(3000 << 20, 30, 100)
    assert grant.limits == Limits(
        uuid=RTX_4090.uuid,
        claim=REF.uid,
        memory_bytes=3000 << 20,
        card_memory_bytes=24 * GIB,
        guaranteed_cores=30,
        effective_cores=30,
        policy=Policy.DEFAULT,
        priority=1,
        spill=False,
        caps=(),
    )


@pytest.mark.parametrize(
    ("given", "config", "scales", "is_limited"),
    [
        pytest.param(result(RTX_4090, **WHOLE), None, Scales(), False, id="whole-card"),
        pytest.param(
            result(RTX_4090, "24Gi", "0", "100"), None, Scales(), False, id="claim-that-asks-for-nothing"
        ),
        pytest.param(result(RTX_4090, None), None, Scales(), False, id="exclusive-device"),
        pytest.param(
            result(RTX_4090, "24Gi", "30", "100"), None, Scales(), True, id="whole-memory-some-compute"
        ),
        pytest.param(
            result(RTX_4090, "23Gi", "100", "1k"), None, Scales(), True, id="alone-with-less-memory"
        ),
        pytest.param(
            result(RTX_4090, "48Gi", "100", "1k"),
            None,
            Scales(10, Fraction(2)),
            True,
            id="more-than-the-card-has",
        ),
        pytest.param(
            result(RTX_4090, "12Gi", "100", "1k"),
            None,
            Scales(10, Fraction(1, 2)),
            False,
            id="a-card-scaled-down",
        ),
        pytest.param(
            result(RTX_4090, **WHOLE),
            [opaque(enforcement="library")],
            Scales(),
            True,
            id="whole-card-but-asked-for",
        ),
        pytest.param(
            result(RTX_4090, **WHOLE),
            [opaque(caps=[{"container": "a", "memory": "1Gi"}])],
            Scales(),
            True,
            id="whole-card-with-a-cap",
        ),
        pytest.param(
            result(RTX_4090),
            [opaque("FromClass", enforcement="none")],
            Scales(),
            False,
            id="class-without-enforcement",
        ),
        pytest.param(result(RTX_4090, adminAccess=True), None, Scales(), False, id="admin-access"),
        pytest.param(
            result(RTX_4090, "23Gi", "100", "1k"),
            None,
            Scales(reserved_memory=GIB),
            True,
            id="whole-card-but-for-what-is-reserved",
        ),
    ],
)
def test_who_gets_the_library(given: Any, config: Any, scales: Scales, is_limited: bool) -> None:
    (grant,) = plan(given, config=config, scales=scales).grants
    assert (grant.limits is not None) == is_limited


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param("8Gi", id="of-a-share"),
        pytest.param("0", id="of-no-memory"),
        pytest.param(None, id="of-an-exclusive-device"),
    ],
)
def test_admin_access_holds_nothing_and_has_no_limits(memory: str | None) -> None:
    (grant,) = plan(result(RTX_4090, memory, adminAccess=True)).grants
    assert grant.held == NOTHING
    assert grant.limits is None


def test_admin_access_has_no_limits_whatever_the_config_says() -> None:
    config = [opaque("FromClass", enforcement="library", caps=[{"container": "a", "memory": "1Gi"}])]
    (grant,) = plan(result(RTX_4090, adminAccess=True), config=config).grants
    assert grant.limits is None


def test_config_reaches_the_limits() -> None:
    config = [
        opaque("FromClass", priority=0, caps=[{"container": "big", "memory": "20Gi"}]),
        opaque(corePolicy="force", caps=[{"container": "small", "memory": "1Gi", "cores": 5}]),
    ]
    (grant,) = plan(result(RTX_4090, "8Gi", "30"), config=config).grants
    assert grant.limits is not None
    assert (grant.limits.policy, grant.limits.priority) == (Policy.FORCE, 0)
    assert grant.limits.caps == (Cap("big", 8 * GIB, 0), Cap("small", GIB, 5))


@pytest.mark.parametrize("config", [[opaque(memoryOverflow="refuse")], None], ids=["refused", "no-scaling"])
def test_nothing_spills(config: list[Any] | None) -> None:
    scales = Scales(10, Fraction(2 if config else 1), Fraction(1))
    (grant,) = plan(result(RTX_4090, "20Gi", "30"), scales=scales, config=config).grants
    assert grant.limits is not None
    assert not grant.limits.spill


def test_scaling_lets_spill() -> None:
    (grant,) = plan(result(RTX_4090, "30Gi", "150"), scales=Scales(10, Fraction(2), Fraction(2))).grants
    assert grant.limits is not None
    assert grant.limits.spill
    assert grant.limits.memory_bytes == 30 * GIB
    assert grant.limits.guaranteed_cores == 100


@pytest.mark.parametrize(
    ("results", "names"),
    [
        pytest.param([result(RTX_4090)], ["g0-00000001"], id="share"),
        pytest.param([result(RTX_4090, None)], ["g0"], id="no-share-id"),
        pytest.param(
            [result(RTX_4090, share=1), result(RTX_4090, share=2)],
            ["g0-00000001", "g0-00000002"],
            id="two-of-one-card",
        ),
        pytest.param(
            [result(RTX_4090, None), result(A100, None)], ["g0", "g0-2"], id="two-exclusive-of-one-request"
        ),
        pytest.param([result(RTX_4090, request="g0/s24")], ["g0-00000001"], id="subrequest"),
    ],
)
def test_grant_names(results: list[dict[str, Any]], names: list[str]) -> None:
    assert [grant.name for grant in plan(*results).grants] == [f"{REF.uid}-{name}" for name in names]


def test_limits_of_an_instance_are_the_instances() -> None:
    card = instance(9, 10)
    (grant,) = plan(result(card, "4Gi", "30"), found=inventory("1", "1", [card])).grants
    assert grant.limits is not None
    assert (grant.limits.uuid, grant.limits.card_memory_bytes) == (card.uuid, 10 * GIB)


@pytest.mark.parametrize(
    ("card", "is_limited"),
    [
        pytest.param(instance(9, 10), False, id="its-own-memory"),
        pytest.param(instance(9, 10, sharers=2), True, id="memory-of-two-compute-instances"),
    ],
)
def test_a_whole_instance_needs_the_library_if_its_memory_is_not_its_own(
    card: Card, is_limited: bool
) -> None:
    given = result(card, "10Gi" if card.mig and card.mig.sharers == 1 else "5Gi", "100", "1k")
    (grant,) = plan(given, found=inventory("1", "1", [card])).grants
    assert (grant.limits is not None) == is_limited


def test_a_withheld_card_serves_what_runs_and_nothing_new() -> None:
    withheld = replace(RTX_4090, withheld="is excluded by the node configuration (index: 0)")
    made = plan(result(RTX_4090, "8Gi", "30"), found=inventory("1", "1", [withheld]))
    with pytest.raises(RetryableError, match=r"takes no new claims: it is excluded by .* \(index: 0\)"):
        refuse_overcommit(made, {}, Scales())
    refuse_overcommit(made, {}, Scales(), {withheld.name: Amounts(8 * GIB, 30, 100)})


@pytest.mark.parametrize(
    ("before", "is_refused"),
    [
        pytest.param(Amounts(8 * GIB, 30, 100), False, id="runs-with-it"),
        pytest.param(Amounts(7 * GIB, 30, 100), True, id="more-memory-than-it-had"),
        pytest.param(Amounts(8 * GIB, 29, 100), True, id="more-compute-than-it-had"),
        pytest.param(NOTHING, True, id="new"),
    ],
)
def test_a_card_that_was_made_smaller_than_what_is_held(before: Amounts, is_refused: bool) -> None:
    made = plan(result(RTX_4090, "8Gi", "30"))
    others = {RTX_4090.name: Amounts(8 * GIB, 30, 100)}
    smaller = Scales(reserved_memory=12 * GIB)
    with pytest.raises(RetryableError, match="over-committed") if is_refused else contextlib.nullcontext():
        refuse_overcommit(made, others, smaller, {RTX_4090.name: before})


def test_a_card_that_is_gone() -> None:
    with pytest.raises(RetryableError, match=f"device {A100.name} is not on this node .*{RTX_4090.name}"):
        plan(result(A100), found=replace(two_cards(), cards=(RTX_4090,)))


def test_no_memory_is_never_unlimited() -> None:
    with pytest.raises(PermanentError, match="no memory at all"):
        plan(result(A100, "0"))


def test_a_bad_config_is_refused() -> None:
    with pytest.raises(ConfigError, match="enforcement"):
        plan(result(A100), config=[opaque(enforcement="none")])


@pytest.mark.parametrize(
    ("results", "held", "what"),
    [
        pytest.param([result(RTX_4090, "8Gi")], {}, None, id="alone"),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(16 * GIB, 70, 900)}, None, id="fits-exactly"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")],
            {RTX_4090: Amounts(16 * GIB + 1, 0, 0)},
            "memory 25769803777",
            id="memory",
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(0, 71, 0)}, "cores 101 of 100", id="cores"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(0, 0, 901)}, "shares 1001 of 1000", id="shares"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {A100: Amounts(80 * GIB, 100, 1000)}, None, id="another-card"
        ),
        pytest.param(
            [result(RTX_4090, "13Gi"), result(RTX_4090, "13Gi", share=2)],
            {},
            "memory 26Gi of 24Gi",
            id="within-the-claim",
        ),
        pytest.param(
            [result(RTX_4090, None)], {RTX_4090: Amounts(1 << 20, 0, 100)}, "memory", id="exclusive"
        ),
        pytest.param(
            [result(RTX_4090, adminAccess=True)],
            {RTX_4090: Amounts(24 * GIB, 100, 1000)},
            None,
            id="admin-access",
        ),
    ],
)
def test_overcommit(results: Any, held: Any, what: str | None) -> None:
    others: dict[DeviceName, Amounts] = {card.name: amounts for card, amounts in held.items()}
    if what is None:
        refuse_overcommit(plan(*results), others, Scales())
        return
    with pytest.raises(RetryableError, match=f"over-committed, {what}"):
        refuse_overcommit(plan(*results), others, Scales())
