"""A claim that is remembered: for how long, and what of it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dra_driver.cards.rules import Rules
from dra_driver.claims.handed import DriverEdits, DriverNeeds, Handed, Left, LeftFiles
from dra_driver.claims.ledger_file import Entry, State
from dra_driver.claims.remembered_claims import RememberedClaims
from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import A100

REF = claim_ref()
RAW = claim(REF, result(A100))
_NONE = LeftFiles.as_now(())
_LEFT = Left(DriverNeeds((), (), toolkit=False), DriverEdits(None, ()), _NONE, _NONE)
HANDED = Handed((), _LEFT, None, Rules(), None)


def entry() -> Entry:
    return Entry(uid=REF.uid, namespace=REF.namespace, name=REF.name, boot_id="b", state=State.PREPARED)


def test_for_as_long_as_the_ledger_has_the_very_entry() -> None:
    known, held = RememberedClaims(), entry()
    known.keep(held, RAW, "7", HANDED)
    found = known.of(REF.uid, held)
    assert found is not None
    assert found.version == "7"
    assert found.handed is HANDED
    assert found.is_still(RAW)
    assert known.of(REF.uid, entry()) is None  # equal, but made by somebody else
    assert known.of(REF.uid, held) is None


@pytest.mark.parametrize("other", [None, entry()], ids=["no entry", "another"])
def test_not_for_another_entry(other: Entry | None) -> None:
    known = RememberedClaims()
    known.keep(entry(), RAW, "7", HANDED)
    assert known.of(REF.uid, other) is None


def test_forgotten() -> None:
    known, held = RememberedClaims(), entry()
    known.forget(REF.uid)
    known.keep(held, RAW, "7", HANDED)
    known.forget(REF.uid)
    assert known.of(REF.uid, held) is None


def _set(*path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(raw: dict[str, Any]) -> None:
        for key in path[:-1]:
            raw = raw[key]
        raw[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "is_still"),
    [
        pytest.param(_set("metadata", "resourceVersion", value="8"), True, id="version"),
        pytest.param(_set("metadata", "managedFields", value=[{}]), True, id="managed fields"),
        pytest.param(_set("status", "devices", value=[{"driver": "d"}]), True, id="device status"),
        pytest.param(_set("status", "reservedFor", value=[]), True, id="reserved for others"),
        pytest.param(_set("metadata", "uid", value="another"), False, id="uid"),
        pytest.param(_set("metadata", "annotations", value={"a": "b"}), False, id="annotations"),
        pytest.param(_set("status", "allocation", value=None), False, id="not allocated"),
        pytest.param(_set("status", "allocation", "devices", "results", value=[]), False, id="results"),
        pytest.param(_set("status", "allocation", "devices", "config", value=[{}]), False, id="config"),
    ],
)
def test_what_counts_as_the_same(change: Callable[[dict[str, Any]], None], is_still: bool) -> None:
    known, held, raw = RememberedClaims(), entry(), copy.deepcopy(RAW)
    known.keep(held, RAW, "7", HANDED)
    change(raw)
    found = known.of(REF.uid, held)
    assert found is not None
    assert found.is_still(raw) is is_still
