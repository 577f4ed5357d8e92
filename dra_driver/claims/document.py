"""Plan → CDI document. Pure: the driver's files, the device nodes and the library's place come as arguments.

The card, the limits and, only where something is enforced, the library stand at the device, so that a
container with a whole card runs without the library even if its neighbour in the same claim has a share.
Where the card comes by a document of the NVIDIA toolkit, ours has no nodes.

The driver's files are a document of their own, of which each container has a CDI id. For a runtime brings in
what is common to a document once, where it is first asked for, and of two mounts at one place the later
counts: so a shim, which has an id of its own behind the driver's, lies over the driver's libraries whatever
other claims a container has, in any order. The first id is the grant's: by it the kubelet names a device in a
Pod's status, where no name may stand twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

import msgspec

from cdi.driver_files import READ_ONLY
from cdi.driver_shim import Covered, shim_mounts
from cdi.model import ContainerEdits, Device, Mount, Spec
from cdi.toolkit import device_ids
from dra_driver.claims.base_edits import NativeEdits
from dra_driver.claims.grants import LIMITS, USAGE, GrantDirectories
from dra_driver.claims.library import (
    CONTAINER_DRIVER,
    CONTAINER_LIBRARY,
    CONTAINER_PRELOAD,
    InstalledLibrary,
)
from dra_driver.claims.plan import DriverFiles, Grant, Plan
from dra_driver.names import CDI_DRIVER_FILES, CDI_DRIVER_KIND, CDI_KIND

CONTAINER_GRANTS = PurePosixPath("/run/tessera/grants")
MARKER = "TESSERA_GRANTS"
_SHIM = "-shim"
_SHARED = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")


class _Edits(msgspec.Struct):
    nodes: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="deviceNodes")


class _Device(msgspec.Struct):
    edits: _Edits = msgspec.field(name="containerEdits")


class _Document(msgspec.Struct):
    devices: tuple[_Device, ...]
    edits: _Edits = msgspec.field(default_factory=_Edits, name="containerEdits")


def driver_document(common: ContainerEdits) -> Spec:
    """The driver's files. A device's edits can't be empty; what it says twice is the same."""
    return Spec(
        kind=CDI_DRIVER_KIND,
        devices=(Device(name=CDI_DRIVER_FILES, container_edits=ContainerEdits(env=common.env)),),
        container_edits=ContainerEdits(device_nodes=common.device_nodes, mounts=common.mounts),
    )


def cdi_ids(grant: Grant, files: DriverFiles) -> tuple[str, ...]:
    """What a container with a grant asks for, in this order: itself, what a shim covers, the shim.

    The shim's id is there without one, too: the kubelet remembers the ids, and a claim may get a shim later.
    """
    own = f"{CDI_KIND}={grant.name}"
    match files:
        case DriverFiles.TOOLKIT:
            return (own, *device_ids([grant.card.uuid]), f"{own}{_SHIM}")
        case DriverFiles.BESIDE:
            return (own, f"{CDI_DRIVER_KIND}={CDI_DRIVER_FILES}", f"{own}{_SHIM}")
        case DriverFiles.WITHIN:
            return (own, f"{own}{_SHIM}")


def files_said_by(document: bytes | None) -> DriverFiles:
    """Of a claim whose ledger entry is lost, by its document: its CDI ids, which the kubelet remembers, stay.

    Within, where that is lost too, or not understood: it does with any ids.
    """
    try:
        found = msgspec.json.decode(document or b"", type=_Document)
    except msgspec.MsgspecError:
        return DriverFiles.WITHIN
    brings_cards = all(device.edits.nodes for device in found.devices)
    return DriverFiles.BESIDE if brings_cards and not found.edits.nodes else DriverFiles.WITHIN


def cdi_document(
    plan: Plan,
    *,
    native: NativeEdits | None,
    library: InstalledLibrary | None,
    directories: GrantDirectories,
    metadata: Mapping[str, Mount],
    covered: tuple[Covered, ...] = (),
) -> Spec:
    """`native`: None where the toolkit's document has driver and cards. `metadata`: of each request, if any.

    `library` may be None only where no grant has limits. `covered`: where a grant needs a shim, the driver's
    libraries in whose place it comes.
    """
    # A runtime with CDI switched off drops our ids silently; a container without this variable shows it.
    marker = ContainerEdits(env=(f"{MARKER}={len(plan.grants)}",))
    # The kubelet gives a container all devices of a request, so one of them is enough to bring the file.
    first = {grant.request: grant.name for grant in reversed(plan.grants)}

    def card(grant: Grant) -> ContainerEdits:
        """Never empty, as a device's edits can't be; with the toolkit's, this may be all there is to say."""
        return marker if native is None else ContainerEdits(device_nodes=native.nodes[grant.card.uuid])

    devices = tuple(
        Device(
            name=grant.name,
            container_edits=(
                card(grant)
                + _limits_edits(plan, grant, library, directories)
                + _shim_edits(grant, library, covered)  # for who asks by the grant's id alone, as once was
                + _mounts([metadata[grant.request]] if _brings(grant, first, metadata) else [])
            ),
        )
        for grant in plan.grants
    )
    shims = tuple(
        Device(
            name=f"{grant.name}{_SHIM}", container_edits=card(grant) + _shim_edits(grant, library, covered)
        )
        for grant in plan.grants
    )
    common = _common_edits(plan, native, marker)
    return Spec(kind=CDI_KIND, devices=devices + shims, container_edits=common)


def _common_edits(plan: Plan, native: NativeEdits | None, marker: ContainerEdits) -> ContainerEdits:
    if native is None:
        return ContainerEdits()
    return native.common + marker if plan.files is DriverFiles.WITHIN else marker


def _brings(grant: Grant, first: Mapping[str, str], metadata: Mapping[str, Mount]) -> bool:
    return grant.request in metadata and first[grant.request] == grant.name


def _mounts(mounts: Iterable[Mount]) -> ContainerEdits:
    return ContainerEdits(mounts=tuple(mounts))


def _limits_edits(
    plan: Plan, grant: Grant, library: InstalledLibrary | None, directories: GrantDirectories
) -> ContainerEdits:
    if grant.limits is None:
        return ContainerEdits()
    if library is None:
        raise ValueError(f"grant {grant.name} has limits, but there is no library to keep them")
    host = directories.directory(plan.claim.uid, grant.name)
    container = CONTAINER_GRANTS / grant.name
    return _mounts(
        (
            Mount(host_path=str(host / LIMITS), container_path=str(container / LIMITS), options=READ_ONLY),
            Mount(host_path=str(host / USAGE), container_path=str(container / USAGE), options=_SHARED),
            Mount(host_path=str(library.library), container_path=CONTAINER_LIBRARY, options=READ_ONLY),
            Mount(host_path=str(library.preload), container_path=CONTAINER_PRELOAD, options=READ_ONLY),
        )
    )


def _shim_edits(
    grant: Grant, library: InstalledLibrary | None, covered: tuple[Covered, ...]
) -> ContainerEdits:
    """Over the driver's own libraries, which another document mounts, or this one for all its devices."""
    if not grant.needs_shim or library is None:
        return ContainerEdits()
    if not covered:
        raise ValueError(f"grant {grant.name} needs a shim, and there is nothing of the driver to cover")
    shims = {soname: str(path) for soname, path in library.shims.items()}
    return _mounts(shim_mounts(covered, shims, CONTAINER_DRIVER))
