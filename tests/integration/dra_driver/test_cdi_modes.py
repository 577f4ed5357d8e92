"""Where a container's driver files come from: our own reading of the driver root, or the NVIDIA toolkit's."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, register
from tests.integration.dra_driver.world import World, two_cards

LIBCUDA = "usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"


def describe(root: Path, devices: list[dict[str, Any]], libcuda: str = LIBCUDA) -> Path:
    """As nvidia-ctk would have: each card by its UUID."""
    driver = root / "driver"
    document = {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {
                "name": device["attributes"]["uuid"]["string"],
                "containerEdits": {
                    "deviceNodes": [
                        {
                            "path": f"/dev/nvidia{device['attributes']['minor']['int']}",
                            "hostPath": f"{driver}/dev/nvidia{device['attributes']['minor']['int']}",
                        }
                    ]
                },
            }
            for device in devices
        ],
        "containerEdits": {
            "mounts": [{"hostPath": f"{driver}/{libcuda}", "containerPath": f"/{libcuda}"}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["x"]}],
        },
    }
    path = root / "static-cdi/nvidia.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


@contextlib.asynccontextmanager
async def world(root: Path, api: ApiServer, mode: str) -> AsyncIterator[World]:
    environment = {
        "TESSERA_CDI_MODE": mode,
        "TESSERA_CDI_STATIC_ROOT": str(root / "static-cdi"),
        "TESSERA_LOOK_PERIOD": "0.5",
        "TESSERA_RECONCILE_PERIOD": "1",
    }
    with Agent(root, api, **two_cards(root), **environment) as agent:
        await agent.start()
        info = await register(agent.sockets.registration)
        async with Kubelet(Path(info.endpoint)) as kubelet:
            made = World(agent, api, kubelet)
            await agent.until(lambda: bool(made.devices()) or mode == "toolkit")
            yield made


async def says(found: World, words: str) -> None:
    """Until /readyz does."""

    async def is_said() -> bool:
        return words in (await found.agent.get("/readyz"))[1]

    await found.agent.until(is_said)


async def test_auto_without_a_document_is_native(root: Path, api: ApiServer) -> None:
    async with world(root, api, "auto") as found:
        await says(found, "CDI edits are our own, since no CDI document names a device of nvidia.com/gpu")
        wire = found.allocate("claim", found.share(0))
        (device,) = (await found.prepared(wire)).devices
        assert len(device.cdi_device_ids) == 1


async def test_auto_with_a_document_is_the_toolkits(root: Path, api: ApiServer) -> None:
    async with world(root, api, "auto") as found:
        describe(root, found.devices())
        await says(found, "CDI edits are the toolkit's, of")
        wire = found.allocate(
            "claim",
            found.share(0),
            found.share(1, "80Gi", "100", "1k", share=2, request="g1"),
        )
        answer = await found.prepared(wire)
        uuids = [device["attributes"]["uuid"]["string"] for device in found.devices()]
        assert [list(device.cdi_device_ids) for device in answer.devices] == [
            [f"gpu.tessera.dev/grant={wire.uid}-g0-00000001", f"nvidia.com/gpu={uuids[0]}"],
            [f"gpu.tessera.dev/grant={wire.uid}-g1-00000002", f"nvidia.com/gpu={uuids[1]}"],
        ]
        spec = found.spec(wire)
        assert "containerEdits" not in spec
        share, whole = (device["containerEdits"] for device in spec["devices"])
        assert any(mount["containerPath"] == "/etc/ld.so.preload" for mount in share["mounts"])
        assert not any(mount["containerPath"] == "/etc/ld.so.preload" for mount in whole["mounts"])
        for edits in (share, whole):
            assert edits["env"] == ["TESSERA_GRANTS=2"]
            assert "deviceNodes" not in edits


async def test_a_claim_keeps_its_ids_when_a_document_comes_and_goes(root: Path, api: ApiServer) -> None:
    """The kubelet remembers ids; what reconcile writes anew must do with those."""
    async with world(root, api, "auto") as found:
        native = found.allocate("native", found.share(0))
        await found.prepared(native)
        document = describe(root, found.devices())
        await says(found, "CDI edits are the toolkit's, of")
        toolkit = found.allocate("toolkit", found.share(0, share=2))
        await found.prepared(toolkit)
        for wire in (native, toolkit):
            before = found.spec(wire)
            (found.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json").unlink()
            path = found.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json"
            await found.agent.until(path.exists)
            assert found.spec(wire) == before
        document.unlink()
        await says(found, "CDI edits are our own, since")
        for wire, ids in ((native, 1), (toolkit, 2)):
            (device,) = (await found.prepared(wire)).devices
            assert len(device.cdi_device_ids) == ids


async def test_native_takes_no_notice_of_a_document(root: Path, api: ApiServer) -> None:
    async with world(root, api, "native") as found:
        describe(root, found.devices())
        await says(found, "CDI edits are our own\n")
        wire = found.allocate("claim", found.share(0))
        (device,) = (await found.prepared(wire)).devices
        assert len(device.cdi_device_ids) == 1
        assert found.spec(wire)["containerEdits"]["deviceNodes"]


async def test_toolkit_without_a_document_is_not_ready_and_says_so(root: Path, api: ApiServer) -> None:
    async with world(root, api, "toolkit") as found:
        await says(found, "[-] driver-files: CDI mode is toolkit, and no CDI document names a device of")
        await found.agent.until(lambda: bool(api.all(paths.resource_slices())))
        assert found.devices() == []


async def test_an_outdated_document_is_said(root: Path, api: ApiServer) -> None:
    async with world(root, api, "auto") as found:
        describe(root, found.devices(), libcuda="usr/lib64/libcuda.so.535.104.05")
        await says(found, "nvidia.json is not used: it is for driver 535.104.05, and 570.124.06 is installed")
        wire = found.allocate("claim", found.share(0))
        (device,) = (await found.prepared(wire)).devices
        assert len(device.cdi_device_ids) == 1


async def test_a_mode_that_is_none(root: Path, api: ApiServer) -> None:
    with Agent(root, api, TESSERA_CDI_MODE="hook") as agent:
        status, said = await agent.end()
    assert status == 2
    assert "TESSERA_CDI_MODE can't be 'hook'" in said
