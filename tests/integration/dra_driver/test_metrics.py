"""What Prometheus is given by an agent with cards and a claim."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.world import serving, two_cards


@pytest.mark.parametrize("legacy", [True, False], ids=["with HAMi's names", "without"])
async def test_figures_of_cards_and_claims(root: Path, api: ApiServer, legacy: bool) -> None:
    agent = Agent(root, api, TESSERA_LEGACY_METRICS=str(legacy).lower(), **two_cards(root))
    async with serving(agent, api) as world:
        await world.prepared(world.allocate("claim", world.share(0, "3000Mi", "30", "100")))
        uuid = world.devices()[0]["attributes"]["uuid"]["string"]
        card = f'{{uuid="{uuid}"}}'
        assert await world.metric(f"tessera_card_published_memory_bytes{card}") == 24 << 30
        assert await world.metric(f"tessera_card_held_memory_bytes{card}") == 3000 << 20
        assert await world.metric(f"tessera_card_held_cores{card}") == 30
        assert await world.metric(f"tessera_card_held_shares{card}") == 100
        assert await world.metric('tessera_nvml_seconds_count{call="inventory"}') >= 1
        assert await world.metric('tessera_prepare_seconds_count{step="cdi"}') == 1
        _, text = await agent.get("/metrics")
        assert ("hami_" in text) is legacy
        if legacy:
            # The Pod's name is the claim's user, as the API server has it.
            series = (
                'zone="vGPU",namespace="default",node="node-a",pod="p",container_index="",'
                f'device_uuid="{uuid}"'
            )
            assert await world.metric(f"hami_vgpu_memory_allocated_bytes{{{series}}}") == 3000 << 20
