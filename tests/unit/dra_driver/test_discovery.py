from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from cdi.driver_files import Driver
from cdi.driver_root import DriverRoot
from dra_driver.cards import discovery
from dra_driver.cards.card_health import CardHealth
from dra_driver.cards.discovery import Discovery
from dra_driver.cards.inventory import CardFault, Inventory, inventory
from dra_driver.cards.nvml import NvmlError
from dra_driver.cards.remembered_cards import RememberedCards
from dra_driver.cards.rules import CardMatch, Rules
from dra_driver.cards.taints import UNMONITORED
from dra_driver.cards.xid_files import XidFiles
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.conditions import Condition, Conditions
from dra_driver.errors import RetryableError
from dra_driver.node import Node
from tests.unit.cdi.elf_files import write
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards


class ScriptedNvml:
    """Answers what the test says."""

    def __init__(self) -> None:
        self.answer: Callable[[], Inventory] = two_cards
        self.closed = 0
        self.reads = 0

    def read(self) -> Inventory:
        self.reads += 1
        return self.answer()

    def close(self) -> None:
        self.closed += 1


class Setting:
    """A Discovery on a driver root in a directory."""

    def __init__(self, root: Path) -> None:
        write(root / "usr/lib64/libcuda.so.570.124.06", "libcuda.so.1")
        (root / "dev").mkdir()
        for name in ("nvidiactl", "nvidia-uvm"):
            (root / "dev" / name).touch()
        self.root = root
        self.nvml = ScriptedNvml()
        self.node = Node("node-a", Rules())
        self.conditions = Conditions()
        self.found: list[Inventory | None] = []
        self.now = 0.0
        self.driven = 0
        self.watched: list[frozenset[str]] = []
        self.health = CardHealth(
            node=self.node,
            cards=RememberedCards(root / "state/cards.json", "boot-1"),
            files=XidFiles(root / "state/xids"),
            life=lambda: "boot-1",
            driven=lambda: self.driven,
            count=lambda _: None,
            watch=lambda **_: self,  # type: ignore[arg-type]
        )
        driver = Driver(DriverRoot(PurePosixPath("/"), root), devices=root / "none", machine="x86_64")
        self.discovery = Discovery(
            nvml=self.nvml,  # type: ignore[arg-type]
            base=BaseEdits(driver),
            node=self.node,
            conditions=self.conditions,
            health=self.health,
            found=self.found.append,
            clock=lambda: self.now,
        )

    def watch(self, gpus: frozenset[str]) -> None:
        self.watched.append(gpus)

    def let_go(self, _seconds: float) -> bool:
        return True


def hang(setting: Setting) -> threading.Event:
    """From now on the driver answers when the event is set."""
    release = threading.Event()

    def answer() -> Inventory:
        release.wait(60)
        return two_cards()

    setting.nvml.answer = answer
    return release


def fails(error: Exception) -> Callable[[], Inventory]:
    def read() -> Inventory:
        raise error

    return read


async def until(what: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not what():  # noqa: ASYNC110 - done by threads
            await asyncio.sleep(0.01)


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    return Setting(tmp_path)


async def test_found(setting: Setting) -> None:
    assert await setting.discovery.look()
    assert setting.found == [two_cards()]
    assert setting.node.inventory() == two_cards()
    assert setting.conditions[Condition.GPUS].detail == "2 cards usable"


async def test_an_excluded_card_is_told_and_nothing_that_fails(setting: Setting) -> None:
    setting.node.configure(Rules(excluded=(CardMatch(model="*"),)))
    assert await setting.discovery.look()
    condition = setting.conditions[Condition.GPUS]
    assert condition.holds
    assert condition.detail == "0 cards usable, not used: " + "; ".join(
        f"{card.uuid} is excluded by the node configuration (model: *)" for card in (RTX_4090, A100)
    )


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
    release = hang(setting)
    looking = asyncio.create_task(setting.discovery.look())
    await until(lambda: "has not answered for 0.05 s" in setting.conditions[Condition.GPUS].detail)
    assert setting.node.silence == setting.conditions[Condition.GPUS].detail
    release.set()
    assert await looking
    assert setting.conditions[Condition.GPUS].holds


async def test_a_driver_that_is_silent_for_long_taints_its_cards(setting: Setting) -> None:
    await setting.discovery.look()
    setting.nvml.answer = fails(NvmlError("the NVIDIA driver stopped answering"))
    for now, expected in ((100.0, set()), (159.0, set()), (160.0, {UNMONITORED}), (170.0, {UNMONITORED})):
        setting.now = now
        await setting.discovery.look()
        assert {taint.key for some in setting.node.taints.values() for taint in some} == expected
    setting.nvml.answer = two_cards
    await setting.discovery.look()
    assert setting.node.taints == {}
    setting.now = 500.0
    setting.nvml.answer = fails(NvmlError("the NVIDIA driver stopped answering"))
    await setting.discovery.look()
    assert setting.node.taints == {}  # the silence begins anew


async def test_a_hang_that_lasts_is_one_thread_and_taints(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_HANGS_AFTER", 0.02)
    await setting.discovery.look()
    release = hang(setting)
    looking = asyncio.create_task(setting.discovery.run())
    await until(lambda: setting.node.silence is not None)
    assert setting.node.taints == {}
    setting.now = 61.0
    await until(lambda: bool(setting.node.taints))
    assert {taint.value for some in setting.node.taints.values() for taint in some} == {"silent"}
    assert setting.node.inventory() == two_cards()  # what is prepared meanwhile is prepared
    assert setting.nvml.reads == 2
    assert [thread.name for thread in threading.enumerate()].count("nvml") == 1
    release.set()
    await until(lambda: setting.node.silence is None)
    assert setting.node.taints == {}
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)


async def test_a_lost_card_is_told_and_asked_for_in_a_new_session(setting: Setting) -> None:
    await setting.discovery.look()
    setting.nvml.answer = lambda: inventory("570.124.06", "12.8.0", [RTX_4090])
    assert await setting.discovery.look()
    state = setting.conditions[Condition.GPUS]
    assert state.holds
    assert state.detail == (
        f"1 cards usable, not used: {A100.uuid} is lost: the NVIDIA driver does not list the card any more"
    )
    assert setting.watched == [{RTX_4090.uuid, A100.uuid}, {RTX_4090.uuid}]
    assert setting.nvml.closed == 0
    setting.nvml.answer = two_cards
    await setting.discovery.look()
    assert setting.nvml.closed == 1
    assert setting.conditions[Condition.GPUS].detail == "2 cards usable"
    await setting.discovery.look()
    assert setting.nvml.closed == 1


async def test_cards_that_only_the_kernel_driver_has_are_told_and_asked_for_anew(setting: Setting) -> None:
    setting.driven = 2
    setting.nvml.answer = lambda: inventory("570.124.06", "12.8.0", [])
    await setting.discovery.look()
    state = setting.conditions[Condition.GPUS]
    assert not state.holds
    assert state.detail == (
        "0 cards usable, not used: 2 of 2 cards of the NVIDIA kernel driver are not listed by NVML"
    )
    setting.nvml.answer = two_cards
    await setting.discovery.look()
    assert setting.nvml.closed == 1
    assert setting.conditions[Condition.GPUS].detail == "2 cards usable"
    await setting.discovery.look()
    assert setting.nvml.closed == 1


async def test_a_node_that_has_lost_all_its_cards_is_not_ready(setting: Setting) -> None:
    await setting.discovery.look()
    setting.nvml.answer = lambda: inventory("570.124.06", "12.8.0", [])
    await setting.discovery.look()
    assert not setting.conditions[Condition.GPUS].holds
    assert len(setting.node.taints) == 2


async def test_news_are_a_reason_to_look_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_BETWEEN_LOOKS", 0.01)
    running = asyncio.create_task(setting.discovery.run())
    await until(lambda: setting.nvml.reads == 1)
    for _ in range(5):
        setting.discovery.look_soon()
    await until(lambda: setting.nvml.reads == 2)
    await asyncio.sleep(0.1)
    assert setting.nvml.reads == 2
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_unforeseen_failure_ends_the_task(setting: Setting) -> None:
    setting.nvml.answer = fails(ValueError("a bug"))
    with pytest.raises(ValueError, match="a bug"):
        await setting.discovery.run()
