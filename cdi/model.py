"""A CDI document: what the specification allows, checked, and written in the lowest version that suffices.

An older runtime refuses a whole file for a version or a field that it does not know, so `minimum_version` is
not a constant. The rules are those of the specification's SPEC.md and of its reference parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal

import msgspec

_VENDOR_OR_CLASS = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_PERMISSIONS = re.compile(r"none|[rwm]+")


class _Document(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, rename="camel"
):
    """Values are checked where they are made, too: __post_init__ raises ValueError."""


def _check_absolute(path: str) -> None:
    if not path.startswith("/"):
        raise ValueError(f"{path!r} is not an absolute path")


class DeviceNode(_Document, frozen=True):
    """A device node; what is left out (type, numbers, owner) the runtime takes from the host's node."""

    path: str
    host_path: str | None = None
    permissions: str | None = None

    def __post_init__(self) -> None:
        _check_absolute(self.path)
        if self.host_path is not None:
            _check_absolute(self.host_path)
        if self.permissions is not None and not _PERMISSIONS.fullmatch(self.permissions):
            raise ValueError(f"permissions {self.permissions!r} of {self.path} are none, or of r, w and m")


class Mount(_Document, frozen=True):
    """A bind mount; both paths are absolute, `host_path` as the container runtime sees it."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check_absolute(self.host_path)
        _check_absolute(self.container_path)


class ContainerEdits(_Document, frozen=True):
    """What is done to a container. The specification allows no empty edits in a device."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()

    def __post_init__(self) -> None:
        for text in self.env:
            if text.find("=") < 1:
                raise ValueError(f"{text!r} is not NAME=value")

    def __bool__(self) -> bool:
        return bool(self.env or self.device_nodes or self.mounts)

    def __add__(self, other: ContainerEdits) -> ContainerEdits:
        return ContainerEdits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            mounts=self.mounts + other.mounts,
        )


class Device(_Document, frozen=True):
    """One name that a container can ask for."""

    name: str
    container_edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _DEVICE.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no CDI device name: letters, digits and _ . : - in between")
        if not self.container_edits:
            raise ValueError(f"device {self.name!r} has no edits: runtimes refuse the whole file")


class Spec(_Document, frozen=True):
    """One document: devices of one kind, and the edits that come with any of them."""

    kind: str
    devices: tuple[Device, ...]
    container_edits: ContainerEdits = ContainerEdits()

    def __post_init__(self) -> None:
        if not self.devices:
            raise ValueError(f"a document of kind {self.kind!r} has at least one device")
        vendor, slash, name = self.kind.partition("/")
        if not slash or not _VENDOR_OR_CLASS.fullmatch(vendor) or not _VENDOR_OR_CLASS.fullmatch(name):
            raise ValueError(f"{self.kind!r} is no CDI kind: vendor/class, each starting with a letter")
        names = [device.name for device in self.devices]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"device {twice[0]!r} is there twice")

    def edits(self) -> Iterator[ContainerEdits]:
        """All edits of the document."""
        yield self.container_edits
        yield from (device.container_edits for device in self.devices)

    @property
    def cdi_version(self) -> Literal["0.3.0", "0.5.0", "0.6.0"]:
        """The lowest version of the specification that has everything this document uses."""
        if "." in self.kind.partition("/")[2]:
            return "0.6.0"
        starts_with_digit = any(device.name[0].isdigit() for device in self.devices)
        if starts_with_digit or any(node.host_path for edits in self.edits() for node in edits.device_nodes):
            return "0.5.0"
        return "0.3.0"

    def to_json(self) -> bytes:
        """The document as it is stored; nothing in it that is empty."""
        document: dict[str, Any] = {"cdiVersion": self.cdi_version, **msgspec.to_builtins(self)}
        if not self.container_edits:
            document.pop("containerEdits", None)
        return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"
