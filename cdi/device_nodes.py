"""The NVIDIA driver's device nodes: of the driver itself, of a card, and of a MIG instance.

They come from the driver root's own /dev where it has them (a driver in a container, a test), else from ours.
A node that is missing is an error with advice, never a smaller document: a container without it starts, and
finds no card. Nodes for graphics (/dev/dri) are not handed out: this is about computing, and a share of a
card limits no renderer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from cdi.driver_root import DriverRoot, stamp
from cdi.errors import DriverNotReadyError
from cdi.model import DeviceNode

_REQUIRED = ("nvidiactl", "nvidia-uvm")
_OPTIONAL = ("nvidia-uvm-tools", "nvidia-modeset")
_CAPABILITIES = PurePosixPath("/proc/driver/nvidia/capabilities")
_MINOR = re.compile(r"^DeviceFileMinor:\s*(\d+)\s*$", re.MULTILINE | re.ASCII)


class DeviceNodes:
    """`devices`: our own /dev; `proc`: our own /proc, for roots that have none."""

    def __init__(self, root: DriverRoot, devices: Path, proc: Path) -> None:
        self._root = root
        self._devices = devices
        self._proc = proc
        places = (str(root.local(PurePosixPath("/dev"))), str(devices))
        self.directories = (*places, *(f"{place}/nvidia-caps" for place in places))
        """Where nodes of cards and of the driver come and go."""
        self._stamps: tuple[object, ...] = ()
        self._known: dict[str, DeviceNode | None] = {}

    def control(self) -> tuple[DeviceNode, ...]:
        """What every container needs. Raises DriverNotReadyError, which names all that is missing."""
        missing = [name for name in _REQUIRED if self._find(name) is None]
        if missing:
            raise DriverNotReadyError("; ".join(self._advice(name) for name in missing))
        found = (self._find(name) for name in (*_REQUIRED, *_OPTIONAL))
        return tuple(node for node in found if node is not None)

    def card(self, minor: int) -> DeviceNode:
        """The node of a card. Raises DriverNotReadyError."""
        return self._node(f"nvidia{minor}")

    def instance(self, minor: int, gpu_instance: int, compute_instance: int) -> tuple[DeviceNode, ...]:
        """The nodes of a MIG instance: its card's, and the rights to its two halves.

        Raises DriverNotReadyError.
        """
        below = f"gpu{minor}/mig/gi{gpu_instance}"
        rights = (f"{below}/access", f"{below}/ci{compute_instance}/access")
        return (self.card(minor), *self._capabilities(rights))

    def exists(self, path: PurePosixPath) -> bool:
        """Whether the host has a node at this absolute path, as far as we can see."""
        inside = self._root.inside(path)
        if inside is not None and self._root.resolve(inside) is not None:
            return True
        return path.is_relative_to("/dev") and (self._devices / path.relative_to("/dev")).exists()

    def _capabilities(self, rights: tuple[str, ...]) -> Iterator[DeviceNode]:
        for right in rights:
            text = self._capability(right)
            number = _MINOR.search(text) if text is not None else None
            if number is None:
                raise DriverNotReadyError(
                    f"{_CAPABILITIES / right} is missing or names no DeviceFileMinor: does the MIG instance"
                    " still exist?"
                )
            yield self._node(f"nvidia-caps/nvidia-cap{number[1]}")

    def _capability(self, right: str) -> str | None:
        inside = self._root.resolve(_CAPABILITIES / right)
        try:
            if inside is not None:
                return self._root.local(inside).read_text()
            return (self._proc / "driver/nvidia/capabilities" / right).read_text()
        except OSError:
            return None

    def _node(self, name: str) -> DeviceNode:
        found = self._find(name)
        if found is None:
            raise DriverNotReadyError(self._advice(name))
        return found

    def _find(self, name: str) -> DeviceNode | None:
        stamps = tuple(map(stamp, self.directories))
        if stamps != self._stamps:
            self._stamps, self._known = stamps, {}
        if name not in self._known:
            self._known[name] = self._look(name)
        return self._known[name]

    def _look(self, name: str) -> DeviceNode | None:
        path = f"/dev/{name}"
        inside = self._root.resolve(path)
        if inside is not None:
            host = self._root.on_host(inside)
            return DeviceNode(path=path, host_path=None if host == path else host)
        return DeviceNode(path=path) if (self._devices / name).exists() else None

    def _advice(self, name: str) -> str:
        return (
            f"/dev/{name} is missing, neither {self._root.mounted}/dev nor {self._devices} has it:"
            " load the kernel module (nvidia-modprobe -u -c 0 makes the nodes)"
        )
