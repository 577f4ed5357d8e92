from __future__ import annotations

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from cdi.errors import DriverNotReadyError
from cdi.toolkit import Toolkit
from dra_driver.cards.inventory import Card
from dra_driver.claims.base_edits import BaseEdits, CdiMode
from dra_driver.claims.ledger_file import Entry, GrantEntry, State
from dra_driver.claims.plan import DriverFiles
from dra_driver.errors import RetryableError
from dra_driver.names import ClaimUID
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.cards import A100, RTX_4090, instance

VERSION = "570.124.06"
LIBCUDA = f"/usr/lib64/libcuda.so.{VERSION}"
CARDS = (RTX_4090, A100)
BESIDE, TOOLKIT = DriverFiles.BESIDE, DriverFiles.TOOLKIT


class Setting:
    """A driver root with two cards, and a directory for the toolkit's document."""

    def __init__(self, root: Path) -> None:
        write(root / f"driver{LIBCUDA}", "libcuda.so.1")
        (root / "driver/dev").mkdir()
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
            (root / "driver/dev" / name).touch()
        self.documents = root / "cdi"
        self.documents.mkdir()
        self.driver = Driver(
            DriverRoot(PurePosixPath("/"), root / "driver"),
            devices=root / "none",
            proc=root / "none",
            machine="x86_64",
        )

    def edits(self, mode: CdiMode) -> BaseEdits:
        toolkit = Toolkit(
            (self.documents,), root=self.driver.root, nodes=self.driver.nodes, ours="gpu.tessera.dev"
        )
        return BaseEdits(self.driver, toolkit, mode)

    def describe(self, *cards: Card, libcuda: str = LIBCUDA) -> None:
        """As nvidia-ctk would."""
        devices = [
            {"name": card.uuid, "containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{card.minor}"}]}}
            for card in cards
        ]
        mounts = [{"hostPath": libcuda, "containerPath": libcuda}]
        document = {"kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {"mounts": mounts}}
        (self.documents / "nvidia.json").write_text(json.dumps(document))


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


def entry(files: DriverFiles) -> Entry:
    grant: Any = GrantEntry(
        name="g",
        request="g0",
        device=A100.name,
        uuid=A100.uuid,
        memory=1,
        cores=0,
        shares=1,
        toolkit=files is DriverFiles.TOOLKIT,
        beside=files is DriverFiles.BESIDE,
    )
    return Entry(
        uid=ClaimUID("u"), namespace="n", name="c", boot_id="b", state=State.PREPARED, grants=(grant,)
    )


@pytest.mark.parametrize(
    ("mode", "described", "sentence", "files"),
    [
        pytest.param(CdiMode.NATIVE, CARDS, "CDI edits are our own", BESIDE, id="native-whatever-there-is"),
        pytest.param(
            CdiMode.AUTO, CARDS, "CDI edits are the toolkit's, of", TOOLKIT, id="auto-and-a-document"
        ),
        pytest.param(
            CdiMode.AUTO,
            None,
            "CDI edits are our own, since no CDI document names a device of nvidia.com/gpu",
            BESIDE,
            id="auto-and-none",
        ),
        pytest.param(
            CdiMode.AUTO, CARDS[:1], f"does not name {A100.uuid}", BESIDE, id="auto-and-one-card-is-lacking"
        ),
        pytest.param(
            CdiMode.TOOLKIT, CARDS, "CDI edits are the toolkit's, of", TOOLKIT, id="toolkit-and-a-document"
        ),
    ],
)
def test_modes(
    setting: Setting, mode: CdiMode, described: tuple[Card, ...] | None, sentence: str, files: DriverFiles
) -> None:
    if described is not None:
        setting.describe(*described)
    edits = setting.edits(mode)
    said = edits.look(CARDS)
    assert said.startswith(f"driver {VERSION}, 1 libraries; ")
    assert sentence in said
    assert edits.files(CARDS, None) is files


def test_toolkit_without_a_document_is_not_ready(setting: Setting) -> None:
    edits = setting.edits(CdiMode.TOOLKIT)
    message = "CDI mode is toolkit, and no CDI document names a device of nvidia.com/gpu"
    with pytest.raises(DriverNotReadyError, match=message):
        edits.look(CARDS)
    with pytest.raises(RetryableError, match=message):
        edits.files(CARDS, None)


def test_one_card_that_a_document_lacks_takes_no_other_down(setting: Setting) -> None:
    setting.describe(RTX_4090)
    edits = setting.edits(CdiMode.TOOLKIT)
    lacking = f"nvidia.json does not name {A100.uuid}"
    said = edits.look(CARDS)
    assert "CDI edits are the toolkit's, but" in said
    assert lacking in said
    assert edits.files((RTX_4090,), None) is TOOLKIT
    with pytest.raises(RetryableError, match=lacking):
        edits.files((A100,), None)


def test_a_nodes_claims_are_alike(setting: Setting) -> None:
    """A container may have two, and a shim of one has to lie over the driver of both."""
    edits = setting.edits(CdiMode.AUTO)
    setting.describe(RTX_4090)
    edits.look((RTX_4090,))
    assert edits.files((RTX_4090,), None) is TOOLKIT
    assert edits.files((A100,), None) is BESIDE  # it has come since the last look
    edits.look(CARDS)
    assert edits.files((RTX_4090,), None) is BESIDE
    setting.describe(*CARDS)
    edits.look(CARDS)
    assert edits.files((RTX_4090,), None) is TOOLKIT


def test_an_outdated_document_is_said_and_not_used(setting: Setting) -> None:
    setting.describe(*CARDS, libcuda="/usr/lib64/libcuda.so.535.104.05")
    edits = setting.edits(CdiMode.AUTO)
    assert "it is for driver 535.104.05" in edits.look(CARDS)
    assert edits.files(CARDS, None) is BESIDE


@pytest.mark.parametrize("was", list(DriverFiles))
@pytest.mark.parametrize("mode", list(CdiMode))
@pytest.mark.parametrize("is_described", [False, True])
def test_a_prepared_claim_keeps_what_it_has(
    setting: Setting, was: DriverFiles, mode: CdiMode, is_described: bool
) -> None:
    """The kubelet remembers its CDI ids, whatever has come or gone since."""
    edits = setting.edits(mode)
    if is_described:
        setting.describe(*CARDS)
        edits.look(CARDS)
    assert edits.files(CARDS, entry(was)) is was


def test_no_driver_is_not_ready_in_any_mode(setting: Setting, tmp_path: Path) -> None:
    setting.describe(*CARDS)
    (tmp_path / "driver/dev/nvidia-uvm").unlink()
    for mode in CdiMode:
        with pytest.raises(DriverNotReadyError, match="/dev/nvidia-uvm is missing"):
            setting.edits(mode).look(CARDS)


def test_native_edits_have_each_cards_nodes(setting: Setting) -> None:
    native = setting.edits(CdiMode.NATIVE).native(CARDS)
    assert {uuid: [node.path for node in nodes] for uuid, nodes in native.nodes.items()} == {
        RTX_4090.uuid: ["/dev/nvidia0"],
        A100.uuid: ["/dev/nvidia1"],
    }
    assert native.common.env == ("NVIDIA_VISIBLE_DEVICES=void",)


NVML = f"/usr/lib64/libnvidia-ml.so.{VERSION}"


def test_a_shim_covers_what_our_own_edits_mount(setting: Setting) -> None:
    write(setting.driver.root.mounted / NVML[1:], "libnvidia-ml.so.1")
    edits = setting.edits(CdiMode.NATIVE)
    cuda, nvml = edits.covered(CARDS, toolkit=False)
    mounted = {mount.container_path for mount in edits.native(CARDS).common.mounts}
    assert {*cuda.paths, *nvml.paths} == mounted
    assert (cuda.own, nvml.own) == (LIBCUDA, NVML)


def test_a_shim_covers_what_the_toolkit_mounts(setting: Setting) -> None:
    write(setting.driver.root.mounted / NVML[1:], "libnvidia-ml.so.1")
    edits = setting.edits(CdiMode.TOOLKIT)
    setting.describe(*CARDS)
    edits.look(CARDS)
    with pytest.raises(DriverNotReadyError, match=r"place of libnvidia-ml.so.1: no document mounts it"):
        edits.covered(CARDS, toolkit=True)
    document = json.loads((setting.documents / "nvidia.json").read_text())
    document["containerEdits"]["mounts"].append({"hostPath": NVML, "containerPath": NVML})
    (setting.documents / "nvidia.json").write_text(json.dumps(document))
    edits.look(CARDS)
    assert [(each.own, each.paths) for each in edits.covered(CARDS, toolkit=True)] == [
        (LIBCUDA, (LIBCUDA,)),
        (NVML, (NVML,)),
    ]


def test_without_nvml_there_is_no_shim(setting: Setting) -> None:
    with pytest.raises(DriverNotReadyError, match=r"place of libnvidia-ml.so.1: the driver has none"):
        setting.edits(CdiMode.NATIVE).covered(CARDS, toolkit=False)


def test_native_edits_of_an_instance_that_is_gone(setting: Setting) -> None:
    with pytest.raises(DriverNotReadyError, match="does the MIG instance still exist"):
        setting.edits(CdiMode.NATIVE).native((instance(1, 10),))
