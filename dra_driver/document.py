"""Plan → CDI document. Pure: the driver's files, the device nodes and the library's place come as arguments.

What every container of the claim needs stands once for the document; the card, the limits and, only where
something is enforced, the library stand at the device, so that a container with a whole card runs without the
library even if its neighbour in the same claim has a share.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath

from cdi.driver_files import READ_ONLY
from cdi.model import ContainerEdits, Device, DeviceNode, Mount, Spec
from dra_driver.grants import LIMITS, USAGE, GrantDirectories
from dra_driver.library import CONTAINER_LIBRARY, CONTAINER_PRELOAD, InstalledLibrary
from dra_driver.names import CDI_KIND
from dra_driver.plan import Grant, Plan

CONTAINER_GRANTS = PurePosixPath("/run/tessera/grants")
MARKER = "TESSERA_GRANTS"
_SHARED = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")


def cdi_document(
    plan: Plan,
    *,
    driver: ContainerEdits,
    nodes: Mapping[str, DeviceNode],
    library: InstalledLibrary | None,
    directories: GrantDirectories,
) -> Spec:
    """`nodes`: by card UUID. `library` may be None only where no grant has limits."""
    # A runtime with CDI switched off drops our ids silently; a container without this variable shows it.
    marker = ContainerEdits(env=(f"{MARKER}={len(plan.grants)}",))
    return Spec(
        kind=CDI_KIND,
        devices=tuple(
            Device(name=grant.name, container_edits=_grant_edits(plan, grant, nodes, library, directories))
            for grant in plan.grants
        ),
        container_edits=driver + marker,
    )


def _grant_edits(
    plan: Plan,
    grant: Grant,
    nodes: Mapping[str, DeviceNode],
    library: InstalledLibrary | None,
    directories: GrantDirectories,
) -> ContainerEdits:
    card = ContainerEdits(device_nodes=(nodes[grant.card.uuid],))
    if grant.limits is None:
        return card
    if library is None:
        raise ValueError(f"grant {grant.name} has limits, but there is no library to keep them")
    host = directories.directory(plan.claim.uid, grant.name)
    container = CONTAINER_GRANTS / grant.name
    return card + ContainerEdits(
        mounts=(
            Mount(host_path=str(host / LIMITS), container_path=str(container / LIMITS), options=READ_ONLY),
            Mount(host_path=str(host / USAGE), container_path=str(container / USAGE), options=_SHARED),
            Mount(host_path=str(library.library), container_path=CONTAINER_LIBRARY, options=READ_ONLY),
            Mount(host_path=str(library.preload), container_path=CONTAINER_PRELOAD, options=READ_ONLY),
        )
    )
