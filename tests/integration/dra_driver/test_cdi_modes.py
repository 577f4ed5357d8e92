"""Where a container's driver files come from: our own reading of the driver root, or the NVIDIA toolkit's."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from itertools import permutations
from pathlib import Path
from typing import Any

from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register
from tests.integration.dra_driver.world import World, two_cards
from tests.unit.cdi.runtime import mounted
from tests.unit.dra_driver.allocations import opaque

DRIVER = "gpu.tessera.dev/driver=files"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LIBCUDA, LIBNVML = f"{LIBRARIES}/libcuda.so.570.124.06", f"{LIBRARIES}/libnvidia-ml.so.570.124.06"


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
            "mounts": [
                {"hostPath": f"{driver}/{path}", "containerPath": f"/{path}"} for path in (libcuda, LIBNVML)
            ],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["x"]}],
        },
    }
    path = root / "static-cdi/nvidia.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(document))
    return path


@contextlib.asynccontextmanager
async def world(root: Path, api: ApiServer, mode: str, **more: str) -> AsyncIterator[World]:
    environment = {
        "TESSERA_CDI_MODE": mode,
        "TESSERA_CDI_STATIC_ROOT": str(root / "static-cdi"),
        "TESSERA_LOOK_PERIOD": "0.5",
        "TESSERA_RECONCILE_PERIOD": "1",
        **more,
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
        assert device.cdi_device_ids[1] == DRIVER


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
        grants = [f"gpu.tessera.dev/grant={wire.uid}-{name}" for name in ("g0-00000001", "g1-00000002")]
        assert [list(device.cdi_device_ids) for device in answer.devices] == [
            [grants[0], f"nvidia.com/gpu={uuids[0]}", f"{grants[0]}-shim"],
            [grants[1], f"nvidia.com/gpu={uuids[1]}", f"{grants[1]}-shim"],
        ]
        assert "containerEdits" not in found.spec(wire)
        share, whole = (device["containerEdits"] for device in found.granted(wire))
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
        uuid = found.devices()[0]["attributes"]["uuid"]["string"]
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
        for wire, first in ((native, DRIVER), (toolkit, f"nvidia.com/gpu={uuid}")):
            (device,) = (await found.prepared(wire)).devices
            assert device.cdi_device_ids[1] == first


async def test_native_takes_no_notice_of_a_document(root: Path, api: ApiServer) -> None:
    async with world(root, api, "native") as found:
        describe(root, found.devices())
        await says(found, "CDI edits are our own\n")
        wire = found.allocate("claim", found.share(0))
        (device,) = (await found.prepared(wire)).devices
        assert device.cdi_device_ids[1] == DRIVER
        assert found.driver_spec()["containerEdits"]["deviceNodes"]


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
        assert device.cdi_device_ids[1] == DRIVER


async def test_a_mode_that_is_none(root: Path, api: ApiServer) -> None:
    with Agent(root, api, TESSERA_CDI_MODE="hook") as agent:
        status, said = await agent.end()
    assert status == 2
    assert "TESSERA_CDI_MODE can't be 'hook'" in said


# --- shims --------------------------------------------------------------------------------------------------


def documents(root: Path) -> list[dict[str, Any]]:
    """All that a runtime sees."""
    directories = (root / "static-cdi", root / "cdi")
    paths_of_all = [path for directory in directories for path in directory.glob("*.json")]
    return [json.loads(path.read_bytes()) for path in paths_of_all]


def container(root: Path, *answers: Any) -> dict[str, str]:
    """Container path → host path in a container that has all of these prepared claims, in this order."""
    ids = [each for answer in answers for device in answer.devices for each in device.cdi_device_ids]
    return mounted(documents(root), ids)


def driver_mounts(mounts: dict[str, str]) -> dict[str, str]:
    """Those of libcuda and NVML: file name by container path."""
    wanted = ("libcuda.so", "libnvidia-ml.so")
    return {path: Path(host).name for path, host in mounts.items() if Path(path).name.startswith(wanted)}


def all_exist(host_paths: Iterable[str]) -> bool:
    return all(Path(path).exists() for path in host_paths)


OWN = {
    "/run/tessera/driver/libcuda.so.1": "libcuda.so.570.124.06",
    "/run/tessera/driver/libnvidia-ml.so.1": "libnvidia-ml.so.570.124.06",
}
CUDA_SHIM, NVML_SHIM = "libtessera-shim.so", "libtessera-shim-nvml.so"


SHIMMED = OWN | {
    f"/{directory}/{name}": shim
    for directory in (LIBRARIES, "usr/lib64")
    for name, shim in (
        ("libcuda.so.1", CUDA_SHIM),
        ("libcuda.so", CUDA_SHIM),
        ("libnvidia-ml.so.1", NVML_SHIM),
    )
}


async def test_a_shim_over_our_own_edits(root: Path, api: ApiServer) -> None:
    async with world(root, api, "native", TESSERA_INTERPOSITION="shim") as found:
        wire = found.allocate("claim", found.share(0))
        mounts = container(root, await found.prepared(wire))
        assert driver_mounts(mounts) == SHIMMED
        assert await asyncio.to_thread(all_exist, mounts.values())
        assert mounts["/etc/ld.so.preload"]


async def test_a_shim_over_the_toolkits(root: Path, api: ApiServer) -> None:
    async with world(root, api, "auto", TESSERA_INTERPOSITION="shim") as found:
        describe(root, found.devices())
        await says(found, "CDI edits are the toolkit's, of")
        wire = found.allocate(
            "claim", found.share(0), found.share(1, "80Gi", "100", "1k", request="g1", share=2)
        )
        answer = await found.prepared(wire)
        share, whole = answer.devices
        assert [each.cdi_device_ids[1].partition("=")[0] for each in (share, whole)] == ["nvidia.com/gpu"] * 2
        in_order = driver_mounts(container(root, answer))
        assert in_order == OWN | {f"/{LIBCUDA}": CUDA_SHIM, f"/{LIBNVML}": NVML_SHIM}
        own = (Path(LIBCUDA).name, Path(LIBNVML).name)
        assert sorted(driver_mounts(mounted(documents(root), whole.cdi_device_ids)).values()) == sorted(own)


async def status_data(found: World, wire: WireClaim) -> dict[str, Any]:
    """Of the claim's first device, when it has been written."""

    def data() -> dict[str, Any]:
        (claim,) = [
            one for one in found.api.all(paths.resource_claims()) if one["metadata"]["uid"] == wire.uid
        ]
        return next((device["data"] for device in claim["status"].get("devices", ())), {})

    await found.agent.until(lambda: bool(data()))
    return data()


async def test_a_claim_asks_for_a_shim(root: Path, api: ApiServer) -> None:
    async with world(root, api, "native") as found:
        plain = found.allocate("plain", found.share(0))
        shimmed = found.allocate("shimmed", found.share(0, share=2), config=[opaque(interposition="shim")])
        whole = found.allocate("whole", found.share(1, "80Gi", "100", "1k", share=3))
        answers = [await found.prepared(wire) for wire in (plain, whole, shimmed)]
        assert CUDA_SHIM not in driver_mounts(container(root, *answers[:2])).values()
        # Whatever order a Pod names its claims in.
        for order in permutations(answers):
            assert driver_mounts(container(root, *order)) == SHIMMED
        for wire, told in ((plain, None), (shimmed, "shim")):
            assert (await status_data(found, wire)).get("interposition") == told


async def test_a_claim_takes_no_shim_away(root: Path, api: ApiServer) -> None:
    async with world(root, api, "native", TESSERA_INTERPOSITION="shim") as found:
        wire = found.allocate("claim", found.share(0), config=[opaque(interposition="preload")])
        answer = (await found.kubelet.prepare(wire))[wire.uid]
        assert "interposition: 'preload' is looser than 'shim', which holds here" in answer.error
        assert not (found.agent.root / "cdi" / f"gpu.tessera.dev-grant_{wire.uid}.json").exists()


async def test_a_driver_without_nvml_is_no_smaller_shim(root: Path, api: ApiServer) -> None:
    """A document of the toolkit that mounts libcuda alone would leave NVML's figures as they are."""
    async with world(root, api, "auto", TESSERA_INTERPOSITION="shim") as found:
        path = describe(root, found.devices())
        document = json.loads(path.read_text())
        document["containerEdits"]["mounts"].pop()
        path.write_text(json.dumps(document))
        await says(found, "CDI edits are the toolkit's, of")
        wire = found.allocate("claim", found.share(0))
        answer = (await found.kubelet.prepare(wire))[wire.uid]
        assert "a shim can't take the place of libnvidia-ml.so.1: no document mounts it" in answer.error


async def test_a_change_is_for_containers_that_start_afterwards(root: Path, api: ApiServer) -> None:
    """Also of a claim that is prepared: its document is written anew, and its limits stay where they are."""
    configuration = root / "node-configuration.yaml"
    head = "apiVersion: gpu.tessera.dev/v1alpha1\nkind: NodeConfiguration\n"
    configuration.write_text(f"{head}interposition: preload\n")
    async with world(root, api, "native", TESSERA_NODE_CONFIGURATION=str(configuration)) as found:
        wire = found.allocate("claim", found.share(0))
        answer = await found.prepared(wire)
        before = container(root, answer)
        assert CUDA_SHIM not in driver_mounts(before).values()
        configuration.write_text(f"{head}interposition: shim\n")
        await found.agent.until(lambda: CUDA_SHIM in driver_mounts(container(root, answer)).values())
        after = container(root, answer)
        assert {path: after[path] for path in before if path not in driver_mounts(after)} == {
            path: host for path, host in before.items() if path not in driver_mounts(after)
        }
