"""The agent on a node without an NVIDIA driver: registered, serving Unprepare, saying why it is not ready."""

from __future__ import annotations

import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from dra_driver.names import DRIVER
from kube import paths
from tests.integration.api_server import ApiServer
from tests.integration.dra_driver.agent import Agent
from tests.integration.dra_driver.kubelet import Kubelet, WireClaim, register

CLAIM = WireClaim("default", "claim", "0c8f1f2e-0000-4000-8000-000000000001")


@pytest.fixture
async def agent(root: Path, api: ApiServer) -> AsyncIterator[Agent]:
    (root / "driver").mkdir()
    with Agent(root, api) as made:
        await made.start()
        yield made


async def test_registers(agent: Agent) -> None:
    info = await register(agent.sockets.registration)
    assert (info.type, info.name, info.endpoint) == ("DRAPlugin", DRIVER, str(agent.sockets.dra))
    assert list(info.supported_versions) == [
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    ]
    assert agent.sockets.dra.is_socket()


async def test_says_why_it_is_not_ready(agent: Agent) -> None:
    await register(agent.sockets.registration)

    async def has_looked() -> bool:
        return "libnvidia-ml" in (await agent.get("/readyz"))[1]

    await agent.until(has_looked)
    status, words = await agent.get("/readyz")
    assert status == 503
    assert "[-] driver-files: no libcuda.so.<version>" in words
    assert "[-] gpus: libnvidia-ml.so.1 was not found: is the NVIDIA driver installed" in words
    assert "[+] registered: the kubelet has registered the driver" in words


async def test_a_refused_registration_is_told(agent: Agent) -> None:
    await register(agent.sockets.registration, error="version not supported")
    assert (
        "[-] registered: the kubelet refused the driver: version not supported"
        in (await agent.get("/readyz"))[1]
    )


async def test_is_healthy_and_publishes_an_empty_pool(agent: Agent, api: ApiServer) -> None:
    assert await agent.get("/healthz") == (200, "ok\n")
    await agent.until(lambda: bool(api.all(paths.resource_slices())))
    (item,) = api.all(paths.resource_slices())
    assert item["spec"]["devices"] == []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_unprepare_works_and_prepare_says_why_not(agent: Agent, api: ApiServer, version: str) -> None:
    claim = {
        "metadata": {"namespace": "default", "name": "claim", "uid": CLAIM.uid},
        "status": {
            "allocation": {
                "devices": {
                    "results": [{"request": "g0", "driver": DRIVER, "pool": "node-a", "device": "gpu-a"}]
                }
            }
        },
    }
    api.put(paths.resource_claims(), claim)
    async with Kubelet(agent.sockets.dra, version=version) as kubelet:
        answer = (await kubelet.prepare(CLAIM))[CLAIM.uid]
        assert "node node-a has no usable NVIDIA driver" in answer.error
        assert await kubelet.unprepare(CLAIM) == {CLAIM.uid: ""}
    assert agent.files() == set()


async def test_unhealthy_without_its_socket(agent: Agent) -> None:
    agent.sockets.dra.unlink()
    status, words = await agent.get("/healthz")
    assert status == 503
    assert f"{agent.sockets.dra} does not answer" in words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ends_cleanly(agent: Agent, api: ApiServer, number: signal.Signals) -> None:
    await register(agent.sockets.registration)
    await agent.until(lambda: bool(api.all(paths.resource_slices())))
    assert await agent.stop(number) == 0
    assert not agent.sockets.dra.exists()
    assert not agent.sockets.registration.exists()
    assert len(api.all(paths.resource_slices())) == 1  # slices outlive us
    assert "Traceback" not in agent.log.read_text()


async def test_starts_over_a_dead_agents_sockets(agent: Agent) -> None:
    await agent.stop(signal.SIGKILL)
    assert agent.sockets.registration.exists()
    agent.sockets.registration.unlink()  # so that start waits for the new one
    await agent.start()
    await register(agent.sockets.registration)


async def test_an_address_in_use_is_one_sentence(root: Path, api: ApiServer) -> None:
    with Agent(root, api) as agent, socket.create_server(agent.address):
        status, said = await agent.end()
    assert status == 1
    assert "Traceback" not in said
    assert "ended: [Errno 98]" in said


async def test_a_state_directory_that_can_not_be_made(root: Path, api: ApiServer) -> None:
    (root / "state").write_text("a file")
    with Agent(root, api) as agent:
        status, said = await agent.end()
    assert status == 1
    assert "Traceback" not in said
    assert "state/ledger" in said


async def test_settings_that_can_not_be_used(root: Path, api: ApiServer) -> None:
    with Agent(root, api, TESSERA_SPLIT_COUNT="none", TESSERA_LOG_LEVEL="loud") as agent:
        status, said = await agent.end()
    assert status == 2
    assert [line.split(" can't")[0] for line in said.splitlines()] == [
        "tessera-driver: TESSERA_SPLIT_COUNT",
        "tessera-driver: TESSERA_LOG_LEVEL",
    ]


async def test_other_paths_and_methods(agent: Agent) -> None:
    assert (await agent.get("/"))[0] == 404
    status, text = await agent.get("/metrics")
    assert status == 200
    for series in (
        'tessera_prepare_seconds_count{step="cdi"} 0.0',
        'tessera_claim_operations_total{operation="prepare",outcome="success"} 0.0',
        'tessera_slice_writes_total{verb="create"}',
        'tessera_condition{condition="gpus"} 0.0',
        "tessera_claims_prepared 0.0",
        'tessera_build_info{library="',
        "process_resident_memory_bytes",
    ):
        assert series in text
