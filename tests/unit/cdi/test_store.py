from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdi import durable
from cdi.model import ContainerEdits, Device, DeviceNode, Spec
from cdi.store import Store

KIND = "gpu.tessera.dev/grant"


def spec(device: str = "a") -> Spec:
    edits = ContainerEdits(device_nodes=(DeviceNode(path="/dev/nvidia0"),))
    return Spec(kind=KIND, devices=(Device(name=device, container_edits=edits),))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cdi", KIND)


def test_write_names_the_file_as_the_specification_asks(store: Store) -> None:
    path = store.write("uid", spec())
    assert path.name == "gpu.tessera.dev-grant_uid.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert json.loads(path.read_bytes())["kind"] == KIND


def test_write_replaces(store: Store) -> None:
    store.write("uid", spec("a"))
    store.write("uid", spec("b"))
    assert json.loads(store.read("uid") or b"")["devices"][0]["name"] == "b"


def test_remove_is_repeatable(store: Store) -> None:
    store.write("uid", spec())
    assert store.remove("uid")
    assert not store.remove("uid")
    assert store.read("uid") is None


def test_identities_are_ours_alone(store: Store) -> None:
    store.write("one", spec())
    (store.directory / "nvidia.com-gpu.json").write_text("{}")
    assert store.identities() == {"one"}


def test_sweep_leaves_documents(store: Store) -> None:
    store.write("one", spec())
    (store.directory / f"{durable.TEMPORARY}x").write_text("half")
    assert store.sweep() == 1
    assert [path.name for path in store.directory.iterdir()] == ["gpu.tessera.dev-grant_one.json"]


@pytest.mark.parametrize("identity", ["", "a/b", ".hidden", "../up"])
def test_identity_is_a_file_names_part(store: Store, identity: str) -> None:
    with pytest.raises(ValueError, match="can't be part of a file name"):
        store.write(identity, spec())


def test_another_kind_is_refused(store: Store) -> None:
    with pytest.raises(ValueError, match="in the store of"):
        store.write("uid", Spec(kind="other/kind", devices=spec().devices))


@pytest.mark.parametrize("call", ["fchmod", "replace"])
def test_a_failed_write_leaves_the_old_document_and_nothing_else(
    store: Store, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store.write("uid", spec("old"))

    def fail(*_args: Any, **_kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="No space left"):
            store.write("uid", spec("new"))
    assert [path.name for path in store.directory.iterdir()] == ["gpu.tessera.dev-grant_uid.json"]
    assert json.loads(store.read("uid") or b"")["devices"][0]["name"] == "old"
    store.write("uid", spec("new"))
    assert json.loads(store.read("uid") or b"")["devices"][0]["name"] == "new"
