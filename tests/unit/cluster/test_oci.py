"""Image archives: what containerd, docker and podman read, reproducible to the byte."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.oci import Image, Layer, layer_of_tree, write_archive


@pytest.fixture
def layers(tmp_path: Path) -> tuple[Layer, Layer]:
    found = []
    for name in ("base", "top"):
        tree = tmp_path / name
        (tree / "etc").mkdir(parents=True)
        (tree / "etc" / name).write_text(name)
        found.append(layer_of_tree(tree, tmp_path / f"{name}.tar"))
    return found[0], found[1]


def archive(*images: Image) -> dict[str, bytes]:
    stream = io.BytesIO()
    write_archive(images, stream)
    stream.seek(0)
    with tarfile.open(fileobj=stream) as opened:
        names = opened.getnames()
        assert len(set(names)) == len(names)
        return {name: file.read() for name in names if (file := opened.extractfile(name))}


def blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> bytes:
    """The blob that a descriptor names; its size and digest are right."""
    data = files["blobs/" + descriptor["digest"].replace(":", "/")]
    assert descriptor["size"] == len(data)
    assert descriptor["digest"] == "sha256:" + hashlib.sha256(data).hexdigest()
    return data


def test_archive_is_an_oci_layout(layers: tuple[Layer, Layer]) -> None:
    image = Image("localhost/app:2", layers, entrypoint=("/app",), command=("--help",), environment=("A=b",))
    files = archive(image)
    assert json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}
    (entry,) = json.loads(files["index.json"])["manifests"]
    assert entry["annotations"] == {
        "io.containerd.image.name": "localhost/app:2",
        "org.opencontainers.image.ref.name": "2",
    }
    manifest = json.loads(blob(files, entry))
    config = json.loads(blob(files, manifest["config"]))
    stored = [blob(files, layer) for layer in manifest["layers"]]
    assert stored == [layer.path.read_bytes() for layer in layers]
    assert config["rootfs"]["diff_ids"] == [layer.digest for layer in layers]
    assert config["config"]["Entrypoint"] == ["/app"]
    assert config["config"]["Cmd"] == ["--help"]
    assert config["config"]["Env"][1:] == ["A=b"]
    (docker,) = json.loads(files["manifest.json"])
    assert docker["RepoTags"] == ["localhost/app:2"]
    assert all(name in files for name in (docker["Config"], *docker["Layers"]))


def test_shared_layers_are_written_once(layers: tuple[Layer, Layer]) -> None:
    base, top = layers
    files = archive(Image("localhost/a:1", (base,)), Image("localhost/b:1", (base, top)))
    blobs = [name for name in files if name.startswith("blobs/")]
    assert len(blobs) == 2 + 2 * 2  # two layers; a config and a manifest each
    assert len(json.loads(files["index.json"])["manifests"]) == 2


def test_same_tree_same_digest(tmp_path: Path) -> None:
    digests: list[str] = []
    for order in (("a", "b", "c"), ("c", "b", "a")):
        tree = tmp_path / "".join(order)
        tree.mkdir()
        for name in order:
            (tree / name).write_text(name)
            os.utime(tree / name, (len(digests), len(digests)))
        digests.append(layer_of_tree(tree, tmp_path / "layer.tar").digest)
    assert digests[0] == digests[1]


def test_layer_keeps_modes_links_and_leaves_out_what_it_is_told(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "dev").mkdir(parents=True)
    (tree / "dev" / "null").write_text("")
    (tree / "tool").write_text("")
    (tree / "tool").chmod(0o4755)
    (tree / "link").symlink_to("tool")
    layer = layer_of_tree(tree, tmp_path / "layer.tar", lambda name: name.startswith("dev/"))
    with tarfile.open(layer.path) as opened:
        members = {member.name: member for member in opened.getmembers()}
    assert sorted(members) == [".", "./dev", "./link", "./tool"]
    assert members["./tool"].mode == 0o4755
    assert members["./link"].linkname == "tool"
    assert {(member.mtime, member.uname) for member in members.values()} == {(0, "")}
    assert Layer.read(layer.path) == layer
