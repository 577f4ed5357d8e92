"""Where the connection comes from."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from kube import configuration
from kube.configuration import ConfigurationError


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    for name, text in {"token": "t", "ca.crt": "c", "namespace": "tessera\n"}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("host", "server"),
    [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")],
    ids=["IPv4", "IPv6"],
)
def test_in_cluster(monkeypatch: pytest.MonkeyPatch, service_account: Path, host: str, server: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    found = configuration.in_cluster(service_account)
    assert (found.server, found.namespace) == (server, "tessera")
    assert found.token_file == service_account / "token"


def test_missing_token_is_named(monkeypatch: pytest.MonkeyPatch, service_account: Path) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    (service_account / "token").unlink()
    with pytest.raises(ConfigurationError, match=r"token is missing"):
        configuration.in_cluster(service_account)


def test_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "config"
    cluster = {
        "server": "https://example:6443/",
        "certificate-authority-data": base64.b64encode(b"CA").decode(),
    }
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": cluster}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
                "current-context": "x",
            }
        )
    )
    found = configuration.load(file)
    assert (found.server, found.namespace, found.token) == ("https://example:6443", "team", "secret")
    assert found.ca_file is not None
    assert found.ca_file.read_text() == "CA"


def test_unreadable_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing"):
        configuration.load(tmp_path / "missing")
