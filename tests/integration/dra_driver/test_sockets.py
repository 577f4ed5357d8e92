"""A Pod's own sockets, as in an update of the DaemonSet, and what a killed Pod leaves."""

from __future__ import annotations

import signal
from pathlib import Path

from dra_driver.names import DRIVER
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import register

OLD = "0c8f1f2e-0000-4000-8000-000000000001"
NEW = "0c8f1f2e-0000-4000-8000-000000000002"


async def test_the_next_pod_removes_a_killed_ones_sockets(root: Path, api: ApiServer) -> None:
    (root / "driver").mkdir()
    with Agent(root, api, TESSERA_POD_UID=OLD) as old:
        await old.start()
        info = await register(old.sockets.registration)
        assert info.endpoint == str(root / "kubelet/plugins" / DRIVER / f"dra-{OLD}.sock")
        await old.stop(signal.SIGKILL)
    assert old.sockets.dra.is_socket()
    assert old.sockets.registration.is_socket()
    with Agent(root, api, TESSERA_POD_UID=NEW) as new:
        await new.start()
        assert (await register(new.sockets.registration)).endpoint == str(new.sockets.dra)
        assert await new.get("/healthz") == (200, "ok\n")
        assert not old.sockets.dra.exists()
        assert not old.sockets.registration.exists()
        assert await new.stop() == 0
    assert list((root / "kubelet").rglob("*.sock")) == []


async def test_two_pods_leave_each_others_sockets_alone(root: Path, api: ApiServer) -> None:
    (root / "driver").mkdir()
    with Agent(root, api, TESSERA_POD_UID=OLD) as old, Agent(root, api, TESSERA_POD_UID=NEW) as new:
        await old.start()
        await new.start()
        for agent in (old, new):
            assert (await register(agent.sockets.registration)).endpoint == str(agent.sockets.dra)
            assert await agent.get("/healthz") == (200, "ok\n")
        assert await old.stop() == 0
        assert await new.get("/healthz") == (200, "ok\n")
