"""The agent as a process, with cards that report errors, are lost and found, and a driver that hangs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, register
from tests.integration.dra_driver.world import INVENTORIES, World, fake_cards

XID, LOST = "gpu.tessera.dev/xid", "gpu.tessera.dev/lost"
AT_ONCE = 20.0  # seconds; what needs no NVML takes far less, what waits for it would take for ever


class Node(World):
    """One whose driver the test breaks."""

    async def fakegpu(self, command: str, *arguments: str) -> None:
        await self.agent.fakegpu(command, *arguments)

    def taints(self) -> dict[int, dict[str, str]]:
        """Number of the device in the slice → key → value; times are there in any case."""
        found: dict[int, dict[str, str]] = {}
        for number, device in enumerate(self.devices()):
            for taint in device.get("taints", ()):
                assert taint["effect"] == "NoSchedule"
                assert taint["timeAdded"]
                found.setdefault(number, {})[taint["key"]] = taint.get("value", "")
        return found

    async def until_tainted(self, expected: dict[int, dict[str, str]], seconds: float = 60.0) -> None:
        try:
            await self.agent.until(lambda: self.taints() == expected, seconds)
        except AssertionError as error:
            raise AssertionError(f"{self.taints()} where {expected} was expected: {error}") from error

    def told(self) -> dict[str, str]:
        """Reason of each Event → its message."""
        return {item["reason"]: item["message"] for item in self.api.all(paths.events("default"))}

    def remembered(self) -> list[Path]:
        return list((self.agent.root / "state/xids").glob("*.json"))

    @property
    def writes(self) -> int:
        return sum(seen.method in ("POST", "PUT", "PATCH", "DELETE") for seen in self.api.requests)

    async def restart(self, number: signal.Signals = signal.SIGKILL) -> None:
        await self.agent.stop(number)
        self.agent.sockets.registration.unlink(missing_ok=True)
        await self.agent.start()
        await register(self.agent.sockets.registration)


@pytest.fixture
async def node(root: Path, api: ApiServer, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    settings: dict[str, str] = dict(getattr(request, "param", {}))
    inventory = settings.pop("inventory", "two-cards.ini")
    environment = fake_cards(root, INVENTORIES / inventory)
    environment |= {"TESSERA_LOOK_PERIOD": "0.3", **settings}
    async with AsyncExitStack() as stack:
        agent = stack.enter_context(Agent(root, api, **environment))
        await agent.start()
        await register(agent.sockets.registration)
        await agent.until_ready()
        await agent.until_it_hears_errors()
        kubelet = await stack.enter_async_context(Kubelet(agent.sockets.dra))
        yield Node(agent, api, kubelet)


async def test_an_error_that_loses_the_card_until_it_is_found(node: Node) -> None:
    names = [device["name"] for device in node.devices()]
    await node.fakegpu("xid", "1", "79")
    await node.until_tainted({1: {LOST: "", XID: "79"}})
    assert [device["name"] for device in node.devices()] == names
    uuid = node.devices()[1]["attributes"]["uuid"]["string"]
    await node.until_metric(f'tessera_card_healthy{{uuid="{uuid}"}}', 0)
    await node.until_metric(f'tessera_card_tainted{{key="{LOST}",uuid="{uuid}"}}', 1)
    await node.until_metric('tessera_xid_events_total{xid="79"}', 1)
    status, words = await node.agent.get("/readyz")
    assert status == 200  # one card is left
    assert f"{uuid} is lost" in words
    await node.fakegpu("find", "1")
    await node.until_tainted({})
    await node.agent.until(lambda: node.remembered() == [])
    await node.until_metric(f'tessera_card_healthy{{uuid="{uuid}"}}', 1)


async def test_what_is_tainted_is_written_once(node: Node) -> None:
    await node.fakegpu("xid", "0", "48")
    await node.until_tainted({0: {XID: "48"}})
    await node.agent.until(lambda: "CardError" in node.told())
    before = node.writes
    for _ in range(3):
        await node.fakegpu("xid", "0", "48")
    await asyncio.sleep(1.5)
    assert node.writes == before


async def test_an_error_outlives_the_agent_but_not_the_boot(node: Node) -> None:
    await node.fakegpu("xid", "0", "48")
    await node.until_tainted({0: {XID: "48"}})
    (taint,) = node.devices()[0]["taints"]
    await node.agent.until(lambda: len(node.remembered()) == 1)
    await node.restart()
    await node.agent.until_ready()
    await asyncio.sleep(1)  # looks have been made
    assert node.devices()[0]["taints"] == [taint]
    await node.agent.stop()
    node.agent.boot("boot-2")
    await node.agent.start()
    await node.until_tainted({})


async def test_an_administrator_clears_an_error(node: Node) -> None:
    await node.fakegpu("xid", "0", "48")
    await node.agent.until(lambda: len(node.remembered()) == 1)
    await node.until_tainted({0: {XID: "48"}})
    node.remembered()[0].unlink()
    await node.until_tainted({})


async def test_a_card_that_is_not_listed_any_more(node: Node) -> None:
    share = node.share(1)
    wire = node.allocate("before", share)
    await node.prepared(wire)
    await node.fakegpu("lose", "1", "--gone")
    await node.until_tainted({1: {LOST: ""}})
    await node.restart()
    await node.until_tainted({1: {LOST: ""}})
    assert len(node.devices()) == 2
    late = node.allocate("late", share | {"shareID": "11111111-0000-4000-8000-000000000000"})
    answer = (await node.kubelet.prepare(late))[late.uid]
    assert (
        f"device {share['device']} is lost: the NVIDIA driver does not list the card any more" in answer.error
    )
    assert await node.kubelet.unprepare(wire, late) == {wire.uid: "", late.uid: ""}
    await node.fakegpu("find", "1")
    await node.until_tainted({})
    await node.prepared(late)


async def test_a_card_in_use_that_is_lost_and_found_stays_as_it_was(node: Node) -> None:
    wire = node.allocate("claim", node.share(1))
    await node.prepared(wire)
    spec = node.spec(wire)
    await node.fakegpu("lose", "1")
    await node.until_tainted({1: {LOST: ""}})
    assert node.spec(wire) == spec
    await node.fakegpu("find", "1")
    await node.until_tainted({})
    assert node.spec(wire) == spec
    assert await node.prepared(wire)


@pytest.mark.parametrize("node", [{"TESSERA_IGNORED_XIDS": "63,92"}], indirect=True)
async def test_errors_that_say_nothing_against_a_card(node: Node) -> None:
    for number in ("13", "31", "43", "45", "68", "109", "63", "92"):
        await node.fakegpu("xid", "0", number)
    await node.until_metric('tessera_xid_events_total{xid="92"}', 1)
    assert await node.metric('tessera_xid_events_total{xid="31"}') == 1
    assert node.taints() == {}
    assert node.remembered() == []


@pytest.mark.parametrize("node", [{"inventory": "mig.ini"}], indirect=True)
async def test_an_error_of_one_instance_and_one_of_its_card(node: Node) -> None:
    devices = node.devices()
    instances = {
        number: device["attributes"]["uuid"]["string"]
        for number, device in enumerate(devices)
        if device["attributes"]["type"]["string"] == "mig"
    }
    assert len(instances) == 3
    first = min(instances)
    await node.fakegpu("xid", instances[first], "95")
    await node.until_tainted({first: {XID: "95"}})
    parent = devices[first]["attributes"]["parentUUID"]["string"]
    await node.fakegpu("ecc", parent, "double")
    await node.until_tainted({number: {XID: "48"} for number in instances})


async def test_an_effect_that_was_configured(root: Path, api: ApiServer) -> None:
    file = root / "node.yaml"
    file.write_text(
        "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\n"
        "taintEffects: {gpu.tessera.dev/xid: NoExecute}\n"
    )
    environment = fake_cards(root, INVENTORIES / "two-cards.ini")
    environment |= {"TESSERA_LOOK_PERIOD": "0.3", "TESSERA_NODE_CONFIGURATION": str(file)}
    with Agent(root, api, **environment) as agent:
        await agent.start()
        await register(agent.sockets.registration)
        await agent.until_ready()
        await agent.until_it_hears_errors()
        async with Kubelet(agent.sockets.dra) as kubelet:
            node = Node(agent, api, kubelet)
            await node.fakegpu("xid", "1", "48")

            def effects() -> list[str]:
                return [taint["effect"] for device in node.devices() for taint in device.get("taints", ())]

            await agent.until(lambda: effects() == ["NoExecute"])


def threads(agent: Agent) -> int:
    return len(list(Path(f"/proc/{agent.pid}/task").iterdir()))


async def _in_time(work: Any) -> Any:
    async with asyncio.timeout(AT_ONCE):
        return await work


async def _serves_as_ever(node: Node, name: str) -> None:
    """All that may not wait for the driver."""
    wire = node.allocate(name, node.share(0))
    assert (await _in_time(node.kubelet.prepare(wire)))[wire.uid].error == ""
    assert await _in_time(node.kubelet.unprepare(wire)) == {wire.uid: ""}
    assert (await _in_time(node.agent.get("/healthz")))[0] == 200
    status, text = await _in_time(node.agent.get("/metrics"))
    assert (status, "tessera_card_healthy" in text) == (200, True)
    assert (await _in_time(node.agent.get("/readyz")))[0] in (200, 503)


async def test_a_driver_that_hangs_holds_up_nothing(node: Node) -> None:
    before = threads(node.agent)
    await node.fakegpu("nvml", "--hang")
    await asyncio.sleep(1)  # the look and the watch are caught in it
    for number in range(5):
        await _serves_as_ever(node, f"claim-{number}")
    assert threads(node.agent) <= before + 8  # the look, and workers for files; no more with time
    await node.fakegpu("nvml", "--ok")
    await node.agent.until_it_hears_errors()


async def test_a_driver_that_hangs_is_told_and_forgiven(node: Node) -> None:
    await node.fakegpu("nvml", "--hang")

    async def is_told() -> bool:
        return "[-] gpus: the NVIDIA driver has not answered" in (await node.agent.get("/readyz"))[1]

    await node.agent.until(is_told)
    uuid = node.devices()[0]["attributes"]["uuid"]["string"]
    await node.until_metric(f'tessera_card_healthy{{uuid="{uuid}"}}', 0)
    assert node.taints() == {}  # not yet
    await node.fakegpu("nvml", "--ok")
    await node.agent.until_ready()
    assert len(node.devices()) == 2


async def test_an_agent_that_starts_while_the_driver_hangs_serves_what_was_there(node: Node) -> None:
    before = node.api.all(paths.resource_slices())
    await node.fakegpu("nvml", "--hang")
    await node.restart()
    await _serves_as_ever(node, "claim")
    assert node.api.all(paths.resource_slices()) == before  # never written, whatever else was told
    assert await node.agent.stop() == 0
    assert "not ended within" not in node.agent.log.read_text()
    await node.fakegpu("nvml", "--ok")


@pytest.mark.parametrize("code", ["999", "12", "9"], ids=["unknown", "no-library", "no-driver"])
async def test_a_driver_that_fails_for_a_while(node: Node, code: str) -> None:
    await node.fakegpu("nvml", "--fail", code)

    async def is_told() -> bool:
        return "[-] gpus:" in (await node.agent.get("/readyz"))[1]

    await node.agent.until(is_told)
    await _serves_as_ever(node, "claim")
    await node.fakegpu("nvml", "--ok")
    await node.agent.until_ready()
    await node.agent.until_it_hears_errors()
    await node.fakegpu("xid", "0", "48")
    await node.until_tainted({0: {XID: "48"}})


@pytest.mark.parametrize("node", [{"inventory": "mig.ini"}], indirect=True)
async def test_one_card_that_hangs_holds_up_no_prepare_of_another(node: Node) -> None:
    await node.fakegpu("nvml", "--card", "0", "--hang")
    await asyncio.sleep(1)
    await _serves_as_ever(node, "claim")
    await node.fakegpu("nvml", "--ok")
    await node.agent.until_ready()


async def test_events_say_what_happened(node: Node) -> None:
    await node.fakegpu("xid", "1", "79")
    await node.until_tainted({1: {LOST: "", XID: "79"}})
    await node.fakegpu("find", "1")
    await node.until_tainted({})
    name = node.devices()[1]["name"]
    await node.agent.until(lambda: {"CardError", "CardLost", "CardWell"} <= node.told().keys())
    said = node.told()
    assert said["CardError"].startswith(f"device {name}: XID 79 reported by the card")
    assert said["CardLost"].startswith(f"device {name}: ")
    assert said["CardWell"] == f"device {name} is well again"


async def test_what_the_driver_itself_says_that_a_card_needs(node: Node) -> None:
    await node.fakegpu("action", "0", "1")
    await node.until_tainted({0: {XID: "154"}})
    await node.fakegpu("action", "0", "0")  # it was reset
    await node.until_tainted({})
    await node.fakegpu("xid", "0", "95")
    await node.fakegpu("action", "0", "2")
    await node.until_tainted({0: {XID: "95"}})
    await node.agent.until(lambda: any(b'"asked":true' in file.read_bytes() for file in node.remembered()))
    await node.fakegpu("action", "0", "0")
    await node.until_tainted({})
