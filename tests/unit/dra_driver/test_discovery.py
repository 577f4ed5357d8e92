from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from dra_driver import discovery
from dra_driver.capacity import Scales
from dra_driver.conditions import Condition, Conditions
from dra_driver.discovery import Discovery
from dra_driver.errors import RetryableError
from dra_driver.inventory import CardFault, Inventory, inventory
from dra_driver.node import Node
from dra_driver.nvml import NvmlError
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.cards import RTX_4090, two_cards


class ScriptedNvml:
    """Answers what the test says."""

    def __init__(self) -> None:
        self.answer: Callable[[], Inventory] = two_cards

    def read(self) -> Inventory:
        return self.answer()


class Setting:
    """A Discovery on a driver root in a directory."""

    def __init__(self, root: Path) -> None:
        write(root / "usr/lib64/libcuda.so.570.124.06", "libcuda.so.1")
        (root / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm"):
            (root / "dev" / name).touch()
        self.root = root
        self.nvml = ScriptedNvml()
        self.node = Node("node-a", Scales())
        self.conditions = Conditions()
        self.found: list[Inventory | None] = []
        driver = Driver(DriverRoot(PurePosixPath("/"), root), devices=root / "none", machine="x86_64")
        self.discovery = Discovery(
            nvml=self.nvml,  # type: ignore[arg-type]
            driver=driver,
            node=self.node,
            conditions=self.conditions,
            found=self.found.append,
        )


def fails(error: Exception) -> Callable[[], Inventory]:
    def read() -> Inventory:
        raise error

    return read


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_found(setting: Setting) -> None:
    assert await setting.discovery.look()
    assert setting.found == [two_cards()]
    assert setting.node.inventory() == two_cards()
    assert setting.conditions[Condition.GPUS].detail == "2 cards usable"


async def test_no_driver_then_a_driver(setting: Setting) -> None:
    setting.nvml.answer = fails(NvmlError("libnvidia-ml.so.1 was not found"))
    assert not await setting.discovery.look()
    assert setting.found == [None]
    with pytest.raises(RetryableError, match=r"no usable NVIDIA driver: libnvidia-ml\.so\.1 was"):
        setting.node.inventory()
    setting.nvml.answer = two_cards
    assert await setting.discovery.look()
    assert setting.node.inventory() == two_cards()


async def test_lost_later_is_told_but_what_was_published_stays(setting: Setting) -> None:
    await setting.discovery.look()
    setting.nvml.answer = fails(NvmlError("the NVIDIA driver stopped answering"))
    assert not await setting.discovery.look()
    assert setting.found[-1] == two_cards()
    assert not setting.conditions[Condition.GPUS].holds


async def test_cards_without_device_files_are_not_published(setting: Setting) -> None:
    (setting.root / "dev/nvidia-uvm").unlink()
    assert not await setting.discovery.look()
    assert setting.found == [None]
    assert "/dev/nvidia-uvm is missing" in setting.conditions[Condition.DRIVER_FILES].detail
    with pytest.raises(RetryableError, match="/dev/nvidia-uvm is missing"):
        setting.node.inventory()


async def test_a_faulty_card_takes_no_other_down(setting: Setting) -> None:
    faults = [CardFault("GPU-broken", "can't be described, the driver says: Unknown Error")]
    setting.nvml.answer = lambda: inventory("570.124.06", "12.8.0", [RTX_4090], faults)
    assert await setting.discovery.look()
    state = setting.conditions[Condition.GPUS]
    assert state.holds
    assert (
        state.detail
        == "1 cards usable, not used: GPU-broken can't be described, the driver says: Unknown Error"
    )


async def test_a_driver_that_hangs_is_told_and_holds_up_nothing(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_HANGS_AFTER", 0.05)
    release = threading.Event()

    def hang() -> Inventory:
        release.wait(10)
        return two_cards()

    setting.nvml.answer = hang
    looking = asyncio.create_task(setting.discovery.look())
    await asyncio.sleep(0.2)
    assert "has not answered for 0.05 s" in setting.conditions[Condition.GPUS].detail
    assert setting.node.silence == setting.conditions[Condition.GPUS].detail
    release.set()
    assert await looking
    assert setting.conditions[Condition.GPUS].holds


async def test_an_unforeseen_failure_ends_the_task(setting: Setting) -> None:
    setting.nvml.answer = fails(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await setting.discovery.run()
