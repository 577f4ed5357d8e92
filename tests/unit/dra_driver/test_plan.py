from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cdi.model import ContainerEdits, DeviceNode, Mount
from dra_driver.capacity import NOTHING, Amounts, Scales
from dra_driver.claims import read_allocation
from dra_driver.document import cdi_document
from dra_driver.errors import ConfigError, PermanentError, RetryableError
from dra_driver.grants import GrantDirectories
from dra_driver.inventory import Inventory
from dra_driver.library import InstalledLibrary
from dra_driver.names import DRIVER, DeviceName
from dra_driver.plan import Plan, make_plan, refuse_overcommit
from interposer.abi import Cap, Limits, Policy
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, opaque, result, share_id
from tests.unit.dra_driver.cards import A100, GIB, RTX_4090, two_cards
from tests.unit.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
REF = claim_ref()
WHOLE: dict[str, Any] = {"memory": "24Gi", "cores": "100", "shares": "1k"}


def plan(
    *results: dict[str, Any],
    config: list[Any] | None = None,
    scales: Scales = Scales(),  # noqa: B008 - immutable
    found: Inventory | None = None,
) -> Plan:
    allocation = read_allocation(REF, claim(REF, *results, config=config), driver=DRIVER, node=NODE)
    return make_plan(allocation, found or two_cards(), scales)


def test_a_share() -> None:
    (grant,) = plan(result(RTX_4090, "3000Mi", "30", "100")).grants
    assert grant.name == f"{REF.uid}-g0-00000001"
    assert grant.card == RTX_4090
    assert grant.held == Amounts(3000 << 20, 30, 100)
    assert grant.limits == Limits(
        uuid=RTX_4090.uuid,
        claim=REF.uid,
        memory_bytes=3000 << 20,
        card_memory_bytes=24 * GIB,
        guaranteed_cores=30,
        effective_cores=30,
        policy=Policy.DEFAULT,
        priority=1,
        spill=False,
        caps=(),
    )


@pytest.mark.parametrize(
    ("given", "config", "scales", "is_limited"),
    [
        pytest.param(result(RTX_4090, **WHOLE), None, Scales(), False, id="whole-card"),
        pytest.param(
            result(RTX_4090, "24Gi", "0", "100"), None, Scales(), False, id="claim-that-asks-for-nothing"
        ),
        pytest.param(result(RTX_4090, None), None, Scales(), False, id="exclusive-device"),
        pytest.param(
            result(RTX_4090, "24Gi", "30", "100"), None, Scales(), True, id="whole-memory-some-compute"
        ),
        pytest.param(
            result(RTX_4090, "23Gi", "100", "1k"), None, Scales(), True, id="alone-with-less-memory"
        ),
        pytest.param(
            result(RTX_4090, "48Gi", "100", "1k"),
            None,
            Scales(10, Fraction(2)),
            True,
            id="more-than-the-card-has",
        ),
        pytest.param(
            result(RTX_4090, "12Gi", "100", "1k"),
            None,
            Scales(10, Fraction(1, 2)),
            False,
            id="a-card-scaled-down",
        ),
        pytest.param(
            result(RTX_4090, **WHOLE),
            [opaque(enforcement="library")],
            Scales(),
            True,
            id="whole-card-but-asked-for",
        ),
        pytest.param(
            result(RTX_4090, **WHOLE),
            [opaque(caps=[{"container": "a", "memory": "1Gi"}])],
            Scales(),
            True,
            id="whole-card-with-a-cap",
        ),
        pytest.param(
            result(RTX_4090),
            [opaque("FromClass", enforcement="none")],
            Scales(),
            False,
            id="class-without-enforcement",
        ),
        pytest.param(result(RTX_4090, adminAccess=True), None, Scales(), False, id="admin-access"),
    ],
)
def test_who_gets_the_library(given: Any, config: Any, scales: Scales, is_limited: bool) -> None:
    (grant,) = plan(given, config=config, scales=scales).grants
    assert (grant.limits is not None) == is_limited


def test_admin_access_holds_nothing() -> None:
    (grant,) = plan(result(RTX_4090, adminAccess=True)).grants
    assert grant.held == NOTHING


def test_config_reaches_the_limits() -> None:
    config = [
        opaque("FromClass", priority=0, caps=[{"container": "big", "memory": "20Gi"}]),
        opaque(corePolicy="force", caps=[{"container": "small", "memory": "1Gi", "cores": 5}]),
    ]
    (grant,) = plan(result(RTX_4090, "8Gi", "30"), config=config).grants
    assert grant.limits is not None
    assert (grant.limits.policy, grant.limits.priority) == (Policy.FORCE, 0)
    assert grant.limits.caps == (Cap("big", 8 * GIB, 0), Cap("small", GIB, 5))


def test_scaling_lets_spill() -> None:
    (grant,) = plan(result(RTX_4090, "30Gi", "150"), scales=Scales(10, Fraction(2), Fraction(2))).grants
    assert grant.limits is not None
    assert grant.limits.spill
    assert grant.limits.memory_bytes == 30 * GIB
    assert grant.limits.guaranteed_cores == 100


@pytest.mark.parametrize(
    ("results", "names"),
    [
        pytest.param([result(RTX_4090)], ["g0-00000001"], id="share"),
        pytest.param([result(RTX_4090, None)], ["g0"], id="no-share-id"),
        pytest.param(
            [result(RTX_4090, share=1), result(RTX_4090, share=2)],
            ["g0-00000001", "g0-00000002"],
            id="two-of-one-card",
        ),
        pytest.param(
            [result(RTX_4090, None), result(A100, None)], ["g0", "g0-2"], id="two-exclusive-of-one-request"
        ),
        pytest.param([result(RTX_4090, request="g0/s24")], ["g0-00000001"], id="subrequest"),
    ],
)
def test_grant_names(results: list[dict[str, Any]], names: list[str]) -> None:
    assert [grant.name for grant in plan(*results).grants] == [f"{REF.uid}-{name}" for name in names]


def test_a_card_that_is_gone() -> None:
    with pytest.raises(RetryableError, match=f"device {A100.name} is not on this node .*{RTX_4090.name}"):
        plan(result(A100), found=replace(two_cards(), cards=(RTX_4090,)))


def test_no_memory_is_never_unlimited() -> None:
    with pytest.raises(PermanentError, match="no memory at all"):
        plan(result(A100, "0"))


def test_a_bad_config_is_refused() -> None:
    with pytest.raises(ConfigError, match="enforcement"):
        plan(result(A100), config=[opaque(enforcement="none")])


@pytest.mark.parametrize(
    ("results", "held", "what"),
    [
        pytest.param([result(RTX_4090, "8Gi")], {}, None, id="alone"),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(16 * GIB, 70, 900)}, None, id="fits-exactly"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")],
            {RTX_4090: Amounts(16 * GIB + 1, 0, 0)},
            "memory 25769803777",
            id="memory",
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(0, 71, 0)}, "cores 101 of 100", id="cores"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {RTX_4090: Amounts(0, 0, 901)}, "shares 1001 of 1000", id="shares"
        ),
        pytest.param(
            [result(RTX_4090, "8Gi")], {A100: Amounts(80 * GIB, 100, 1000)}, None, id="another-card"
        ),
        pytest.param(
            [result(RTX_4090, "13Gi"), result(RTX_4090, "13Gi", share=2)],
            {},
            "memory 26Gi of 24Gi",
            id="within-the-claim",
        ),
        pytest.param(
            [result(RTX_4090, None)], {RTX_4090: Amounts(1 << 20, 0, 100)}, "memory", id="exclusive"
        ),
        pytest.param(
            [result(RTX_4090, adminAccess=True)],
            {RTX_4090: Amounts(24 * GIB, 100, 1000)},
            None,
            id="admin-access",
        ),
    ],
)
def test_overcommit(results: Any, held: Any, what: str | None) -> None:
    others: dict[DeviceName, Amounts] = {card.name: amounts for card, amounts in held.items()}
    if what is None:
        refuse_overcommit(plan(*results), others, Scales())
        return
    with pytest.raises(RetryableError, match=f"over-committed, {what}"):
        refuse_overcommit(plan(*results), others, Scales())


LIBRARY = InstalledLibrary(
    "0.1.0-0123456789ab",
    Path("/var/lib/tessera/lib/0.1.0-0123456789ab/libtessera.so"),
    Path("/var/lib/tessera/lib/0.1.0-0123456789ab/ld.so.preload"),
)
DRIVER_EDITS = ContainerEdits(
    env=("NVIDIA_VISIBLE_DEVICES=void",),
    device_nodes=(DeviceNode(path="/dev/nvidiactl"), DeviceNode(path="/dev/nvidia-uvm")),
    mounts=(Mount(host_path="/usr/lib64/libcuda.so.570.124.06", container_path="/usr/lib64/libcuda.so.1"),),
)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(plan(result(RTX_4090, "3000Mi")), id="share"),
        pytest.param(plan(result(RTX_4090, **WHOLE)), id="whole-card"),
        pytest.param(
            plan(result(RTX_4090, "3000Mi"), result(A100, "80Gi", "100", "1k", request="g1", share=2)),
            id="share-and-whole-card",
        ),
        pytest.param(plan(result(A100, share=1), result(A100, share=2)), id="two-shares-of-one-card"),
    ],
)
def test_cdi_golden(request: pytest.FixtureRequest, made: Plan) -> None:
    spec = cdi_document(
        made,
        driver=DRIVER_EDITS,
        nodes={card.uuid: DeviceNode(path=f"/dev/nvidia{card.minor}") for card in (RTX_4090, A100)},
        library=LIBRARY,
        directories=GrantDirectories(Path("/run/tessera")),
    )
    assert_golden(GOLDEN / f"cdi-{request.node.callspec.id}.json", spec.to_json().decode())


def test_every_limited_grant_sees_only_itself() -> None:
    made = plan(result(A100, share=1), result(A100, share=2))
    spec = cdi_document(
        made,
        driver=DRIVER_EDITS,
        nodes={A100.uuid: DeviceNode(path="/dev/nvidia1")},
        library=LIBRARY,
        directories=GrantDirectories(Path("/run/tessera")),
    )
    for device, number in zip(spec.devices, (1, 2), strict=True):
        own = [mount for mount in device.container_edits.mounts if "/run/tessera/" in mount.container_path]
        assert {PurePosixPath(mount.container_path).parent.name for mount in own} == {device.name}
        assert device.name.endswith(share_id(number)[:8])


def test_limits_without_a_library_are_never_written_down() -> None:
    with pytest.raises(ValueError, match="there is no library"):
        cdi_document(
            plan(result(A100)),
            driver=DRIVER_EDITS,
            nodes={A100.uuid: DeviceNode(path="/dev/nvidia1")},
            library=None,
            directories=GrantDirectories(Path("/run/tessera")),
        )
