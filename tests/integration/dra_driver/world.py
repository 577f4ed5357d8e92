"""A node with two fake cards, its API server and its kubelet, as a test sees them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from kube import paths
from tests.fakegpu import driver_root
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import DRIVER_DOCUMENT, Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.unit.dra_driver.allocations import claim, claim_ref, share_id

INVENTORIES = Path(driver_root.__file__).parent / "inventories"


def fake_cards(root: Path, inventory: Path) -> dict[str, str]:
    """Installs the fake driver below `root`; returns the environment in which an agent sees the cards."""
    driver_root.install(root / "driver", root / "fakegpu", inventory)
    return {"FAKEGPU_DIR": str(root / "fakegpu"), "FAKEGPU_DEV": str(root / "driver/dev")}


def two_cards(root: Path) -> dict[str, str]:
    """The usual ones."""
    return fake_cards(root, INVENTORIES / "two-cards.ini")


class World:
    """One node, its API server, and its kubelet."""

    def __init__(self, agent: Agent, api: ApiServer, kubelet: Kubelet) -> None:
        self.agent = agent
        self.api = api
        self.kubelet = kubelet

    def devices(self) -> list[dict[str, Any]]:
        return [
            device
            for item in self.api.all(paths.resource_slices())
            for device in item["spec"].get("devices", ())
        ]

    def allocate(self, name: str, *results: dict[str, Any], config: list[Any] | None = None) -> WireClaim:
        """A claim, allocated as the scheduler would have."""
        ref = claim_ref(name)
        self.api.put(paths.resource_claims(), claim(ref, *results, config=config))
        return WireClaim(ref.namespace, ref.name, ref.uid)

    def share(
        self, index: int, memory: str = "3000Mi", cores: str = "30", shares: str = "100", **more: Any
    ) -> dict[str, Any]:
        """A result for the card of that number in the slice."""
        return {
            "request": "g0",
            "driver": "gpu.tessera.dev",
            "pool": "node-a",
            "device": self.devices()[index]["name"],
            "shareID": share_id(more.pop("share", 1)),
            "consumedCapacity": {"memory": memory, "cores": cores, "shares": shares},
            **more,
        }

    def spec(self, wire: WireClaim) -> dict[str, Any]:
        path = self.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json"
        document = json.loads(path.read_bytes())
        assert isinstance(document, dict)
        return document

    def granted(self, wire: WireClaim) -> list[dict[str, Any]]:
        """The devices of the claim's grants; each has another one, for a shim, behind the driver's files."""
        return [device for device in self.spec(wire)["devices"] if not device["name"].endswith("-shim")]

    def driver_spec(self) -> dict[str, Any]:
        """The document of the driver's files, which all claims have beside their own."""
        document = json.loads((self.agent.root / "cdi" / DRIVER_DOCUMENT).read_bytes())
        assert isinstance(document, dict)
        return document

    async def prepared(self, wire: WireClaim) -> Any:
        answer = (await self.kubelet.prepare(wire))[wire.uid]
        assert answer.error == ""
        return answer

    async def metric(self, series: str) -> float:
        return (await self.agent.series())[series]

    async def until_metric(self, series: str, value: float) -> None:
        """For what is counted after its effect can be seen."""
        seen: list[float | None] = []

        async def has_come() -> bool:
            seen[:] = [(await self.agent.series()).get(series)]
            return seen == [value]

        try:
            await self.agent.until(has_come)
        except AssertionError as error:
            raise AssertionError(f"{series} is {seen}, not {value}: {error}") from error


@asynccontextmanager
async def serving(agent: Agent, api: ApiServer) -> AsyncIterator[World]:
    """The node of an agent that is started, found by the kubelet, and ready."""
    with agent:
        await agent.start()
        info = await register(agent.sockets.registration)
        async with Kubelet(Path(info.endpoint)) as kubelet:
            await agent.until_ready()
            yield World(agent, api, kubelet)
