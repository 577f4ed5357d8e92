"""Plan → CDI document. Pure: the driver's files, the device nodes and the library's place come as arguments.

What every container of the claim needs stands once for the document; the card, the limits and, only where
something is enforced, the library stand at the device, so that a container with a whole card runs without the
library even if its neighbour in the same claim has a share. Where the card comes by a document of the NVIDIA
toolkit, ours has no driver files and no nodes; what is left to say is limits and library, and the marker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from cdi.driver_files import READ_ONLY
from cdi.driver_shim import Covered, shim_mounts
from cdi.model import ContainerEdits, Device, Mount, Spec
from dra_driver.claims.base_edits import NativeEdits
from dra_driver.claims.grants import LIMITS, USAGE, GrantDirectories
from dra_driver.claims.library import (
    CONTAINER_DRIVER,
    CONTAINER_LIBRARY,
    CONTAINER_PRELOAD,
    InstalledLibrary,
)
from dra_driver.claims.plan import Grant, Plan
from dra_driver.names import CDI_KIND

CONTAINER_GRANTS = PurePosixPath("/run/tessera/grants")
MARKER = "TESSERA_GRANTS"
_SHARED = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")


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
    return Spec(
        kind=CDI_KIND,
        devices=tuple(
            Device(
                name=grant.name,
                container_edits=(
                    # A device's edits can't be empty; with the toolkit's, this may be all there is to say.
                    (marker if native is None else ContainerEdits(device_nodes=native.nodes[grant.card.uuid]))
                    + _limits_edits(plan, grant, library, directories)
                    + _shim_edits(grant, library, covered)
                    + _mounts([metadata[grant.request]] if _brings(grant, first, metadata) else [])
                ),
            )
            for grant in plan.grants
        ),
        container_edits=ContainerEdits() if native is None else native.common + marker,
    )


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
    """Over the driver's own libraries, which other edits mount: of two mounts at one place the later counts,
    and a document's common edits come before those of its devices."""
    if not grant.needs_shim or library is None:
        return ContainerEdits()
    if not covered:
        raise ValueError(f"grant {grant.name} needs a shim, and there is nothing of the driver to cover")
    shims = {soname: str(path) for soname, path in library.shims.items()}
    return _mounts(shim_mounts(covered, shims, CONTAINER_DRIVER))
