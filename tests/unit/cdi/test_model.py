from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cdi.model import ContainerEdits, Device, DeviceNode, Mount, Spec

NODE = DeviceNode(path="/dev/nvidia0")


def spec(name: str = "a", kind: str = "vendor.example/class", node: DeviceNode = NODE) -> Spec:
    return Spec(kind=kind, devices=(Device(name=name, container_edits=ContainerEdits(device_nodes=(node,))),))


@pytest.mark.parametrize(
    ("document", "version"),
    [
        pytest.param(spec(), "0.3.0", id="plain"),
        pytest.param(spec(name="0a"), "0.5.0", id="name-starts-with-a-digit"),
        pytest.param(
            spec(node=DeviceNode(path="/dev/nvidia0", host_path="/drv/dev/nvidia0")), "0.5.0", id="host-path"
        ),
        pytest.param(spec(kind="vendor.example/a.b"), "0.6.0", id="dot-in-class"),
    ],
)
def test_lowest_version_that_suffices(document: Spec, version: str) -> None:
    assert json.loads(document.to_json())["cdiVersion"] == version


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(lambda: spec(name="-a"), "no CDI device name", id="device-name"),
        pytest.param(lambda: spec(name="a/b"), "no CDI device name", id="slash-in-name"),
        pytest.param(lambda: spec(kind="noslash"), "no CDI kind", id="kind-without-class"),
        pytest.param(lambda: spec(kind="1vendor/class"), "no CDI kind", id="vendor-starts-with-a-digit"),
        pytest.param(lambda: Spec(kind="v/c", devices=()), "at least one device", id="no-devices"),
        pytest.param(
            lambda: Device(name="a", container_edits=ContainerEdits()), "no edits", id="empty-edits"
        ),
        pytest.param(lambda: Spec(kind="v/c", devices=spec().devices * 2), "is there twice", id="duplicate"),
        pytest.param(lambda: DeviceNode(path="dev/nvidia0"), "not an absolute path", id="relative-node"),
        pytest.param(
            lambda: DeviceNode(path="/dev/x", permissions="rx"), "permissions 'rx'", id="permissions"
        ),
        pytest.param(
            lambda: Mount(host_path="", container_path="/a"), "not an absolute path", id="empty-mount"
        ),
        pytest.param(lambda: ContainerEdits(env=("=a",)), "not NAME=value", id="env-without-name"),
        pytest.param(lambda: ContainerEdits(env=("A",)), "not NAME=value", id="env-without-value"),
        pytest.param(
            lambda: msgspec.convert({"hostPath": "/a", "containerPath": "/b", "type": "bind"}, Mount),
            "unknown field",
            id="unknown-field",
        ),
    ],
)
def test_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_nothing_empty_is_written() -> None:
    assert json.loads(spec().to_json()) == {
        "cdiVersion": "0.3.0",
        "kind": "vendor.example/class",
        "devices": [{"name": "a", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    }
