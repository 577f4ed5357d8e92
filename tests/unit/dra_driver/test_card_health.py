from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from dra_driver.cards.card_health import CardHealth, life_of_driver
from dra_driver.cards.inventory import CardFault, Inventory, Mig, inventory
from dra_driver.cards.nvml_watch import CardEvent
from dra_driver.cards.remembered_cards import RememberedCards
from dra_driver.cards.rules import Rules
from dra_driver.cards.taints import LOST, UNMONITORED, XID
from dra_driver.cards.xid_files import XidFiles
from dra_driver.node import Node
from tests.unit.dra_driver.cards import A100, RTX_4090, two_cards

GONE = replace(inventory("570.124.06", "12.8.0", [RTX_4090]))
SILENT_CARD = inventory(
    "570.124.06", "12.8.0", [RTX_4090], [CardFault("GPU 1", "can't be described", unanswered=True)]
)


class ScriptedWatch:
    """Remembers what it is asked for; the test calls its callbacks."""

    def __init__(
        self,
        *,
        heard: Callable[[CardEvent], None],
        unheard: Callable[[Mapping[str, str]], None],
        troubled: Callable[[], None],
    ) -> None:
        self.heard, self.unheard, self.troubled = heard, unheard, troubled
        self.watched: list[frozenset[str]] = []
        self.lets_go = True
        self.let_go_of = 0

    def watch(self, gpus: frozenset[str]) -> None:
        self.watched.append(gpus)

    def let_go(self, seconds: float) -> bool:
        assert seconds > 2  # the watch waits for so long at a time
        self.let_go_of += 1
        return self.lets_go


class Setting:
    """One agent's; a second one on the same directory is the next agent."""

    def __init__(self, root: Path, *, boot: str = "boot-1", ignored: tuple[int, ...] = ()) -> None:
        self.root = root
        self.node = Node("node-a", Rules())
        self.now = 1000.0
        self.counted: list[int] = []
        self.looks = 0
        watches: list[ScriptedWatch] = []

        def watch(**callbacks: Callable[..., None]) -> ScriptedWatch:
            watches.append(ScriptedWatch(**callbacks))
            return watches[-1]

        self.files = XidFiles(root / "xids")
        self.health = CardHealth(
            node=self.node,
            cards=RememberedCards(root / "cards.json", boot),
            files=self.files,
            life=lambda: life_of_driver(boot, root / "sys"),
            driven=lambda: 0,
            ignored=frozenset(ignored),
            count=self.counted.append,
            clock=lambda: self.now,
            watch=watch,  # type: ignore[arg-type]
        )
        self.health.when_news(self._look)
        (self.watch,) = watches

    def _look(self) -> None:
        self.looks += 1

    async def look(self, found: Inventory = two_cards()) -> None:  # noqa: B008 - immutable
        self.node.found(await self.health.looked(found))
        self.health.answered()

    async def hear(self, number: int, uuid: str = A100.uuid, *instance: int) -> None:
        """As from the watch's thread, and what follows from it."""
        await asyncio.to_thread(self.watch.heard, CardEvent(uuid, number, *instance))
        await asyncio.sleep(0)

    def taints(self) -> dict[str, list[tuple[str, str]]]:
        return {name: [(taint.key, taint.value) for taint in some] for name, some in self.node.taints.items()}


@pytest.fixture
async def setting(tmp_path: Path) -> Setting:
    made = Setting(tmp_path)
    await made.health.recall()
    return made


async def test_an_error_is_a_taint_at_once_and_is_remembered(setting: Setting) -> None:
    await setting.look()
    await setting.hear(48)
    assert setting.taints() == {A100.name: [(XID, "48")]}
    assert (setting.counted, setting.looks) == ([48], 1)
    running = asyncio.create_task(setting.health.run())
    async with asyncio.timeout(60):
        while not setting.files.path(A100.uuid).exists():  # noqa: ASYNC110 - written in a thread
            await asyncio.sleep(0.01)
    running.cancel()
    await setting.look()
    assert setting.taints() == {A100.name: [(XID, "48")]}


async def test_the_next_agent_knows_it_until_the_node_boots(setting: Setting) -> None:
    await setting.look()
    await setting.hear(48)
    await setting.look()
    after = Setting(setting.root)
    await after.health.recall()
    assert after.taints() == {A100.name: [(XID, "48")]}  # before the driver was asked
    await after.look()
    assert after.taints() == {A100.name: [(XID, "48")]}
    booted = Setting(setting.root, boot="boot-2")
    await booted.health.recall()
    assert booted.node.cards is None
    await booted.look()
    assert booted.taints() == {}
    assert booted.files.read() == {}


async def test_a_driver_that_is_loaded_anew_ends_it(setting: Setting) -> None:
    module = setting.root / "sys/module/nvidia"
    module.mkdir(parents=True)
    await setting.look()
    await setting.hear(48)
    await setting.look()
    assert setting.taints()
    (module.parent / "other").mkdir()  # so that the number is another one
    module.rmdir()
    module.parent.joinpath("other").rename(module)
    await setting.look()
    assert setting.taints() == {}


async def test_an_administrator_removes_the_file(setting: Setting) -> None:
    await setting.look()
    await setting.hear(48)
    await setting.hear(48, RTX_4090.uuid)
    await setting.look()
    setting.files.path(A100.uuid).unlink()
    await setting.look()
    assert setting.taints() == {RTX_4090.name: [(XID, "48")]}
    await setting.look()
    assert setting.files.read().keys() == {RTX_4090.uuid}


async def test_an_error_that_is_not_yet_on_disk_is_not_taken_for_removed(setting: Setting) -> None:
    await setting.look()
    await setting.hear(48)
    await setting.look()
    assert setting.files.read().keys() == {A100.uuid}


async def test_two_agents_side_by_side_share_what_they_know(setting: Setting) -> None:
    await setting.look()
    other = Setting(setting.root)
    await other.health.recall()
    await other.look()
    await setting.hear(48)
    await setting.look()
    await other.look()
    assert other.taints() == {A100.name: [(XID, "48")]}
    setting.files.path(A100.uuid).unlink()
    for one in (setting, other, setting):
        await one.look()
    assert (setting.taints(), other.taints()) == ({}, {})


async def test_a_card_that_is_lost_and_found(setting: Setting) -> None:
    await setting.look()
    assert not setting.health.before_look()
    await setting.hear(79)
    await setting.look(GONE)
    assert setting.taints() == {A100.name: [(LOST, ""), (XID, "79")]}
    assert [card.name for card in setting.node.inventory().published] == [RTX_4090.name, A100.name]
    assert A100.name not in setting.node.inventory().by_device()  # so nobody is given it
    assert setting.watch.watched[-1] == {RTX_4090.uuid}
    assert setting.health.before_look()  # for a session that sees it again
    assert setting.watch.let_go_of == 1
    await setting.look()
    assert setting.taints() == {}
    assert not setting.health.before_look()
    assert setting.files.read() == {}


async def test_a_card_that_stays_lost_is_asked_for_less_and_less_often(setting: Setting) -> None:
    await setting.look()
    renewals = []
    for number in range(40):
        await setting.look(GONE)
        if setting.health.before_look():
            renewals.append(number)
    assert renewals == [0, 2, 6, 14, 24, 34]
    await setting.look(inventory("570.124.06", "12.8.0", []))
    assert setting.health.before_look()  # another one is lost
    await setting.look()
    assert not setting.health.before_look()
    await setting.look(GONE)
    assert setting.health.before_look()


async def test_a_lost_card_is_known_to_the_next_agent(setting: Setting) -> None:
    await setting.look()
    await setting.look(SILENT_CARD)
    after = Setting(setting.root)
    await after.health.recall()
    assert after.taints() == {A100.name: [(LOST, "")]}
    await after.look(SILENT_CARD)
    assert after.taints() == {A100.name: [(LOST, "")]}
    await after.look()
    assert after.taints() == {}


async def test_a_session_that_is_not_let_go_of_is_used_on(setting: Setting) -> None:
    await setting.look()
    await setting.look(GONE)
    setting.watch.lets_go = False
    assert not setting.health.before_look()


async def test_application_errors_and_ignored_ones_are_counted_only(tmp_path: Path) -> None:
    setting = Setting(tmp_path, ignored=(63,))
    await setting.health.recall()
    await setting.look()
    for number in (13, 31, 43, 45, 68, 109, 63):
        await setting.hear(number)
    assert (setting.taints(), setting.looks) == ({}, 0)
    assert setting.counted == [13, 31, 43, 45, 68, 109, 63]
    assert not (tmp_path / "xids").exists()


async def test_what_is_ignored_from_now_on_is_forgotten(setting: Setting) -> None:
    await setting.look()
    await setting.hear(63)
    await setting.look()
    after = Setting(setting.root, ignored=(63,))
    await after.health.recall()
    assert after.taints() == {}
    await after.look()
    assert after.files.read() == {}


async def test_news_of_the_recovery_action_is_a_reason_to_look(setting: Setting) -> None:
    await setting.look()
    await setting.hear(154)
    assert (setting.taints(), setting.looks) == ({}, 1)
    await setting.look(replace(two_cards(), actions={A100.uuid: 2, RTX_4090.uuid: 0}))
    assert setting.taints() == {A100.name: [(XID, "154")]}
    await setting.look(replace(two_cards(), actions={A100.uuid: 0, RTX_4090.uuid: 0}))
    assert setting.taints() == {}


async def test_a_storm_of_errors_is_one_look_and_few_writes(setting: Setting) -> None:
    await setting.look()
    for _ in range(50):
        await setting.hear(95)
    assert (len(setting.counted), setting.looks) == (50, 1)
    assert setting.node.ailments.xids[A100.uuid].last == 1000.0
    setting.now += 11
    await setting.hear(48)
    after = setting.node.ailments.xids[A100.uuid]
    assert (after.number, after.first, after.last) == (95, 1000.0, 1011.0)


@pytest.mark.parametrize(
    ("instance", "expected"),
    [
        pytest.param((1, 0), {1}, id="a-compute-instance"),
        pytest.param((2,), {2, 3}, id="a-gpu-instance"),
        pytest.param((9, 9), {1, 2, 3}, id="an-unknown-one-is-the-card"),
        pytest.param((), {1, 2, 3}, id="the-card"),
    ],
)
async def test_instances(setting: Setting, instance: tuple[int, ...], expected: set[int]) -> None:
    def part(number: int, gpu_instance: int, compute_instance: int) -> object:
        mig = Mig(A100.uuid, gpu_instance, compute_instance)
        return replace(A100, uuid=f"MIG-00000000-0000-4000-8000-{number:012x}", mig=mig)

    parts = {1: part(1, 1, 0), 2: part(2, 2, 0), 3: part(3, 2, 1)}
    await setting.look(inventory("1", "1", [RTX_4090, *parts.values()]))  # type: ignore[list-item]
    await setting.hear(95, A100.uuid, *instance)
    tainted = {number for number, card in parts.items() if card.name in setting.taints()}  # type: ignore[attr-defined]
    assert tainted == expected
    assert len(setting.taints()) == len(expected)


async def test_silence(setting: Setting) -> None:
    await setting.look()
    setting.node.not_found("no answer")
    setting.health.silent(False)
    assert setting.taints() == {}
    assert setting.health.before_look()
    setting.health.silent(True)
    assert setting.taints() == {name: [(UNMONITORED, "silent")] for name in (RTX_4090.name, A100.name)}
    await setting.look()
    assert setting.taints() == {}


async def test_cards_without_events(setting: Setting) -> None:
    await setting.look()
    await asyncio.to_thread(setting.watch.unheard, {A100.uuid: "it has none"})
    await asyncio.sleep(0)
    assert setting.taints() == {A100.name: [(UNMONITORED, "no-events")]}
    await asyncio.to_thread(setting.watch.unheard, {})
    await asyncio.sleep(0)
    assert setting.taints() == {}


async def test_without_a_disk_everything_but_the_memory_works(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    setting = Setting(tmp_path / "state")
    await setting.health.recall()
    await setting.look()
    await setting.hear(48)
    await setting.look()
    assert setting.taints() == {A100.name: [(XID, "48")]}
    await setting.look(GONE)
    await setting.look()
    assert setting.taints() == {}


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version": 9, "boot_id": "boot-1", "inventory": {}}', b"\xff"]
)
async def test_remembered_cards_that_can_not_be_read_are_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "cards.json").write_bytes(content)
    setting = Setting(tmp_path)
    await setting.health.recall()
    assert setting.node.cards is None
    await setting.look()
    after = Setting(tmp_path)
    await after.health.recall()
    assert after.node.cards == two_cards()
