from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cdi.driver_shim import Covered
from cdi.model import ContainerEdits, DeviceNode, Mount
from dra_driver.cards.capacity import Scales
from dra_driver.cards.rules import Interposition
from dra_driver.claims.allocation import ClaimRef, read_allocation
from dra_driver.claims.base_edits import NativeEdits
from dra_driver.claims.document import cdi_document, cdi_ids, driver_document, files_said_by
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.plan import DriverFiles, Plan, make_plan
from dra_driver.names import DRIVER
from tests.unit.cdi.runtime import mounted
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


def plan(
    *results: dict[str, Any], interposition: Interposition = Interposition.PRELOAD, ref: ClaimRef = REF
) -> Plan:
    allocation = read_allocation(ref, claim(ref, *results), driver=DRIVER, node=NODE)
    return make_plan(allocation, two_cards(), Scales(), interposition)


def document(made: Plan, **more: Any) -> Any:
    arguments: dict[str, Any] = {
        "native": None if made.files is DriverFiles.TOOLKIT else NATIVE,
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
        pytest.param(replace(SHARE, files=DriverFiles.WITHIN), id="share-with-the-drivers-files"),
        pytest.param(
            replace(SHARE_AND_WHOLE_CARD, files=DriverFiles.TOOLKIT), id="toolkit-share-and-whole-card"
        ),
        pytest.param(BEHIND_A_SHIM, id="shim-share-and-whole-card"),
        pytest.param(
            replace(BEHIND_A_SHIM, files=DriverFiles.TOOLKIT), id="toolkit-shim-share-and-whole-card"
        ),
    ],
)
def test_golden(request: pytest.FixtureRequest, made: Plan) -> None:
    spec = document(made)
    assert_golden(GOLDEN / f"cdi-{request.node.callspec.id}.json", spec.to_json().decode())


def test_golden_of_the_drivers_document() -> None:
    assert_golden(GOLDEN / "cdi-driver.json", driver_document(NATIVE.common).to_json().decode())


def test_every_limited_grant_sees_only_itself() -> None:
    spec = document(plan(result(A100, share=1), result(A100, share=2)))
    for device, number in zip(spec.devices[:2], (1, 2), strict=True):
        own = [mount for mount in device.container_edits.mounts if "/run/tessera/" in mount.container_path]
        assert {PurePosixPath(mount.container_path).parent.name for mount in own} == {device.name}
        assert device.name.endswith(share_id(number)[:8])


@pytest.mark.parametrize("files", list(DriverFiles))
def test_limits_without_a_library_are_never_written_down(files: DriverFiles) -> None:
    with pytest.raises(ValueError, match="there is no library"):
        document(replace(SHARE, files=files), library=None)


@pytest.mark.parametrize("files", list(DriverFiles))
def test_a_shim_is_never_left_out(files: DriverFiles) -> None:
    with pytest.raises(ValueError, match="there is nothing of the driver to cover"):
        document(replace(BEHIND_A_SHIM, files=files), covered=())


def test_what_needs_no_shim_has_none() -> None:
    whole = plan(result(RTX_4090, **WHOLE), interposition=Interposition.SHIM)
    for made in (SHARE, whole):
        paths = [mount.host_path for edits in document(made).edits() for mount in edits.mounts]
        assert not [path for path in paths if "shim" in path]


def test_a_shim_lies_over_the_driver_whatever_else_a_container_has() -> None:
    """A container's claims come in the order in which its Pod names them: a tenant's."""
    claims = [
        plan(result(RTX_4090, "3000Mi"), interposition=Interposition.SHIM, ref=claim_ref("shim")),
        plan(result(RTX_4090, "3000Mi", share=2), ref=claim_ref("preload")),
        plan(result(A100, "80Gi", "100", "1k", share=3), ref=claim_ref("whole")),
    ]
    documents = [json.loads(document(made).to_json()) for made in claims]
    documents.append(json.loads(driver_document(NATIVE.common).to_json()))
    for some in itertools.chain.from_iterable(itertools.permutations(claims, n) for n in (1, 2, 3)):
        ids = [each for made in some for each in cdi_ids(made.grants[0], made.files)]
        libcuda = mounted(documents, ids)["/usr/lib64/libcuda.so.1"]
        is_shim = PurePosixPath(libcuda).name == "libtessera-shim.so"
        assert is_shim is (claims[0] in some), ids


@pytest.mark.parametrize("files", list(DriverFiles))
@pytest.mark.parametrize("interposition", list(Interposition))
def test_the_first_id_is_the_grants_own(files: DriverFiles, interposition: Interposition) -> None:
    """By it the kubelet names a device in a Pod's status, and no name may stand there twice."""
    made = plan(result(A100, share=1), result(A100, share=2), interposition=interposition)
    ids = [cdi_ids(grant, files) for grant in made.grants]
    assert [first for first, *_ in ids] == [f"gpu.tessera.dev/grant={grant.name}" for grant in made.grants]
    names = {device.name for device in document(replace(made, files=files)).devices}
    own = {
        each.partition("=")[2] for each in itertools.chain(*ids) if each.startswith("gpu.tessera.dev/grant=")
    }
    assert own == names


@pytest.mark.parametrize(
    ("found", "files"),
    [
        pytest.param(None, DriverFiles.WITHIN, id="none"),
        pytest.param(b"{", DriverFiles.WITHIN, id="damaged"),
        *(
            pytest.param(document(replace(SHARE, files=each)).to_json(), each, id=each.value)
            for each in (DriverFiles.BESIDE, DriverFiles.WITHIN)
        ),
        pytest.param(document(BEHIND_A_SHIM).to_json(), DriverFiles.BESIDE, id="shim"),
        # Ours with the driver's files does with the toolkit's id, too.
        pytest.param(
            document(replace(SHARE, files=DriverFiles.TOOLKIT)).to_json(), DriverFiles.WITHIN, id="toolkit"
        ),
    ],
)
def test_what_a_document_says_of_its_claims_ids(found: bytes | None, files: DriverFiles) -> None:
    assert files_said_by(found) is files


@pytest.mark.parametrize("files", [DriverFiles.BESIDE, DriverFiles.WITHIN])
@pytest.mark.parametrize("interposition", list(Interposition))
def test_a_document_with_the_drivers_files_does_with_any_ids(
    interposition: Interposition, files: DriverFiles
) -> None:
    """What is written where nobody knows any more which ids the kubelet remembers."""
    made = plan(result(RTX_4090, "3000Mi"), interposition=interposition)
    within = document(replace(made, files=DriverFiles.WITHIN))
    documents = [json.loads(each.to_json()) for each in (within, driver_document(NATIVE.common))]
    libcuda = mounted(documents, cdi_ids(made.grants[0], files))["/usr/lib64/libcuda.so.1"]
    is_shim = PurePosixPath(libcuda).name == "libtessera-shim.so"
    assert is_shim is (interposition is Interposition.SHIM)


def test_with_the_toolkit_we_bring_neither_driver_nor_card() -> None:
    spec = document(replace(SHARE_AND_WHOLE_CARD, files=DriverFiles.TOOLKIT))
    assert not spec.container_edits
    for device in spec.devices:
        assert device.container_edits.env == ("TESSERA_GRANTS=2",)  # a device without edits is refused
        assert device.container_edits.device_nodes == ()
        assert not [mount for mount in device.container_edits.mounts if "libcuda" in mount.container_path]
    assert spec.cdi_version == "0.5.0" if REF.uid[0].isdigit() else "0.3.0"


@pytest.mark.parametrize("files", list(DriverFiles))
def test_metadata_comes_with_the_first_device_of_its_request(files: DriverFiles) -> None:
    made = plan(
        result(A100, "1Gi", share=1),
        result(RTX_4090, "1Gi", share=2),
        result(A100, "1Gi", share=3, request="g1"),
    )
    spec = document(replace(made, files=files), metadata={"g0": METADATA})
    brings = [device.name for device in spec.devices if METADATA in device.container_edits.mounts]
    assert brings == [made.grants[0].name]
