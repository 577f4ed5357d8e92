"""OCI images without a container engine: layers are plain tar files, an archive is an OCI layout in a tar.

Everything is reproducible: the same tree gives the same digest. Layers aren't compressed (they go no farther
than this machine, and importing is faster), so a layer's digest is its diff id too.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True)
class Layer:
    """An uncompressed layer: the tar file, "sha256:…" of it, bytes."""

    path: Path
    digest: str
    size: int

    @classmethod
    def read(cls, path: Path) -> Layer:
        """A layer that is there already; its digest was written beside it by `layer_of_tree`."""
        return cls(path, _digest_file(path).read_text().strip(), path.stat().st_size)


@dataclass(frozen=True)
class Image:
    """Name with tag ("localhost/busybox:1"), layers from the lowest up, and what a container runs by
    default.
    """

    name: str
    layers: tuple[Layer, ...]
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    environment: tuple[str, ...] = field(default=())

    def config(self) -> bytes:
        run: dict[str, Any] = {"Env": [PATH, *self.environment]}
        if self.entrypoint:
            run["Entrypoint"] = list(self.entrypoint)
        if self.command:
            run["Cmd"] = list(self.command)
        document = {
            "architecture": ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [layer.digest for layer in self.layers]},
        }
        return json.dumps(document, sort_keys=True).encode()

    def manifest(self) -> bytes:
        config = self.config()
        layers = [_descriptor(LAYER, layer.digest, layer.size) for layer in self.layers]
        document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, _digest(config), len(config)),
            "layers": layers,
        }
        return json.dumps(document, sort_keys=True).encode()


def layer_of_tree(tree: Path, path: Path, exclude: Callable[[str], bool] = lambda _: False) -> Layer:
    """Writes `tree` as a layer to `path`: sorted names, times at the epoch, owners by number.

    `exclude` gets each name relative to `tree`; a directory that it names is left out with all below it.
    """

    def normal(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = member.name.removeprefix("./")
        if name != "." and exclude(name):
            return None
        member.mtime = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as archive:
        archive.add(tree, arcname=".", filter=normal)  # tarfile walks directories in sorted order
    with path.open("rb") as file:
        digest = "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    _digest_file(path).write_text(digest + "\n")
    return Layer(path, digest, path.stat().st_size)


def write_archive(images: Iterable[Image], stream: IO[bytes]) -> None:
    """Writes an OCI layout with all the images; a layer that several have is in it once.

    `ctr images import` reads it from a pipe; for docker and podman it holds their manifest.json too.
    """
    images = list(images)
    index, docker = [], []
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        _add(archive, "oci-layout", b'{"imageLayoutVersion":"1.0.0"}')
        for image in images:
            config, manifest = image.config(), image.manifest()
            names = {"io.containerd.image.name": image.name}
            names["org.opencontainers.image.ref.name"] = image.name.rsplit(":", 1)[1]
            index.append(_descriptor(MANIFEST, _digest(manifest), len(manifest)) | {"annotations": names})
            layers = [_blob(layer.digest) for layer in image.layers]
            docker.append({"Config": _blob(_digest(config)), "RepoTags": [image.name], "Layers": layers})
        _add(
            archive,
            "index.json",
            json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": index}).encode(),
        )
        _add(archive, "manifest.json", json.dumps(docker).encode())
        documents = (data for image in images for data in (image.config(), image.manifest()))
        for digest, data in {_digest(data): data for data in documents}.items():
            _add(archive, _blob(digest), data)
        for layer in {layer.digest: layer for image in images for layer in image.layers}.values():
            info = _info(_blob(layer.digest), layer.size)
            with layer.path.open("rb") as file:
                archive.addfile(info, file)


def _digest_file(path: Path) -> Path:
    return path.with_suffix(".digest")


def _digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def _descriptor(media_type: str, digest: str, size: int) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size}


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    archive.addfile(_info(name, len(data)), io.BytesIO(data))
