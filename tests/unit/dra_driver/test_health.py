from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from types import ModuleType

import pytest

from dra_driver.cards.inventory import CardFault, Inventory, LostCard, inventory
from dra_driver.cards.rules import Rules
from dra_driver.cards.taints import Ailments
from dra_driver.cards.xids import Xid
from dra_driver.kubelet.health import DeviceHealth, Health, assess
from dra_driver.names import DeviceName
from dra_driver.node import Node
from protos.dra_health_v1 import dra_health_v1_pb2
from protos.dra_health_v1alpha1 import dra_health_v1alpha1_pb2
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards

LOST = CardFault("GPU 1", "can't be described, the driver says: GPU is lost")
SPLIT = CardFault(A100.uuid, "is in MIG mode")
GONE = "the NVIDIA driver does not list the card any more"
BOTH = (RTX_4090.name, A100.name)


def _with(*faults: CardFault) -> Inventory:
    """One card, and what has become of the other."""
    return inventory("570.124.06", "12.8.0", [RTX_4090], faults)


@pytest.mark.parametrize(
    ("found", "silence", "others", "expected"),
    [
        pytest.param(two_cards(), None, (), [(Health.HEALTHY, ""), (Health.HEALTHY, "")], id="good"),
        pytest.param(two_cards(), None, BOTH, [(Health.HEALTHY, ""), (Health.HEALTHY, "")], id="held"),
        pytest.param(_with(), None, (), [(Health.HEALTHY, "")], id="one-card"),
        pytest.param(_with(), None, BOTH, [(Health.HEALTHY, ""), (Health.UNHEALTHY, GONE)], id="gone"),
        pytest.param(
            _with(LOST),
            None,
            BOTH,
            [(Health.HEALTHY, ""), (Health.UNHEALTHY, f"{GONE}; {LOST.card} {LOST.reason}")],
            id="lost",
        ),
        pytest.param(
            _with(LOST, SPLIT),
            None,
            BOTH,
            [(Health.HEALTHY, ""), (Health.UNHEALTHY, f"{A100.uuid} is in MIG mode")],
            id="a-fault-of-its-own",
        ),
        pytest.param(
            _with(CardFault("GPU-0", "x" * 2000)),
            None,
            BOTH,
            [(Health.HEALTHY, ""), (Health.UNHEALTHY, GONE)],
            id="another-cards-fault",
        ),
        pytest.param(
            two_cards(),
            "no answer",
            (),
            [(Health.UNKNOWN, "no answer"), (Health.UNKNOWN, "no answer")],
            id="silent",
        ),
        pytest.param(
            None, "not asked", (A100.name,), [(Health.UNKNOWN, "not asked")], id="claims-but-no-driver-yet"
        ),
        pytest.param(None, "not asked", (), [], id="nothing-known"),
        pytest.param(
            two_cards(),
            "x" * 2000,
            (),
            [(Health.UNKNOWN, "x" * 1024), (Health.UNKNOWN, "x" * 1024)],
            id="long-message",
        ),
        pytest.param(
            _with(CardFault(A100.uuid, "y" * 2000)),
            None,
            BOTH,
            [(Health.HEALTHY, ""), (Health.UNHEALTHY, f"{A100.uuid} {'y' * 2000}"[:1024])],
            id="long-fault",
        ),
    ],
)
def test_assess(
    found: Inventory | None,
    silence: str | None,
    others: Iterable[DeviceName],
    expected: list[tuple[Health, str]],
) -> None:
    assessed = assess(found, silence, others)
    assert [(device.health, device.message) for device in assessed] == expected
    assert [device.device for device in assessed] == sorted(device.device for device in assessed)


LOST_A100 = replace(_with(), lost=(LostCard(A100, GONE),))
ERROR = Xid(uuid=A100.uuid, gpu_uuid=A100.uuid, number=79, first=1.0, last=1.0, life="boot-1")
SAID = "XID 79 reported by the card; reset the card or reboot the node, and the taint goes"


@pytest.mark.parametrize(
    ("found", "silence", "ailments", "expected"),
    [
        pytest.param(LOST_A100, None, Ailments(), (Health.UNHEALTHY, GONE), id="lost"),
        pytest.param(LOST_A100, "no answer", Ailments(), (Health.UNHEALTHY, GONE), id="lost-and-silent"),
        pytest.param(
            two_cards(), None, Ailments({A100.uuid: ERROR}), (Health.UNHEALTHY, SAID), id="an-error"
        ),
        pytest.param(
            replace(two_cards(), actions={A100.uuid: 2}),
            None,
            Ailments({A100.uuid: ERROR}),
            (Health.UNHEALTHY, "XID 79 reported by the card; reboot the node, and the taint goes"),
            id="an-error-and-what-to-do",
        ),
        pytest.param(
            two_cards(), "no answer", Ailments({A100.uuid: ERROR}), (Health.UNHEALTHY, SAID), id="then-silent"
        ),
        pytest.param(
            LOST_A100,
            None,
            Ailments({A100.uuid: ERROR}),
            (Health.UNHEALTHY, f"{GONE}; {SAID}"),
            id="lost-with-its-error",
        ),
        pytest.param(
            two_cards(), None, Ailments(unheard={A100.uuid: "none"}), (Health.HEALTHY, ""), id="no-events"
        ),
    ],
)
def test_what_is_known_against_a_card(
    found: Inventory, silence: str | None, ailments: Ailments, expected: tuple[Health, str]
) -> None:
    other, one = sorted(assess(found, silence, (), ailments), key=lambda health: health.device == A100.name)
    assert (one.health, one.message) == expected
    assert other.health is (Health.HEALTHY if silence is None else Health.UNKNOWN)


def test_a_card_that_was_never_published_is_no_device() -> None:
    assert assess(_with(SPLIT, LOST), None) == (DeviceHealth(RTX_4090.name, Health.HEALTHY),)


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param(dra_health_v1_pb2, id="v1"),
        pytest.param(dra_health_v1alpha1_pb2, id="v1alpha1"),
    ],
)
def test_the_wire(messages: ModuleType) -> None:
    response = messages.NodeWatchResourcesResponse(
        devices=[
            messages.DeviceHealth(
                device=messages.DeviceIdentifier(pool_name="p", device_name="d"),
                health=Health.UNHEALTHY,
                last_updated_time=5,
                health_check_timeout_seconds=30,
                message="m",
            )
        ]
    )
    device = (
        b"\x0a\x06" + b"\x0a\x01p" + b"\x12\x01d" + b"\x10\x02" + b"\x18\x05" + b"\x20\x1e" + b"\x2a\x01m"
    )
    assert response.SerializeToString() == b"\x0a" + bytes([len(device)]) + device


def test_a_node_tells_only_news() -> None:
    node, heard = Node("node-a", Rules()), []
    node.listen(lambda: heard.append((len(node.cards.cards) if node.cards else None, node.silence)))
    node.not_found("no driver")
    node.not_found("no driver")
    node.found(two_cards())
    node.found(two_cards())
    node.not_found("no answer")
    node.found(_with())
    assert heard == [(None, "no driver"), (2, None), (2, "no answer"), (1, None)]
    assert node.seen == {RTX_4090.name, A100.name}
