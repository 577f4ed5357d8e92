"""Where a node has SELinux containers can use all of ours that they have mounted; else nothing is labelled.

No kernel with SELinux runs here, so nothing is refused; the labels are real, and read from the files.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dra_driver.claims.selinux import ATTRIBUTE, FOR_CONTAINERS
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import WireClaim
from tests.integration.dra_driver.world import World, serving, two_cards


def mounted(world: World, wire: WireClaim) -> dict[str, Path]:
    """Container path → file of ours: not of the driver's, which are the system's to label."""
    mounts = [mount for device in world.spec(wire)["devices"] for mount in device["containerEdits"]["mounts"]]
    found = {mount["containerPath"]: Path(mount["hostPath"]) for mount in mounts}
    ours = (world.agent.root / "run", world.agent.root / "state")
    return {place: path for place, path in found.items() if any(map(path.is_relative_to, ours))}


def label(path: Path) -> bytes | None:
    try:
        return os.getxattr(path, ATTRIBUTE)
    except OSError:
        return None


@pytest.mark.parametrize(
    ("has_selinux", "expected"), [(True, FOR_CONTAINERS), (False, None)], ids=["selinux", "no-selinux"]
)
async def test_what_containers_have_mounted(
    root: Path, api: ApiServer, has_selinux: bool, expected: bytes | None
) -> None:
    cards = two_cards(root)
    if has_selinux:
        (root / "driver/sys/fs/selinux").mkdir(parents=True)
    agent = Agent(root, api, TESSERA_INTERPOSITION="shim", **cards)
    async with serving(agent, api) as world:
        wire = world.allocate("claim", world.share(0))
        await world.prepared(wire)
        files = mounted(world, wire)
        assert {path.name for path in files.values()} == {
            "limits",
            "usage",
            "libtessera.so",
            "ld.so.preload",
            "libtessera-shim.so",
            "libtessera-shim-nvml.so",
            "g0.json",
        }
        assert {path.name: label(path) for path in files.values()} == dict.fromkeys(
            (path.name for path in files.values()), expected
        )
        usage = files[f"/run/tessera/grants/{wire.uid}-g0-00000001/usage"]
        usage.unlink()
        await world.prepared(wire)
        assert label(usage) == expected
