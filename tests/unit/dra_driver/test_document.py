from __future__ import annotations

from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cdi.driver_shim import Covered
from cdi.model import ContainerEdits, DeviceNode, Mount
from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Interposition
from dra_driver.claims.allocation import read_allocation
from dra_driver.claims.base_edits import NativeEdits
from dra_driver.claims.document import cdi_document
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.plan import Plan, make_plan
from dra_driver.names import DRIVER
from tests.unit.dra_driver.allocations import NODE, claim, claim_ref, result, share_id
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards
from tests.unit.golden import assert_golden

GOLDEN = Path(__file__).parent / "golden"
REF = claim_ref()
WHOLE: dict[str, Any] = {"memory": "24Gi", "cores": "100", "shares": "1k"}
DIRECTORIES = GrantDirectories(Path("/run/tessera"))
LIBRARY = InstalledLibrary(
    "0.1.0-0123456789ab",
    Path("/var/lib/tessera/lib/0.1.0-0123456789ab/libtessera.so"),
    Path("/var/lib/tessera/lib/0.1.0-0123456789ab/ld.so.preload"),
    {
        "libcuda.so.1": Path("/var/lib/tessera/lib/0.1.0-0123456789ab/libtessera-shim.so"),
        "libnvidia-ml.so.1": Path("/var/lib/tessera/lib/0.1.0-0123456789ab/libtessera-shim-nvml.so"),
    },
)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
COVERED = (
    Covered(
        "libcuda.so.1",
        f"{LIBRARIES}/libcuda.so.570.124.06",
        ("/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so"),
    ),
    Covered(
        "libnvidia-ml.so.1", f"{LIBRARIES}/libnvidia-ml.so.570.124.06", ("/usr/lib64/libnvidia-ml.so.1",)
    ),
)
NATIVE = NativeEdits(
    ContainerEdits(
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        device_nodes=(DeviceNode(path="/dev/nvidiactl"), DeviceNode(path="/dev/nvidia-uvm")),
        mounts=(
            Mount(host_path="/usr/lib64/libcuda.so.570.124.06", container_path="/usr/lib64/libcuda.so.1"),
        ),
    ),
    {card.uuid: (DeviceNode(path=f"/dev/nvidia{card.minor}"),) for card in (RTX_4090, A100)},
)
METADATA = Mount(host_path="/run/tessera/claims/uid/metadata/g0.json", container_path="/var/run/k/g0.json")


def plan(*results: dict[str, Any], interposition: Interposition = Interposition.PRELOAD) -> Plan:
    allocation = read_allocation(REF, claim(REF, *results), driver=DRIVER, node=NODE)
    return make_plan(allocation, two_cards(), Scales(), interposition)


def document(made: Plan, **more: Any) -> Any:
    arguments: dict[str, Any] = {
        "native": None if made.toolkit else NATIVE,
        "library": LIBRARY,
        "directories": DIRECTORIES,
        "metadata": {},
        "covered": COVERED,
    }
    return cdi_document(made, **arguments | more)


SHARE = plan(result(RTX_4090, "3000Mi"))
SHARE_AND_WHOLE_CARD = plan(
    result(RTX_4090, "3000Mi"), result(A100, "80Gi", "100", "1k", request="g1", share=2)
)
BEHIND_A_SHIM = plan(
    result(RTX_4090, "3000Mi"),
    result(A100, "80Gi", "100", "1k", request="g1", share=2),
    interposition=Interposition.SHIM,
)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(SHARE, id="share"),
        pytest.param(plan(result(RTX_4090, **WHOLE)), id="whole-card"),
        pytest.param(SHARE_AND_WHOLE_CARD, id="share-and-whole-card"),
        pytest.param(plan(result(A100, share=1), result(A100, share=2)), id="two-shares-of-one-card"),
        pytest.param(replace(SHARE_AND_WHOLE_CARD, toolkit=True), id="toolkit-share-and-whole-card"),
        pytest.param(BEHIND_A_SHIM, id="shim-share-and-whole-card"),
        pytest.param(replace(BEHIND_A_SHIM, toolkit=True), id="toolkit-shim-share-and-whole-card"),
    ],
)
def test_golden(request: pytest.FixtureRequest, made: Plan) -> None:
    spec = document(made)
    assert_golden(GOLDEN / f"cdi-{request.node.callspec.id}.json", spec.to_json().decode())


def test_every_limited_grant_sees_only_itself() -> None:
    spec = document(plan(result(A100, share=1), result(A100, share=2)))
    for device, number in zip(spec.devices, (1, 2), strict=True):
        own = [mount for mount in device.container_edits.mounts if "/run/tessera/" in mount.container_path]
        assert {PurePosixPath(mount.container_path).parent.name for mount in own} == {device.name}
        assert device.name.endswith(share_id(number)[:8])


@pytest.mark.parametrize("toolkit", [False, True])
def test_limits_without_a_library_are_never_written_down(toolkit: bool) -> None:
    with pytest.raises(ValueError, match="there is no library"):
        document(replace(SHARE, toolkit=toolkit), library=None)


@pytest.mark.parametrize("toolkit", [False, True])
def test_a_shim_is_never_left_out(toolkit: bool) -> None:
    with pytest.raises(ValueError, match="there is nothing of the driver to cover"):
        document(replace(BEHIND_A_SHIM, toolkit=toolkit), covered=())


def test_what_needs_no_shim_has_none() -> None:
    whole = plan(result(RTX_4090, **WHOLE), interposition=Interposition.SHIM)
    for made in (SHARE, whole):
        paths = [mount.host_path for edits in document(made).edits() for mount in edits.mounts]
        assert not [path for path in paths if "shim" in path]


def test_with_the_toolkit_we_bring_neither_driver_nor_card() -> None:
    spec = document(replace(SHARE_AND_WHOLE_CARD, toolkit=True))
    assert not spec.container_edits
    for device in spec.devices:
        assert device.container_edits.env == ("TESSERA_GRANTS=2",)  # a device without edits is refused
        assert device.container_edits.device_nodes == ()
        assert not [mount for mount in device.container_edits.mounts if "libcuda" in mount.container_path]
    assert spec.cdi_version == "0.5.0" if REF.uid[0].isdigit() else "0.3.0"


@pytest.mark.parametrize("toolkit", [False, True])
def test_metadata_comes_with_the_first_device_of_its_request(toolkit: bool) -> None:
    made = plan(
        result(A100, "1Gi", share=1),
        result(RTX_4090, "1Gi", share=2),
        result(A100, "1Gi", share=3, request="g1"),
    )
    spec = document(replace(made, toolkit=toolkit), metadata={"g0": METADATA})
    assert [METADATA in device.container_edits.mounts for device in spec.devices] == [True, False, False]
