"""The device metadata of KEP-5304: a JSON file in the container that says which devices it has.

    /var/run/kubernetes.io/dra-device-attributes/resourceclaims/<claim>/<request>/<driver>-metadata.json
    …/resourceclaimtemplates/<the Pod's name for the claim>/<request>/…   for claims made from a template

Each file is the same object once per version of the API, newest first. What attributes a device has is what
its slice says, and what limits hold for it here. On the host the files are beside the grants of the claim, so
they go with them; the mount stands at the first device of each request, since the kubelet gives a container
all devices of a request or none.

A file is replaced as a whole, so nobody reads half of one; a container that runs keeps the one that it has.
Nobody's work depends on these files: where they can't be written the caller logs it, and mounts nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from cdi import durable
from cdi.driver_files import READ_ONLY
from cdi.model import Mount
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.plan import Grant, Plan
from dra_driver.names import DRIVER, ClaimUID, DeviceName

CONTAINER_DIRECTORY = PurePosixPath("/var/run/kubernetes.io/dra-device-attributes")
VERSIONS = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")  # newest first
Attributes = Mapping[str, Any]


@dataclass(frozen=True)
class RequestMetadata:
    """One file: its request, where a container finds it, and what it says but for version and generation."""

    request: str
    container_path: str
    content: dict[str, Any]


def metadata_of(plan: Plan, attributes: Mapping[DeviceName, Attributes]) -> tuple[RequestMetadata, ...]:
    """One for each request. `attributes`: of each device, as its slice has them."""
    pod_claim_name = plan.pod_claim_name
    kind, name = (
        ("resourceclaimtemplates", pod_claim_name) if pod_claim_name else ("resourceclaims", plan.claim.name)
    )
    grants: dict[str, list[Grant]] = {}
    for grant in plan.grants:
        grants.setdefault(grant.request, []).append(grant)
    return tuple(
        RequestMetadata(
            request,
            str(CONTAINER_DIRECTORY / kind / name / request / f"{DRIVER}-metadata.json"),
            {
                "metadata": {
                    "name": plan.claim.name,
                    "namespace": plan.claim.namespace,
                    "uid": plan.claim.uid,
                },
                **({"podClaimName": pod_claim_name} if pod_claim_name else {}),
                "requests": [
                    {
                        "name": found[0].full_request,
                        "devices": [_device(grant, attributes) for grant in found],
                    }
                ],
            },
        )
        for request, found in grants.items()
    )


def _device(grant: Grant, attributes: Mapping[DeviceName, Attributes]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if grant.limits is not None:
        limits["memoryLimitBytes"] = {"int": grant.limits.memory_bytes}
        if grant.limits.guaranteed_cores:
            limits["coresLimitPercent"] = {"int": grant.limits.guaranteed_cores}
    if grant.share_id is not None:
        limits["shareID"] = {"string": grant.share_id}
    return {
        "driver": DRIVER,
        "pool": grant.pool,
        "name": grant.device,
        "attributes": {**attributes.get(grant.device, {}), **limits},
    }


def encode(content: Mapping[str, Any], generation: int) -> bytes:
    """A file's text: one object per version."""
    metadata = {**content["metadata"], "generation": generation}
    objects = (
        {"kind": "DeviceMetadata", "apiVersion": version, **content, "metadata": metadata}
        for version in VERSIONS
    )
    return b"".join(msgspec.json.format(msgspec.json.encode(item), indent=2) + b"\n" for item in objects)


class MetadataFiles:
    """The files of all claims, on a tmpfs: nothing to sync, and a reboot empties it.

    `attributes`: of each of the node's devices, as its slice has them now; called from any thread. None: no
    files are wanted.
    """

    def __init__(
        self, directories: GrantDirectories, attributes: Callable[[], Mapping[DeviceName, Attributes]] | None
    ) -> None:
        self._directories = directories
        self._attributes = attributes

    def of(self, plan: Plan) -> tuple[RequestMetadata, ...]:
        """What a claim's containers are to be told."""
        return metadata_of(plan, self._attributes()) if self._attributes is not None else ()

    def path(self, uid: ClaimUID, request: str) -> Path:
        return self._directories.metadata(uid) / f"{request}.json"

    def paths(self, uid: ClaimUID, plan: Plan) -> Iterator[str]:
        """Where they all are, and their directory; nothing where none are wanted."""
        if self._attributes is not None:
            yield str(self._directories.metadata(uid))
            yield from sorted({str(self.path(uid, grant.request)) for grant in plan.grants})

    def write(self, uid: ClaimUID, files: Iterable[RequestMetadata]) -> None:
        """Makes, or brings up to date, exactly these. Raises OSError."""
        directory = self._directories.metadata(uid)
        wanted = {f"{file.request}.json": file for file in files}
        there = _names(directory)
        for stale in there - wanted.keys():
            (directory / stale).unlink()
        for name, file in wanted.items():
            path = directory / name
            generation = _generation(path) if name in there else None
            if generation is not None and durable.read(path) == encode(file.content, generation):
                self._directories.label(path)
                continue
            if not directory.is_dir():
                directory.mkdir(parents=True)
                for made in (directory.parent, directory):
                    made.chmod(0o755)  # not through mkdir's mode: that is subject to the umask
            content = encode(file.content, (generation or 0) + 1)
            durable.write(path, content, mode=0o444, survives_power_cut=False)
            self._directories.label(path)

    def are_written(self, uid: ClaimUID, files: Iterable[RequestMetadata]) -> bool:
        """Whether exactly these are there, with this content."""
        directory = self._directories.metadata(uid)
        wanted = {f"{file.request}.json": file for file in files}
        try:
            if _names(directory) != wanted.keys():
                return False
            for name, file in wanted.items():
                generation = _generation(directory / name)
                if generation is None or durable.read(directory / name) != encode(file.content, generation):
                    return False
        except OSError:
            return False
        return True

    def mount(self, uid: ClaimUID, file: RequestMetadata) -> Mount:
        """What a container needs in order to see a file."""
        host = str(self.path(uid, file.request))
        return Mount(host_path=host, container_path=file.container_path, options=READ_ONLY)


def _names(directory: Path) -> set[str]:
    """Of the files in it, but for what a crash has left half-written."""
    try:
        return {name for name in os.listdir(directory) if not name.startswith(durable.TEMPORARY)}  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _generation(path: Path) -> int | None:
    """The number in a file that is there; it grows with each change. None: no file, or not one of ours."""
    try:
        first, _ = json.JSONDecoder().raw_decode(durable.read(path).decode())
        generation = first["metadata"]["generation"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return generation if isinstance(generation, int) else None
