"""What is read from the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from claim_mutator.facts import memory_sizes, parse_version


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ({"major": "1", "minor": "37"}, (1, 37)),
        ({"major": "1", "minor": "36+"}, (1, 36)),
        ({"major": "", "minor": ""}, (0, 0)),
        ({}, (0, 0)),
    ],
    ids=["plain", "managed", "empty", "nothing"],
)
def test_version(answer: dict[str, str], version: tuple[int, int]) -> None:
    assert parse_version(answer) == version


def device(value: Any, **changes: Any) -> dict[str, Any]:
    return {"name": "g", "allowMultipleAllocations": True, "capacity": {"memory": {"value": value}}} | changes


@pytest.mark.parametrize(
    ("devices", "sizes"),
    [
        pytest.param([device("24Gi"), device("24Gi"), device("80Gi")], {24 << 30, 80 << 30}, id="two sizes"),
        pytest.param([device("24Gi", allowMultipleAllocations=False)], set(), id="not shareable"),
        pytest.param([device("24Gi", capacity={})], set(), id="without memory"),
        pytest.param([device("rubbish"), device("1Gi")], {1 << 30}, id="one is unreadable"),
        pytest.param([device("0")], set(), id="nothing"),
        pytest.param(None, set(), id="no devices"),
    ],
)
def test_sizes(devices: list[dict[str, Any]] | None, sizes: set[int]) -> None:
    assert memory_sizes({"spec": {"devices": devices}}) == sizes
