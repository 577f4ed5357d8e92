"""A ResourceClaim as the API server has it → what of it is ours to prepare.

The kubelet names a claim by namespace, name and UID; the rest is read here and checked: the UID is the same,
it is allocated, our results are on this node, and amounts are whole numbers. Results of other drivers are not
ours.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dra_driver.cards.capacity import Amounts
from dra_driver.errors import GoneError, PermanentError, RetryableError
from dra_driver.names import CAPACITY_CORES, CAPACITY_MEMORY, CAPACITY_SHARES, ClaimUID, DeviceName
from kube import paths
from kube.backoff import Backoff
from kube.client import Client
from kube.errors import ApiError, NotFound, Unavailable
from kube.quantity import QuantityError, parse_quantity

PATIENCE = 5.0  # seconds of `fetch` for the kubelet: once refused it would ask again after a minute or more
_BACKOFF = Backoff()
_PAGE = 500  # objects
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"  # an annotation, so whoever makes claims may set it
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)  # what a Pod may call a claim


@dataclass(frozen=True)
class ClaimRef:
    """How the kubelet names a claim."""

    namespace: str
    name: str
    uid: ClaimUID

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.uid}"


@dataclass(frozen=True)
class Result:
    """One device, or one share of a device, that the scheduler gave to a request.

    `request` may have a sub-request, `main/sub`; `consumed` is None where the device is not a shared one.
    """

    request: str
    pool: str
    device: DeviceName
    share_id: str | None = None
    consumed: Amounts | None = None
    admin_access: bool = False

    @property
    def main_request(self) -> str:
        """The name that containers and the kubelet know."""
        return self.request.partition("/")[0]


@dataclass(frozen=True)
class OpaqueConfig:
    """Parameters for us from the DeviceClass or from the claim. No `requests`: for all of them."""

    from_class: bool
    requests: tuple[str, ...]
    parameters: Any
    path: str

    def applies_to(self, result: Result) -> bool:
        return not self.requests or result.request in self.requests or result.main_request in self.requests


@dataclass(frozen=True)
class Allocation:
    """What the scheduler decided, as far as it is ours; in the claim's order.

    `pod_claim_name`: by what name its Pod knows a claim that was made from a template.
    """

    claim: ClaimRef
    results: tuple[Result, ...]
    configs: tuple[OpaqueConfig, ...]
    pod_claim_name: str | None = None


async def fetch(
    client: Client, ref: ClaimRef, at_least: str | None = None, *, patience: float = 0.0
) -> dict[str, Any]:
    """The claim as it is now; with `at_least`, not older than this resourceVersion, at half the cost.

    `patience`: seconds in which a server that has no answer just now, or says when to come back, is asked
    again. Raises ClaimError.
    """
    path = paths.resource_claim(ref.namespace, ref.name)
    params = {} if at_least is None else {"resourceVersion": at_least}
    end = time.monotonic() + patience
    for tries in itertools.count(1):
        try:
            return await client.get(path, params=params)
        except Unavailable as error:
            pause = _BACKOFF.delay(tries, error.retry_after)
            if time.monotonic() + pause > end:
                raise RetryableError(f"ResourceClaim {ref} can't be read: {error}") from error
            await asyncio.sleep(pause)
        except ApiError as error:
            if not params:
                raise _refusal(ref, error) from error
        params = {}  # a server that has been restored from a backup doesn't know the version any more
    raise AssertionError("unreachable: the numbers don't end")


def _refusal(ref: ClaimRef, error: ApiError) -> RetryableError:
    # A server or proxy that doesn't know the path at all says nothing about the claim.
    if isinstance(error, NotFound) and error.reason == "NotFound":
        return GoneError(f"ResourceClaim {ref} does not exist any more")
    return RetryableError(f"ResourceClaim {ref} can't be read: {error}")


async def search(client: Client, uids: Collection[ClaimUID]) -> dict[ClaimUID, dict[str, Any]]:
    """Those of the cluster's claims that have one of these UIDs. Raises ClaimError.

    All claims are listed, page by page: for when a claim's name is lost.
    """
    found: dict[ClaimUID, dict[str, Any]] = {}
    params = {"limit": str(_PAGE)}
    while True:
        try:
            page = await client.get(paths.resource_claims(), params=params)
        except ApiError as error:
            raise RetryableError(f"ResourceClaims can't be listed: {error}") from error
        for item in page.get("items") or ():
            if item["metadata"]["uid"] in uids:
                found[item["metadata"]["uid"]] = item
        token = (page.get("metadata") or {}).get("continue")
        if not token or len(found) == len(uids):
            return found
        params = {"limit": str(_PAGE), "continue": token}


def is_held_here(ref: ClaimRef, raw: Mapping[str, Any], *, driver: str, node: str) -> bool:
    """Whether it still is the claim that was meant, and something of ours on this node is allocated to it."""
    allocation = (raw.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    is_same = (raw.get("metadata") or {}).get("uid") == ref.uid
    return is_same and any(result["driver"] == driver and result["pool"] == node for result in results)


def read_allocation(ref: ClaimRef, raw: Mapping[str, Any], *, driver: str, node: str) -> Allocation:
    """Raises ClaimError, which names the field."""
    uid = (raw.get("metadata") or {}).get("uid")
    if uid != ref.uid:
        raise RetryableError(f"ResourceClaim {ref} was replaced by another of the same name, with UID {uid}")
    allocation = (raw.get("status") or {}).get("allocation")
    if not allocation:
        raise RetryableError(f"ResourceClaim {ref} is not allocated")
    devices = allocation.get("devices") or {}
    results = tuple(_results(ref, devices.get("results") or (), driver))
    for result in results:
        if result.pool != node:
            raise PermanentError(
                f"ResourceClaim {ref}: device {result.device} is in pool {result.pool}, this node is {node}"
            )
    configs = tuple(_configs(devices.get("config") or (), driver))
    return Allocation(ref, results, configs, _pod_claim_name(raw["metadata"]))


def _pod_claim_name(metadata: Mapping[str, Any]) -> str | None:
    """It becomes a part of a path in containers: what leads elsewhere counts for nothing."""
    name = str((metadata.get("annotations") or {}).get(_POD_CLAIM_NAME, ""))
    return name if _LABEL.fullmatch(name) else None


def _results(ref: ClaimRef, results: Any, driver: str) -> Iterator[Result]:
    for index, result in enumerate(results):
        if result.get("driver") != driver:
            continue
        path = f"ResourceClaim {ref}: status.allocation.devices.results[{index}].consumedCapacity"
        consumed = result.get("consumedCapacity")
        yield Result(
            request=str(result["request"]),
            pool=str(result["pool"]),
            device=DeviceName(str(result["device"])),
            share_id=result.get("shareID"),
            consumed=_amounts(consumed, path) if consumed else None,
            admin_access=bool(result.get("adminAccess")),
        )


def _amounts(consumed: Mapping[str, Any], path: str) -> Amounts:
    return Amounts(
        memory=_amount(consumed, CAPACITY_MEMORY, path),
        cores=_amount(consumed, CAPACITY_CORES, path),
        shares=_amount(consumed, CAPACITY_SHARES, path),
    )


def _amount(consumed: Mapping[str, Any], name: str, path: str) -> int:
    text = consumed.get(name)
    if text is None:
        raise PermanentError(f"{path} lacks {name}: was the claim allocated from another release's slice?")
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        raise PermanentError(f"{path}.{name}: {error}") from error
    if value < 0 or value.denominator != 1:
        raise PermanentError(f"{path}.{name}: {text!r} is not a whole number of at least 0")
    return int(value)


def _configs(configs: Any, driver: str) -> Iterator[OpaqueConfig]:
    for index, config in enumerate(configs):
        opaque = config.get("opaque")
        if not opaque or opaque.get("driver") != driver:
            continue
        yield OpaqueConfig(
            from_class=config.get("source") == "FromClass",
            requests=tuple(config.get("requests") or ()),
            parameters=opaque.get("parameters"),
            path=f"status.allocation.devices.config[{index}].opaque.parameters",
        )
