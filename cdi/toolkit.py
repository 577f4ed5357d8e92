"""The NVIDIA container toolkit's own CDI documents, and whether they can be relied on (`toolkit`).

Where nvidia-ctk has described a node's cards, a container can be given the card by a second CDI id,
`nvidia.com/gpu=<uuid>`, and with it the driver files as NVIDIA hands them out, hooks included. But such a
document is written once and then gets old: of a driver that was replaced, of cards that have other numbers
since the last boot, or of none at all. So it counts only if it names cards by UUID, mounts the libcuda that
is installed, and its device nodes exist. Read without our own model: it uses more of CDI than we write.

`judge` is pure but for looking whether files exist; `Toolkit` reads directories, again when they change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from cdi.device_nodes import DeviceNodes
from cdi.driver_root import DriverRoot
from cdi.driver_shim import SONAMES, is_named
from cdi.model import Mount

KIND = "nvidia.com/gpu"
_LIBCUDA = re.compile(r"libcuda\.so\.(?P<version>\d+\.\d+(?:\.\d+)*)", re.ASCII)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SUFFIXES = (".json", ".yaml", ".yml")
_AGAIN = "make it anew (nvidia-ctk cdi generate)"


@dataclass(frozen=True)
class Judged:
    """One document. `devices`: UUID → paths of its device nodes; `problem`: why none of them can be used.

    `libraries`: its mounts of those libraries that a shim covers.
    """

    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    problem: str | None = None
    libraries: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class Found:
    """All documents of a node. `problems`: a sentence for each document or device that can't be used.

    `libraries`: by UUID the mounts that come with it of those libraries that a shim covers.
    """

    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    problems: tuple[str, ...] = ()
    libraries: Mapping[str, tuple[Mount, ...]] = field(default_factory=dict)

    def has(self, uuid: str, minor: int) -> bool:
        """Whether a card, or an instance on the card of that minor, can be asked for by its UUID."""
        return f"/dev/nvidia{minor}" in self.devices.get(uuid, ())


def judge(document: Any, version: str, root: DriverRoot, exists: Callable[[PurePosixPath], bool]) -> Judged:
    """`version`: the installed driver's. `exists`: whether the host has a device node at a path."""
    try:
        problem = _problem_of_files(document, version, root)
        if problem is not None:
            return Judged(problem=problem)
        libraries = tuple(_libraries(document))
        named = {
            str(device["name"]): _nodes(device)
            for device in document["devices"]
            if _UUID.fullmatch(str(device["name"]))
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return Judged(problem=f"it can't be understood ({error!r})")
    if not named:
        return Judged(problem="it names no card by UUID: generate it with --device-name-strategy uuid")
    missing = sorted(
        {host for nodes in named.values() for _, host in nodes if not exists(PurePosixPath(host))}
    )
    if missing:
        return Judged(problem=f"there is no {', '.join(missing)}: {_AGAIN}")
    without = sorted(uuid for uuid, nodes in named.items() if not nodes)
    if without:
        return Judged(problem=f"it gives {', '.join(without)} no device node: {_AGAIN}")
    paths = {uuid: frozenset(path for path, _ in nodes) for uuid, nodes in named.items()}
    return Judged(paths, libraries=libraries)


def _libraries(document: Mapping[str, Any]) -> Iterator[Mount]:
    """Also those of single devices: what is covered where it is not mounted does no harm."""
    all_edits = [document, *document["devices"]]
    for edits in all_edits:
        for mount in (edits.get("containerEdits") or {}).get("mounts") or ():
            path = str(mount["containerPath"])
            if any(is_named(path, soname) for soname in SONAMES):
                yield Mount(host_path=str(mount["hostPath"]), container_path=path)


def _nodes(device: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Path in the container and on the host of each node."""
    nodes = (device.get("containerEdits") or {}).get("deviceNodes") or ()
    return tuple((str(node["path"]), str(node.get("hostPath") or node["path"])) for node in nodes)


def _problem_of_files(document: Mapping[str, Any], version: str, root: DriverRoot) -> str | None:
    mounts = (document.get("containerEdits") or {}).get("mounts") or ()
    for mount in mounts:
        path = PurePosixPath(str(mount["hostPath"]))
        found = _LIBCUDA.fullmatch(path.name)
        if found is None:
            continue
        if found["version"] != version:
            return f"it is for driver {found['version']}, and {version} is installed: {_AGAIN}"
        inside = root.inside(path)
        if inside is None:
            return f"it takes the driver from {path.parent}, which is outside of the driver root {root.host}"
        if root.resolve(inside) is None:
            return f"there is no {path}: {_AGAIN}"
        return None
    return f"it mounts no libcuda.so.{version}: {_AGAIN}"


class Toolkit:
    """`directories`: where documents are, as we see them, those that count more last.

    `ours`: what the names of our own documents start with; there may be hundreds, and none is of interest.
    """

    def __init__(
        self, directories: Sequence[Path], *, root: DriverRoot, nodes: DeviceNodes, ours: str
    ) -> None:
        self._directories = directories
        self._root = root
        self._nodes = nodes
        self._ours = ours
        self._read: dict[Path, tuple[object, Any]] = {}

    def look(self, version: str) -> Found:
        """What can be used now, with the driver of that version. Blocks on the disk; raises nothing."""
        devices: dict[str, frozenset[str]] = {}
        files: list[Path] = []
        problems: list[str] = []
        libraries: dict[str, tuple[Mount, ...]] = {}
        read, self._read = self._read, {}
        for directory in self._directories:
            here: dict[str, Path] = {}
            for path, document in self._documents(directory, read, problems):
                judged = judge(document, version, self._root, self._nodes.exists)
                if judged.problem is not None:
                    problems.append(f"{path} is not used: {judged.problem}")
                    continue
                files.append(path)
                for uuid, nodes in judged.devices.items():
                    if uuid in here:
                        # The specification: a name twice in one directory is no name at all.
                        problems.append(f"{here[uuid]} and {path} both name {uuid}: remove one of them")
                        devices.pop(uuid, None)
                        continue
                    here[uuid] = path
                    devices[uuid] = nodes
                    libraries[uuid] = judged.libraries
        return Found(devices, tuple(files), tuple(problems), libraries)

    def _documents(
        self, directory: Path, read: Mapping[Path, tuple[object, Any]], problems: list[str]
    ) -> Iterator[tuple[Path, Any]]:
        try:
            paths = sorted(path for path in directory.iterdir() if self._is_of_interest(path))
        except OSError:
            return  # most nodes have one of the two directories
        for path in paths:
            try:
                state = path.stat()
                stamp = (state.st_ino, state.st_mtime_ns, state.st_size)
                known = read.get(path)
                self._read[path] = known if known and known[0] == stamp else (stamp, _decoded(path))
            except (OSError, ValueError) as error:
                problems.append(f"{path} can't be read: {error}")
                continue
            document = self._read[path][1]
            if document is not None:
                yield path, document

    def _is_of_interest(self, path: Path) -> bool:
        return path.suffix in _SUFFIXES and not path.name.startswith((".", self._ours))


def _decoded(path: Path) -> Any:
    """The document, or None for one of another kind. Raises OSError, ValueError."""
    content = path.read_bytes()
    if KIND.encode() not in content:
        return None
    if path.suffix == ".json":
        document = json.loads(content)
    else:
        import yaml  # noqa: PLC0415 - 3 MiB that most nodes don't need

        try:
            document = yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
        except yaml.YAMLError as error:
            raise ValueError(f"it is not YAML: {error}") from error
    return document if isinstance(document, dict) and document.get("kind") == KIND else None


def device_ids(uuids: Iterable[str]) -> tuple[str, ...]:
    """What a container asks for."""
    return tuple(f"{KIND}={uuid}" for uuid in uuids)
