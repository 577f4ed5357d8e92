from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from dra_driver.claims.allocation import ClaimRef
from dra_driver.claims.handed import PreparedDevice
from dra_driver.errors import ConfigError, PermanentError, RetryableError
from dra_driver.kubelet.service import DraService
from dra_driver.metrics.counters import Metrics
from protos.dra_v1 import dra_v1_pb2
from protos.dra_v1beta1 import dra_v1beta1_pb2

DEVICE = PreparedDevice("g0", "node-a", "gpu-a", ("gpu.tessera.dev/grant=uid-g0-aaaaaaaa",), "aaaaaaaa-1")


class Scripted:
    """Does with each claim what its name says."""

    def __init__(self, **answers: Callable[[], Any]) -> None:
        self.answers = answers

    async def prepare(self, ref: ClaimRef) -> tuple[PreparedDevice, ...]:
        self.answers[ref.name]()
        return (DEVICE,)

    async def unprepare(self, ref: ClaimRef) -> None:
        self.answers[ref.name]()


def fails(error: Exception) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def service(**answers: Callable[[], Any]) -> tuple[DraService, CollectorRegistry]:
    registry = CollectorRegistry()
    return DraService(Scripted(**answers), Metrics(registry)), registry  # type: ignore[arg-type]


ANSWERS: dict[str, Callable[[], Any]] = {
    "good": lambda: None,
    "later": fails(RetryableError("ResourceClaim ns/later:later is not allocated")),
    "never": fails(ConfigError("config[0].opaque.parameters.priority", "0 goes before 1")),
    "bug": fails(KeyError("device")),
}


def claims(messages: Any) -> list[Any]:
    return [messages.Claim(namespace="ns", name=name, uid=name) for name in ANSWERS]


@pytest.mark.parametrize("messages", [dra_v1_pb2, dra_v1beta1_pb2], ids=["v1", "v1beta1"])
async def test_every_claim_is_answered(messages: Any) -> None:
    served, registry = service(**ANSWERS)
    prepare = served._prepare_v1 if messages is dra_v1_pb2 else served._prepare_v1beta1
    answer = await prepare(messages.NodePrepareResourcesRequest(claims=claims(messages)), None)
    errors = {uid: claim.error for uid, claim in answer.claims.items()}
    assert errors == {
        "good": "",
        "later": "ResourceClaim ns/later:later is not allocated",
        "never": "ResourceClaim ns/never:never: config[0].opaque.parameters.priority: 0 goes before 1",
        "bug": "ResourceClaim ns/bug:bug: prepare failed: KeyError('device')",
    }
    (device,) = answer.claims["good"].devices
    assert list(device.request_names) == ["g0"]
    assert list(device.cdi_device_ids) == list(DEVICE.cdi_ids)
    if messages is dra_v1_pb2:
        assert device.share_id == "aaaaaaaa-1"
    for outcome in ("success", "retryable", "permanent", "internal"):
        labels = {"operation": "prepare", "outcome": outcome}
        assert registry.get_sample_value("tessera_claim_operations_total", labels) == 1


@pytest.mark.parametrize("messages", [dra_v1_pb2, dra_v1beta1_pb2], ids=["v1", "v1beta1"])
async def test_unprepare(messages: Any) -> None:
    served, _ = service(good=lambda: None, bad=fails(PermanentError("no")))
    unprepare = served._unprepare_v1 if messages is dra_v1_pb2 else served._unprepare_v1beta1
    request = messages.NodeUnprepareResourcesRequest(
        claims=[messages.Claim(namespace="ns", name=name, uid=name) for name in ("good", "bad")]
    )
    answer = await unprepare(request, None)
    assert {uid: claim.error for uid, claim in answer.claims.items()} == {
        "good": "",
        "bad": "ResourceClaim ns/bad:bad: no",
    }


async def test_nothing_asked_nothing_answered() -> None:
    served, _ = service()
    assert not (await served._prepare_v1(dra_v1_pb2.NodePrepareResourcesRequest(), None)).claims


async def test_no_share_id_is_absent() -> None:
    served, _ = service(good=lambda: None)
    answer = await served._prepare_v1(
        dra_v1_pb2.NodePrepareResourcesRequest(
            claims=[dra_v1_pb2.Claim(namespace="n", name="good", uid="u")]
        ),
        None,
    )
    assert answer.claims["u"].devices[0].HasField("share_id")
    bare = dra_v1_pb2.Device(share_id=None)
    assert not bare.HasField("share_id")
