"""What is done to a claim, from what there is of it: reconcile's pure part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from dra_driver.claims.ledger import Stored
from dra_driver.claims.ledger_file import Entry, State
from dra_driver.claims.reconcile import Action, Api, Found, decide
from tests.unit.dra_driver.allocations import claim_ref

REF = claim_ref()
PREPARED = Entry(uid=REF.uid, namespace=REF.namespace, name=REF.name, boot_id="boot-1", state=State.PREPARED)
PREPARING = msgspec.structs.replace(PREPARED, state=State.PREPARING)
EARLIER = msgspec.structs.replace(PREPARED, boot_id="boot-0")


def stored(entry: Entry | None) -> Stored:
    return Stored(Path("/ledger/claim.json"), entry)


UNREADABLE = stored(None)


def found(held: Entry | None, file: Stored | None = None, **more: Any) -> Found:
    """With its files and its ledger file, unless said otherwise."""
    file = file or (stored(held) if held is not None else None)
    return Found(**{"held": held, "stored": file, "has_files": True} | more)


@pytest.mark.parametrize(
    ("what", "action"),
    [
        pytest.param(found(PREPARED, api=Api.HELD), None, id="as-it-should-be"),
        pytest.param(found(PREPARED, api=Api.HELD, is_whole=False), Action.REWRITE, id="files-lost"),
        pytest.param(
            found(PREPARED, api=Api.HELD, is_whole=False, has_files=False),
            Action.REWRITE,
            id="all-lost",
        ),
        pytest.param(Found(PREPARED, None, True, Api.HELD), Action.REWRITE, id="ledger-file-lost"),
        pytest.param(found(PREPARED, UNREADABLE, api=Api.HELD), Action.REWRITE, id="ledger-file-broken"),
        pytest.param(found(PREPARED, api=Api.GONE), Action.UNPREPARE, id="gone"),
        pytest.param(found(PREPARED, api=Api.GONE, is_whole=False), Action.UNPREPARE, id="gone-and-lost"),
        pytest.param(found(PREPARED, is_whole=False), None, id="api-away"),
        pytest.param(found(PREPARING), None, id="half-prepared-and-api-away"),
        pytest.param(found(PREPARING, api=Api.HELD), Action.FINISH, id="half-prepared"),
        pytest.param(found(PREPARING, api=Api.GONE), Action.UNPREPARE, id="half-prepared-and-gone"),
        pytest.param(found(None), None, id="files-of-nobody-knows-whom"),
        pytest.param(found(None, api=Api.HELD), Action.RESTORE, id="files-of-a-claim"),
        pytest.param(found(None, api=Api.GONE), Action.REMOVE, id="files-of-no-claim"),
        pytest.param(Found(), None, id="nothing"),
        pytest.param(found(None, UNREADABLE), None, id="unreadable-entry"),
        pytest.param(found(None, UNREADABLE, api=Api.HELD), Action.RESTORE, id="unreadable-entry-of-a-claim"),
        pytest.param(
            found(None, UNREADABLE, api=Api.GONE), Action.UNPREPARE, id="unreadable-entry-of-no-claim"
        ),
        pytest.param(found(None, stored(EARLIER)), Action.REMOVE, id="left-of-an-earlier-boot"),
        pytest.param(Found(None, stored(EARLIER)), Action.REMOVE, id="entry-of-an-earlier-boot"),
    ],
)
def test_decide(what: Found, action: Action | None) -> None:
    assert decide(what) is action


def test_nothing_is_destroyed_on_a_guess() -> None:
    for held in (PREPARED, PREPARING, None):
        for file in (None, stored(PREPARED), stored(PREPARING), UNREADABLE):
            if held is None and file not in (None, UNREADABLE):
                continue
            for is_whole in (True, False):
                action = decide(Found(held, file, True, Api.UNKNOWN, is_whole))
                assert action is None or not action.destroys
