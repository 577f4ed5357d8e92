# SPDX-License-Identifier: Apache-2.0
"""The control loop on recorded looks at a card (tests/integration/interposer/record_trace.py).

All containers of a trace always have work. What the loop makes of the usage files is compared with what each
had in truth.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.monitor.control import Grant, Memory, Process, Snapshot, Terms, control
from interposer.abi import Policy, Span

TRACES = sorted((Path(__file__).parent / "traces").glob("*.json"))


def looks_of(trace: dict[str, Any]) -> list[Snapshot]:
    return [Snapshot(look["now"], tuple(map(grant_of, look["grants"]))) for look in trace["looks"]]


def grant_of(seen: dict[str, Any]) -> Grant:
    return Grant(
        name=seen["name"],
        guaranteed=seen["guaranteed"],
        policy=Policy(seen["policy"]),
        priority=seen["priority"],
        processes=tuple(
            Process(**(process | {"there": tuple(process["there"]) if process["there"] else None}))
            for process in seen["processes"]
        ),
        spans=tuple(Span(*span) for span in seen["spans"]),
    )


def replayed(looks: list[Snapshot]) -> tuple[Memory, dict[str, Terms]]:
    """What is remembered in the end, and the last terms of each. No reader sees a span in two looks."""
    memory, last = Memory(), dict[str, Terms]()
    for look in looks:
        new = tuple(
            replace(grant, spans=tuple(span for span in grant.spans if span.end_ns > memory.seen_until))
            for grant in look.grants
        )
        memory, terms = control(memory, replace(look, grants=new))
        last |= terms
    return memory, last


@pytest.fixture(params=TRACES, ids=lambda path: path.stem)
def trace(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(json.loads(request.param.read_text()))


def test_the_time_that_each_had_is_found_out(trace: dict[str, Any]) -> None:
    memory, _ = replayed(looks_of(trace))
    had = {name: known.had.own for name, known in memory.grants.items()}
    found = {name: own / sum(had.values()) * 100 for name, own in had.items()}
    assert found == pytest.approx(trace["shares"], abs=4)


def test_each_may_have_what_was_promised(trace: dict[str, Any]) -> None:
    looks = looks_of(trace)
    _, terms = replayed(looks)
    promised = {grant.name: grant.guaranteed for grant in looks[-1].grants}
    assert {name: each.cores for name, each in terms.items()} == promised
    assert all(each.stretch > 1100 for each in terms.values())  # nobody has the card alone
    assert all(each.stretch_unlent == pytest.approx(each.stretch, rel=0.05) for each in terms.values())


def test_there_are_traces() -> None:
    assert len(TRACES) >= 4
