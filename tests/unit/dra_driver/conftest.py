"""A node with one claim that the API server knows, and the loop over it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.dra_driver.allocations import claim, claim_ref, result
from tests.unit.dra_driver.cards import RTX_4090
from tests.unit.dra_driver.loop import Loop
from tests.unit.dra_driver.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.put(claim(claim_ref(), result(RTX_4090, "3000Mi")))
    return made


@pytest.fixture
def loop(world: World) -> Loop:
    return Loop(world)
