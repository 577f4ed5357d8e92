"""The NVIDIA driver's files, found below a driver root, as CDI edits that need no hook binary (`native`).

Libraries are found as nvidia-ctk finds them: the file behind libcuda.so.* carries the driver's version, and
every `*.so.<version>` beside it belongs to the driver. Instead of links and an ldconfig run inside the
container, each is mounted under its soname into the loader's default directory of Debian and of Red Hat.
Device nodes come from the tree's own /dev where it has them (a driver in a container, a test), else from
ours. A node without /dev/nvidiactl or /dev/nvidia-uvm can't compute: that is an error here, not a smaller
document.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdi import elf
from cdi.driver_root import DriverRoot
from cdi.model import ContainerEdits, DeviceNode, Mount

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "noexec", "rbind", "rprivate")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_BINARY_DIRECTORIES = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/bin", "/sbin", "/opt/bin")
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")
_REQUIRED_NODES = ("nvidiactl", "nvidia-uvm")
_OPTIONAL_NODES = ("nvidia-uvm-tools", "nvidia-modeset")
_VERSIONED = re.compile(r"\.so\.(?P<version>\d+\.\d+(?:\.\d+)*)$", re.ASCII)


class DriverNotReadyError(Exception):
    """The driver root has no usable driver (yet); the message says what is missing, and where."""


@dataclass(frozen=True)
class Library:
    """`inside`: its path below the driver root. `soname`: what programs load it by."""

    inside: PurePosixPath
    soname: str


@dataclass(frozen=True)
class DriverFiles:
    """What a container gets besides its card. `version` is the driver's, as its file names have it."""

    version: str
    edits: ContainerEdits
    libraries: tuple[Library, ...]


class Driver:
    """One installed driver. `devices`: our own /dev, for drivers whose tree has none."""

    def __init__(
        self, root: DriverRoot, *, devices: Path = Path("/dev"), machine: str = platform.machine()
    ) -> None:
        self._root = root
        self._devices = devices
        self._machine = machine
        self._found: tuple[object, DriverFiles] | None = None

    def files(self) -> DriverFiles:
        """The edits common to all cards; found again when the library directory or libcuda changes.

        Raises DriverNotReadyError.
        """
        libcuda, version = self._libcuda()
        nodes = tuple(self._control_nodes())
        directory = libcuda.parent
        state = (
            libcuda,
            nodes,
            *(self._root.local(path).stat().st_mtime_ns for path in (directory, libcuda)),
        )
        if self._found is None or self._found[0] != state:
            libraries = tuple(self._libraries(directory, version))
            mounts = (
                *_library_mounts(self._root, libraries, self._machine),
                *self._binary_mounts(),
                *self._firmware_mounts(version),
                *self._socket_mounts(),
            )
            edits = ContainerEdits(
                # The legacy NVIDIA runtime, where it is the default, must not add cards of its own.
                env=("NVIDIA_VISIBLE_DEVICES=void",),
                device_nodes=nodes,
                mounts=mounts,
            )
            self._found = (state, DriverFiles(version, edits, libraries))
        return self._found[1]

    def card(self, minor: int) -> DeviceNode:
        """The device node of a card. Raises DriverNotReadyError."""
        name = f"nvidia{minor}"
        node = self._node(name)
        if node is None:
            raise DriverNotReadyError(self._missing_node(name))
        return node

    def library(self, soname: str) -> Path | None:
        """Where we see one of the driver's libraries, found by its soname; None where it is not."""
        for directory in self._library_directories():
            found = self._root.resolve(directory / soname)
            if found is not None and elf.read(self._root.local(found)) is not None:
                return self._root.local(found)
        return None

    def _libcuda(self) -> tuple[PurePosixPath, str]:
        for directory in self._library_directories():
            for path in sorted(self._root.local(directory).glob("libcuda.so.*")):
                found = self._root.resolve(directory / path.name)
                version = _VERSIONED.search(found.name) if found is not None else None
                if found is None or version is None:
                    continue
                library = elf.read(self._root.local(found))
                if library is not None and library.machine == self._machine:
                    return found, version["version"]
        raise DriverNotReadyError(
            f"no libcuda.so.<version> for {self._machine} below {self._root.mounted}"
            f" (the host's {self._root.host}): is the NVIDIA driver installed there?"
        )

    def _library_directories(self) -> Iterator[PurePosixPath]:
        triple = f"{self._machine}-linux-gnu"
        bases = ("/", "/usr/lib64", f"/usr/lib/{triple}", "/lib64", f"/lib/{triple}", "/usr/lib")
        seen = set()
        for base in (*bases, *(f"{base}/nvidia/current" for base in bases[1:5])):
            found = self._root.resolve(base)
            if found is not None and found not in seen and self._root.local(found).is_dir():
                seen.add(found)
                yield found

    def _libraries(self, directory: PurePosixPath, version: str) -> Iterator[Library]:
        sonames = set()
        for name in sorted(path.name for path in self._root.local(directory).glob(f"*.so.{version}")):
            found = self._root.resolve(directory / name)
            soname = None if found is None else elf.soname(self._root.local(found), self._machine)
            if found is not None and soname is not None and soname not in sonames:
                sonames.add(soname)
                yield Library(found, soname)

    def _binary_mounts(self) -> Iterator[Mount]:
        for name in _BINARIES:
            for directory in _BINARY_DIRECTORIES:
                found = self._root.resolve(f"{directory}/{name}")
                if found is not None:
                    yield self._mount(found, f"/usr/bin/{name}", READ_ONLY)
                    break

    def _firmware_mounts(self, version: str) -> Iterator[Mount]:
        directory = self._root.resolve(f"/lib/firmware/nvidia/{version}")
        names = sorted(self._root.local(directory).glob("gsp*.bin")) if directory is not None else []
        for path in names:
            found = self._root.resolve(f"/lib/firmware/nvidia/{version}/{path.name}")
            if found is not None:
                yield self._mount(found, f"/lib/firmware/nvidia/{version}/{path.name}", READ_ONLY)

    def _socket_mounts(self) -> Iterator[Mount]:
        for path in _SOCKETS:
            found = self._root.resolve(path)
            if found is not None:
                yield self._mount(found, path, _SOCKET)

    def _mount(self, inside: PurePosixPath, container_path: str, options: tuple[str, ...]) -> Mount:
        return Mount(host_path=self._root.on_host(inside), container_path=container_path, options=options)

    def _control_nodes(self) -> Iterable[DeviceNode]:
        missing = [name for name in _REQUIRED_NODES if self._node(name) is None]
        if missing:
            raise DriverNotReadyError("; ".join(self._missing_node(name) for name in missing))
        nodes = (self._node(name) for name in (*_REQUIRED_NODES, *_OPTIONAL_NODES))
        return [node for node in nodes if node is not None]

    def _node(self, name: str) -> DeviceNode | None:
        path = f"/dev/{name}"
        inside = self._root.resolve(path)
        if inside is not None:
            host = self._root.on_host(inside)
            return DeviceNode(path=path, host_path=None if host == path else host)
        return DeviceNode(path=path) if (self._devices / name).exists() else None

    def _missing_node(self, name: str) -> str:
        return (
            f"/dev/{name} is missing, neither {self._root.mounted}/dev nor {self._devices} has it:"
            " load the kernel module (nvidia-modprobe -u -c 0 makes the nodes)"
        )


def _library_mounts(root: DriverRoot, libraries: Iterable[Library], machine: str) -> Iterator[Mount]:
    directories = (f"/usr/lib/{machine}-linux-gnu", "/usr/lib64")
    for library in libraries:
        # Some programs load libcuda.so, the name that only development packages have.
        names = (library.soname, "libcuda.so") if library.soname == "libcuda.so.1" else (library.soname,)
        for directory in directories:
            for name in names:
                yield Mount(
                    host_path=root.on_host(library.inside),
                    container_path=f"{directory}/{name}",
                    options=READ_ONLY,
                )
