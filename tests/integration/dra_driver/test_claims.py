"""The agent's process on a node with two fake cards: what only this driver promises.

What the kubelet may expect of any driver is in tests/conformance, against a real API server.
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dra_driver.claims.allocation import ClaimRef
from dra_driver.names import ClaimUID
from interposer import abi
from kube import paths
from tests.fakegpu import driver_root
from tests.integration.api_server import ApiServer, Seen
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.integration.dra_driver.world import World, serving, two_cards
from tests.unit.dra_driver.allocations import claim, opaque, share_id

GIB = 1 << 30


@pytest.fixture
async def world(root: Path, api: ApiServer) -> AsyncIterator[World]:
    async with serving(Agent(root, api, **two_cards(root)), api) as made:
        yield made


def files_of(*wires: WireClaim, grants: int = 1) -> int:
    """How many files and directories so many prepared claims have, each grant of a request of its own."""
    return len(wires) * (len(("document", "entry", "claim", "metadata")) + 4 * grants)


async def test_the_cards_are_published(world: World) -> None:
    devices = world.devices()
    assert [device["attributes"]["productName"]["string"] for device in devices] == [
        "NVIDIA GeForce RTX 4090",
        "NVIDIA A100-SXM4-80GB",
    ]
    assert [device["capacity"]["memory"]["value"] for device in devices] == ["24Gi", "80Gi"]
    for device, numa, capability in zip(devices, (0, 1), ("8.9.0", "8.0.0"), strict=True):
        attributes = device["attributes"]
        assert attributes["driverVersion"] == {"version": "570.124.6"}
        assert attributes["cudaDriverVersion"] == {"version": "12.8.0"}
        assert attributes["cudaComputeCapability"] == {"version": capability}
        assert attributes["numaNode"] == attributes["resource.kubernetes.io/numaNode"] == {"int": numa}
        assert attributes["resource.kubernetes.io/pcieRoot"]["string"].startswith("pci0000:")
        assert device["name"] == attributes["uuid"]["string"].lower().replace("gpu-", "gpu-")
    assert await world.metric(
        f'tessera_card_memory_bytes{{uuid="{devices[0]["attributes"]["uuid"]["string"]}"}}'
    ) == (24 * GIB)


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_a_share_is_prepared_and_taken_back(world: World, version: str) -> None:
    wire = world.allocate("claim", world.share(0))
    async with Kubelet(world.agent.sockets.dra, version=version) as kubelet:
        answer = (await kubelet.prepare(wire))[wire.uid]
        assert answer.error == ""
        (device,) = answer.devices
        grant = f"{wire.uid}-g0-00000001"
        assert list(device.request_names) == ["g0"]
        assert (device.pool_name, device.device_name) == ("node-a", world.devices()[0]["name"])
        assert list(device.cdi_device_ids) == [
            f"gpu.tessera.dev/grant={grant}",
            "gpu.tessera.dev/driver=files",
            f"gpu.tessera.dev/grant={grant}-shim",
        ]
        if version == "v1":
            assert device.share_id == share_id(1)

        limits = abi.read_limits(world.agent.root / "run/claims" / wire.uid / grant / "limits")
        assert (limits.memory_bytes, limits.guaranteed_cores) == (3000 << 20, 30)
        assert limits.uuid == world.devices()[0]["attributes"]["uuid"]["string"]
        assert abi.read_usage(world.agent.root / "run/claims" / wire.uid / grant / "usage").memory_bytes == 0
        labels = f'{{claim="claim",namespace="default",uuid="{limits.uuid}"}}'
        assert await world.metric(f"tessera_grant_memory_limit_bytes{labels}") == 3000 << 20
        assert await world.metric(f"tessera_grant_memory_used_bytes{labels}") == 0
        assert await world.metric("tessera_claims_prepared") == 1

        assert await kubelet.unprepare(wire) == {wire.uid: ""}
    assert world.agent.files() == set()
    assert await world.metric("tessera_claims_prepared") == 0


async def test_the_cdi_documents(world: World) -> None:
    wire = world.allocate("claim", world.share(1))
    await world.prepared(wire)
    spec, driver = world.spec(wire), world.driver_spec()
    root = str(world.agent.root / "driver")
    assert spec["containerEdits"] == {"env": ["TESSERA_GRANTS=1"]}
    (files,) = driver["devices"]
    assert files == {"name": "files", "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"]}}
    common = driver["containerEdits"]
    assert {node["path"] for node in common["deviceNodes"]} >= {"/dev/nvidiactl", "/dev/nvidia-uvm"}
    mounts = {mount["containerPath"]: mount["hostPath"] for mount in common["mounts"]}
    for directory in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        for name in ("libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"):
            assert mounts[f"{directory}/{name}"].startswith(f"{root}/usr/lib/x86_64-linux-gnu/lib")
    assert mounts["/usr/bin/nvidia-smi"] == f"{root}/usr/bin/nvidia-smi"
    (device,) = world.granted(wire)
    assert device["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia1", "hostPath": f"{root}/dev/nvidia1"}
    ]
    for edits in (common, device["containerEdits"]):
        for entry in (*edits["mounts"], *edits["deviceNodes"]):
            assert Path(entry["hostPath"]).exists()  # noqa: ASYNC240


async def test_prepare_is_the_same_again_and_writes_what_is_lost(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    first = await world.prepared(wire)
    before = world.agent.files()
    (world.agent.root / "cdi").rename(world.agent.root / "lost")
    (world.agent.root / "run/claims").rename(world.agent.root / "lost-claims")
    assert await world.prepared(wire) == first
    assert world.agent.files() == before


def reads_of(seen: Seen, wire: WireClaim) -> bool:
    return seen.method == "GET" and seen.path == paths.resource_claim("default", wire.name)


@pytest.mark.parametrize("is_prepared", [False, True], ids=["first", "again"])
async def test_an_api_server_that_says_when_to_come_back(world: World, is_prepared: bool) -> None:
    """Or the Pod would wait until the kubelet asks again, which takes it a minute or more."""
    wire = world.allocate("claim", world.share(0))
    if is_prepared:
        await world.prepared(wire)
    before = len(world.api.requests)
    world.api.refuse(429, retry_after=1, when=lambda seen: reads_of(seen, wire))
    await world.prepared(wire)
    first, second = (seen.at for seen in world.api.requests[before:] if reads_of(seen, wire))
    assert second - first >= 1


async def test_an_api_server_without_an_answer_is_asked_a_few_times(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    world.api.refuse(503, times=1000, when=lambda seen: reads_of(seen, wire))
    error = (await world.kubelet.prepare(wire))[wire.uid].error
    assert f"default/claim:{wire.uid} can't be read: injected by the test (503" in error
    assert 2 <= len([seen for seen in world.api.requests if reads_of(seen, wire)]) <= 10
    assert world.agent.files() == set()


async def test_usage_survives_a_repeated_prepare(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    usage = next((world.agent.root / "run/claims").rglob("usage"))
    limits = usage.with_name("limits")
    before = (usage.stat().st_ino, limits.stat().st_ino)
    await world.prepared(wire)
    assert (usage.stat().st_ino, limits.stat().st_ino) == before  # containers have them mapped


async def test_every_claim_of_a_call_is_answered(world: World) -> None:
    good = world.allocate("good", world.share(0))
    bad = world.allocate("bad", world.share(0, share=2), config=[opaque(enforcement="none")])
    too_big = world.allocate("too-big", world.share(1, "81Gi", share=3))
    gone = WireClaim("default", "gone", "0c8f1f2e-0000-4000-8000-00000000dead")
    other = world.allocate("other", world.share(1, share=4))
    answers = await world.kubelet.prepare(good, bad, too_big, gone, other)
    assert {uid for uid, answer in answers.items() if not answer.error} == {good.uid, other.uid}
    assert "enforcement: 'none' takes effect from a DeviceClass alone" in answers[bad.uid].error
    assert f"default/bad:{bad.uid}" in answers[bad.uid].error
    assert "memory 81Gi of 80Gi" in answers[too_big.uid].error
    assert "does not exist any more" in answers[gone.uid].error
    assert len(world.agent.files()) == files_of(good, other)
    assert await world.kubelet.unprepare(good, bad, too_big, gone, other) == {
        wire.uid: "" for wire in (good, bad, too_big, gone, other)
    }
    assert world.agent.files() == set()


async def test_not_this_claim_any_more(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    replaced = WireClaim("default", "claim", "0c8f1f2e-0000-4000-8000-00000000beef")
    assert "was replaced" in (await world.kubelet.prepare(replaced))[replaced.uid].error
    ref = ClaimRef("default", "claim", ClaimUID(wire.uid))
    raw = claim(ref)
    del raw["status"]
    world.api.put(paths.resource_claims(), raw)
    assert "is not allocated" in (await world.kubelet.prepare(wire))[wire.uid].error
    assert world.agent.files() == set()


async def test_a_whole_card_has_no_library(world: World) -> None:
    wire = world.allocate("claim", world.share(0, "24Gi", "100", "1k"))
    await world.prepared(wire)
    (device,) = world.granted(wire)
    (mount,) = device["containerEdits"]["mounts"]
    assert mount["containerPath"].endswith("/gpu.tessera.dev-metadata.json")
    assert not list((world.agent.root / "run/claims").rglob("limits"))


async def test_overcommit_is_refused_until_the_other_is_gone(world: World) -> None:
    old = world.allocate("old", world.share(0, "20Gi"))
    new = world.allocate("new", world.share(0, "20Gi", share=2))
    await world.prepared(old)
    assert "over-committed, memory 40Gi of 24Gi" in (await world.kubelet.prepare(new))[new.uid].error
    await world.kubelet.unprepare(old)
    await world.prepared(new)


async def test_a_claim_waits_for_one_that_is_just_going(world: World) -> None:
    """B026: after a forced deletion the scheduler is ahead of the kubelet, which would try again late."""
    old = world.allocate("old", world.share(0, "20Gi"))
    new = world.allocate("new", world.share(0, "20Gi", share=2))
    await world.prepared(old)
    preparing = asyncio.create_task(world.kubelet.prepare(new))
    await asyncio.sleep(0.5)
    assert not preparing.done()
    await world.kubelet.unprepare(old)
    assert (await preparing)[new.uid].error == ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_after_a_restart_claims_are_known(world: World, number: signal.Signals) -> None:
    held = world.allocate("held", world.share(0, "20Gi"))
    await world.prepared(held)
    before = world.agent.files()
    await world.agent.stop(number)
    world.agent.sockets.registration.unlink(missing_ok=True)
    await world.agent.start()
    await register(world.agent.sockets.registration)
    await world.agent.until_ready()
    assert world.agent.files() == before
    assert await world.metric("tessera_claims_prepared") == 1
    new = world.allocate("new", world.share(0, "20Gi", share=2))
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        assert "over-committed" in (await kubelet.prepare(new))[new.uid].error
        assert (await kubelet.prepare(held))[held.uid].error == ""
        assert await kubelet.unprepare(held) == {held.uid: ""}
    assert world.agent.files() == set()


async def test_after_a_reboot_nothing_is_left_but_the_retry_works(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    before = world.agent.files()
    await world.agent.stop(signal.SIGKILL)
    world.agent.sockets.registration.unlink()
    shutil.rmtree(world.agent.root / "run/claims")
    shutil.rmtree(world.agent.root / "cdi")
    world.agent.boot("boot-2")
    await world.agent.start()
    await register(world.agent.sockets.registration)
    await world.agent.until_ready()
    assert world.agent.files() == set()
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        assert (await kubelet.prepare(wire))[wire.uid].error == ""
    assert world.agent.files() == before


async def test_after_a_reboot_the_first_question_waits_for_the_driver(world: World) -> None:
    """It starts the cards when it is asked; the kubelet asks as soon as we are registered."""
    wire = world.allocate("claim", world.share(0))
    first = await world.prepared(wire)
    await world.agent.stop(signal.SIGKILL)
    world.agent.sockets.registration.unlink()
    world.agent.boot("boot-2")
    slow = (driver_root.program("fakegpu-ctl"), "nvml", world.agent.root / "fakegpu", "--delay", "20")
    subprocess.run(slow, check=True)  # noqa: ASYNC221
    await world.agent.start()
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        assert (await kubelet.prepare(wire))[wire.uid] == first


async def test_a_corrupt_ledger_is_said_aloud_and_unprepare_still_cleans(world: World) -> None:
    wire = world.allocate("claim", world.share(0))
    await world.prepared(wire)
    await world.agent.stop(signal.SIGKILL)
    world.agent.sockets.registration.unlink()
    file = world.agent.root / "state/ledger" / f"{wire.uid}.json"
    file.write_bytes(file.read_bytes()[:40])
    await world.api.stop()  # or it would be made again before anybody could see it
    await world.agent.start()
    await register(world.agent.sockets.registration)
    assert f"{wire.uid}.corrupt can't be read" in (await world.agent.get("/readyz"))[1]
    async with Kubelet(world.agent.sockets.dra) as kubelet:
        assert await kubelet.unprepare(wire) == {wire.uid: ""}
    assert world.agent.files() == set()
    await world.api.start()


async def test_idle_writes_nothing(world: World) -> None:
    before = len([seen for seen in world.api.requests if seen.method != "GET"])
    await asyncio.sleep(3)
    assert len([seen for seen in world.api.requests if seen.method != "GET"]) == before
