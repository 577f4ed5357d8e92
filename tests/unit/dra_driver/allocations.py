"""ResourceClaims as the API server has them, made for the tests."""

from __future__ import annotations

import uuid
from typing import Any

from dra_driver.cards.inventory import Card
from dra_driver.claims.allocation import ClaimRef
from dra_driver.names import DRIVER, ClaimUID

NODE = "node-a"


def claim_ref(name: str = "claim", namespace: str = "default") -> ClaimRef:
    """The same name has the same UID."""
    return ClaimRef(namespace, name, ClaimUID(str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{namespace}/{name}"))))


def share_id(number: int) -> str:
    return f"{number:08x}-1111-4111-8111-111111111111"


def result(
    card: Card,
    memory: str | None = "8Gi",
    cores: str = "30",
    shares: str = "100",
    *,
    request: str = "g0",
    share: int = 1,
    **more: Any,
) -> dict[str, Any]:
    """One allocation result; memory None: an exclusive device."""
    shared: dict[str, Any] = {
        "shareID": share_id(share),
        "consumedCapacity": {"memory": memory, "cores": cores, "shares": shares},
    }
    return {
        "request": request,
        "driver": DRIVER,
        "pool": NODE,
        "device": card.name,
        **(shared if memory is not None else {}),
        **more,
    }


def claim(ref: ClaimRef, *results: dict[str, Any], config: list[Any] | None = None) -> dict[str, Any]:
    """An allocated claim."""
    devices = {"results": list(results)} | ({"config": config} if config else {})
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": devices}, "reservedFor": [{"resource": "pods", "name": "p"}]},
    }


def opaque(source: str = "FromClaim", driver: str = DRIVER, **parameters: Any) -> dict[str, Any]:
    """An entry of status.allocation.devices.config."""
    header = {"apiVersion": "gpu.tessera.dev/v1alpha1", "kind": "ShareConfig"}
    return {"source": source, "opaque": {"driver": driver, "parameters": header | parameters}}
