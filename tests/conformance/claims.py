"""ResourceClaims as a person writes them and the scheduler allocates them, on a real API server."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube import paths
from kube.client import Client
from kube.quantity import parse_quantity
from tests.integration.dra_driver.kubelet import WireClaim

_numbers = itertools.count(1)
DEVICE_CLASS = "conformance.example"


async def published(client: Client, driver: str, node: str) -> list[dict[str, Any]]:
    """The driver's ResourceSlices of a node, in the order of their names."""
    selector = f"spec.driver={driver},spec.nodeName={node}"
    items = (await client.get(paths.resource_slices(), params={"fieldSelector": selector}))["items"]
    return sorted(items, key=lambda item: str(item["metadata"]["name"]))


@dataclass(frozen=True)
class Device:
    """A published device of a pool."""

    driver: str
    pool: str
    raw: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.raw["name"])

    def result(self, request: str = "gpu", *, admin: bool = False, **amounts: str) -> dict[str, Any]:
        """As the scheduler gives it to a request: a share of these amounts, each capacity's default else."""
        given: dict[str, Any] = {
            "request": request,
            "driver": self.driver,
            "pool": self.pool,
            "device": self.name,
        }
        if admin:
            given["adminAccess"] = True
        if self.raw.get("allowMultipleAllocations"):
            given["shareID"] = str(uuid.uuid4())
            given["consumedCapacity"] = {
                name: amounts.get(
                    name, (capacity.get("requestPolicy") or {}).get("default", capacity["value"])
                )
                for name, capacity in self.raw["capacity"].items()
            }
        return given


def devices_of(slices: Sequence[Mapping[str, Any]]) -> list[Device]:
    """All devices of these slices, most memory first."""
    found = [
        Device(item["spec"]["driver"], item["spec"]["pool"]["name"], device)
        for item in slices
        for device in item["spec"].get("devices") or ()
    ]
    return sorted(found, key=_memory, reverse=True)


def _memory(device: Device) -> int:
    capacity = (device.raw.get("capacity") or {}).get("memory")
    return int(parse_quantity(capacity["value"])) if capacity else 0


class Claims:
    """Makes ResourceClaims in one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self.namespace = namespace

    async def pending(self, *results: Mapping[str, Any]) -> WireClaim:
        """A claim whose requests fit these results, not allocated yet."""
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"claim-{next(_numbers)}"},
            "spec": {"devices": {"requests": _requests(results)}},
        }
        made = (await self._client.create(paths.resource_claims(self.namespace), body))["metadata"]
        return WireClaim(self.namespace, made["name"], made["uid"])

    async def allocate(
        self, wire: WireClaim, *results: Mapping[str, Any], config: Sequence[Any] = ()
    ) -> None:
        devices = {"results": list(results)} | ({"config": list(config)} if config else {})
        path = paths.resource_claim_status(wire.namespace, wire.name)
        await self._client.patch(path, {"status": {"allocation": {"devices": devices}}})

    async def make(self, *results: Mapping[str, Any], config: Sequence[Any] = ()) -> WireClaim:
        """An allocated claim."""
        wire = await self.pending(*results)
        await self.allocate(wire, *results, config=config)
        return wire

    async def delete(self, wire: WireClaim) -> None:
        await self._client.delete(paths.resource_claim(wire.namespace, wire.name))


def _requests(results: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Requests which the results answer; "main/sub" is a request with alternatives."""
    requests: dict[str, dict[str, Any]] = {}
    for result in results:
        main, _, sub = result["request"].partition("/")
        if sub:
            alternative = {"name": sub, "deviceClassName": DEVICE_CLASS}
            requests.setdefault(main, {"name": main, "firstAvailable": [alternative]})
            continue
        exactly: dict[str, Any] = {"deviceClassName": DEVICE_CLASS, "count": 0}
        exactly |= {"adminAccess": True} if result.get("adminAccess") else {}
        requests.setdefault(main, {"name": main, "exactly": exactly})["exactly"]["count"] += 1
    return list(requests.values())
