"""The NVIDIA driver's files, found below a driver root, as CDI edits that need no hook binary (`native`).

Instead of links and an ldconfig run inside the container, each library is mounted under its soname into the
loader's default directory of Debian and of Red Hat. For computing: libraries of the driver's own version,
its tools, its firmware, the sockets of its daemons. Not handed out: what draws (Vulkan and EGL settings, X
modules, /dev/dri), and the pipe of an MPS daemon, through which tenants would reach each other.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from cdi.device_nodes import DeviceNodes
from cdi.driver_libraries import DriverLibraries, Library
from cdi.driver_root import DriverRoot, stamp
from cdi.errors import DriverNotReadyError
from cdi.model import ContainerEdits, DeviceNode, Mount

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "noexec", "rbind", "rprivate")
_BINARIES = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_BINARY_DIRECTORIES = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/local/bin",
    "/usr/local/sbin",
    "/bin",
    "/sbin",
    "/opt/bin",
    "/run/current-system/sw/bin",  # NixOS
)
_FIRMWARE_DIRECTORIES = ("/lib/firmware", "/usr/lib/firmware", "/run/current-system/firmware")
_SOCKETS = ("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket")


@dataclass(frozen=True)
class DriverFiles:
    """What a container gets besides its card. `version` is the driver's, as its file names have it."""

    version: str
    edits: ContainerEdits
    libraries: tuple[Library, ...]


class Driver:
    """One installed driver. `devices`, `proc`: our own /dev and /proc, for drivers whose tree has none."""

    def __init__(
        self,
        root: DriverRoot,
        *,
        devices: Path = Path("/dev"),
        proc: Path = Path("/proc"),
        machine: str = platform.machine(),
    ) -> None:
        self.root = root
        self.nodes = DeviceNodes(root, devices, proc)
        self._machine = machine
        self._libraries = DriverLibraries(root, machine)
        self._found: tuple[object, DriverFiles] | None = None
        self._watched: dict[str, object] = {}

    def remembered(self) -> DriverFiles:
        """`files`, as found last, while directories and libcuda are the ones that they were.

        What that can't tell (a link further up that leads elsewhere) the next `files` finds.
        """
        if self._found is not None and all(stamp(path) == seen for path, seen in self._watched.items()):
            return self._found[1]
        return self.files()

    def files(self) -> DriverFiles:
        """The edits common to all cards; found again when the library directory or libcuda changes.

        Raises DriverNotReadyError.
        """
        libcuda, version = self._libcuda()
        nodes = self.nodes.control()
        state = (
            libcuda,
            nodes,
            *(self.root.local(path).stat().st_mtime_ns for path in (libcuda.parent, libcuda)),
        )
        if self._found is None or self._found[0] != state:
            libraries = self._libraries.beside(libcuda, version)
            mounts = (
                *self._library_mounts(libraries),
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
        local = (self.root.local(path) for path in (libcuda, libcuda.parent))
        watched = (*map(str, local), *self.nodes.directories)
        self._watched = {path: stamp(path) for path in watched}
        return self._found[1]

    def card(self, minor: int) -> DeviceNode:
        """The device node of a card. Raises DriverNotReadyError."""
        return self.nodes.card(minor)

    def library(self, soname: str) -> Path | None:
        """Where we see one of the driver's libraries, found by its soname; None where it is not."""
        return self._libraries.named(soname)

    def _libcuda(self) -> tuple[PurePosixPath, str]:
        found = self._libraries.libcuda()
        if found is None:
            raise DriverNotReadyError(
                f"no libcuda.so.<version> for {self._machine} below {self.root.mounted}"
                f" (the host's {self.root.host}): is the NVIDIA driver installed there?"
            )
        return found

    def _library_mounts(self, libraries: Iterable[Library]) -> Iterator[Mount]:
        directories = (f"/usr/lib/{self._machine}-linux-gnu", "/usr/lib64")
        for library in libraries:
            # Some programs load libcuda.so, the name that only development packages have.
            names = (library.name, "libcuda.so") if library.name == "libcuda.so.1" else (library.name,)
            for directory in directories:
                for name in names:
                    yield self._mount(library.inside, f"{directory}/{name}", READ_ONLY)

    def _binary_mounts(self) -> Iterator[Mount]:
        for name in _BINARIES:
            for directory in _BINARY_DIRECTORIES:
                found = self.root.resolve(f"{directory}/{name}")
                if found is not None:
                    yield self._mount(found, f"/usr/bin/{name}", READ_ONLY)
                    break

    def _firmware_mounts(self, version: str) -> Iterator[Mount]:
        for base in _FIRMWARE_DIRECTORIES:
            directory = self.root.resolve(f"{base}/nvidia/{version}")
            if directory is None:
                continue
            for path in sorted(self.root.local(directory).glob("gsp*.bin")):
                found = self.root.resolve(directory / path.name)
                if found is not None:
                    yield self._mount(found, f"/lib/firmware/nvidia/{version}/{path.name}", READ_ONLY)
            return

    def _socket_mounts(self) -> Iterator[Mount]:
        for path in _SOCKETS:
            found = self.root.resolve(path)
            if found is not None:
                yield self._mount(found, path, _SOCKET)

    def _mount(self, inside: PurePosixPath, container_path: str, options: tuple[str, ...]) -> Mount:
        return Mount(host_path=self.root.on_host(inside), container_path=container_path, options=options)
