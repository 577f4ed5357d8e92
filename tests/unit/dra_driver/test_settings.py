from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path

import pytest

from dra_driver.capacity import Scales
from dra_driver.settings import SettingsError, load


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TESSERA_")]:
        monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = load(["--node-name", "a"])
    assert settings.scales == Scales(10, Fraction(1), Fraction(1))
    assert settings.sockets.dra == Path("/var/lib/kubelet/plugins/gpu.tessera.dev/dra.sock")
    assert settings.sockets.registration == Path("/var/lib/kubelet/plugins_registry/gpu.tessera.dev-reg.sock")
    assert settings.http_host_and_port == ("0.0.0.0", 9470)
    assert settings.container_driver_root == Path("/driver-root")


def test_a_pods_sockets() -> None:
    sockets = load(["--node-name", "a", "--pod-uid", "0c8f1f2e-0000"]).sockets
    assert sockets.dra == Path("/var/lib/kubelet/plugins/gpu.tessera.dev/dra-0c8f1f2e-0000.sock")
    assert sockets.registration.name == "gpu.tessera.dev-0c8f1f2e-0000-reg.sock"


def test_a_flag_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_NODE_NAME", "from-environment")
    monkeypatch.setenv("TESSERA_SPLIT_COUNT", "4")
    settings = load(["--split-count", "5"])
    assert (settings.node_name, settings.split_count) == ("from-environment", 5)


def test_scaling_is_exact() -> None:
    assert load(["--node-name", "a", "--memory-scaling", "1.1"]).scales.memory_scaling == Fraction(11, 10)


def test_an_ipv6_address() -> None:
    assert load(["--node-name", "a", "--http-address", "[::]:9470"]).http_host_and_port == ("::", 9470)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        load(["--split-count", "0", "--core-scaling", "x", "--run-dir", "relative"])
    assert str(caught.value).splitlines() == [
        "--node-name (TESSERA_NODE_NAME) must be given",
        "--run-dir (TESSERA_RUN_DIR) can't be 'relative': the path must be absolute, since others use it too",
        "--split-count (TESSERA_SPLIT_COUNT) can't be '0': input should be greater than or equal to 1",
        "--core-scaling (TESSERA_CORE_SCALING) can't be 'x': input should be a valid decimal",
    ]


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        pytest.param("--http-address", "9470", "it must be HOST:PORT", id="no-host"),
        pytest.param("--http-address", "a:99999", "it must be HOST:PORT", id="port"),
        pytest.param("--memory-scaling", "0", "greater than or equal to 0.01", id="no-memory"),
        pytest.param("--memory-scaling", "NaN", "can.t be .NaN.", id="nan"),
        pytest.param("--memory-scaling", "Infinity", "can.t be .Infinity.", id="infinity"),
        pytest.param("--split-count", "1001", "less than or equal to 1000", id="split"),
        pytest.param("--kubelet-root", "/" + "a" * 90, "has 1.. bytes; Linux allows 107", id="socket-path"),
        pytest.param("--pod-uid", "a/b", "it must be a Pod's UID", id="pod-uid"),
        pytest.param("--pod-uid", "", "it must be a Pod's UID", id="no-pod-uid"),
        pytest.param("--node-name", "", "at least 1 character", id="empty"),
    ],
)
def test_refused(flag: str, value: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        load(["--node-name", "a", flag, value])
