"""All that is on disk of a claim: its entry in the ledger, its grants, its metadata, its CDI document.

Blocks; called in a thread, under the claim's lock and the node's. Each step is safe to repeat, and a crash
between two leaves an entry in the ledger, from which `make` or `remove` starts over. Raises OSError, AbiError
and DriverNotReadyError.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

from cdi.model import ContainerEdits, Spec
from cdi.store import Store
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.claims.document import cdi_document, driver_document
from dra_driver.claims.grants import USAGE, GrantDirectories
from dra_driver.claims.handed import DriverEdits, DriverNeeds, Left, LeftFiles
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.ledger_file import Entry
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.metadata import MetadataFiles, RequestMetadata
from dra_driver.claims.plan import DriverFiles, Plan
from dra_driver.claims.steps import Step, Steps
from dra_driver.names import CDI_DRIVER_FILES, CDI_DRIVER_KIND, ClaimUID

_log = logging.getLogger(__name__)


class ClaimFiles:
    """Puts what the parts below know of a claim in order."""

    def __init__(
        self,
        *,
        base: BaseEdits,
        ledger: Ledger,
        directories: GrantDirectories,
        store: Store,
        metadata: MetadataFiles,
        steps: Steps,
    ) -> None:
        self._base = base
        self._ledger = ledger
        self._directories = directories
        self._store = store
        self._driver_store = Store(store.directory, CDI_DRIVER_KIND)
        self._driver_left: tuple[ContainerEdits, LeftFiles] | None = None
        self._metadata = metadata
        self._steps = steps

    def make(self, plan: Plan, first: Entry, entry: Entry, library: InstalledLibrary | None) -> Left:
        """In the order in which a crash does no harm. `first`: what the ledger says until all is done."""
        uid = plan.claim.uid
        with self._steps.step(Step.PLAN):
            needs = DriverNeeds.of(plan)
            edits = needs.edits(self._base)
            metadata = self._metadata.of(plan)
            spec = self._document(plan, library, edits, metadata)
        if not self._ledger.is_stored(uid, first):
            with self._steps.step(Step.LEDGER_PREPARING):
                self._ledger.write(first)
        with self._steps.step(Step.GRANTS):
            self._directories.make(uid, plan.grants)
            try:
                self._metadata.write(uid, metadata)
            except OSError as error:
                _log.warning("ResourceClaim %s: no metadata file for its containers: %s", plan.claim, error)
                spec = self._document(plan, library, edits)
        with self._steps.step(Step.CDI):
            if edits.native is not None:
                self._write_driver_files(edits.native.common)
            self._store.write(uid, spec)
        if not self._ledger.is_stored(uid, entry):
            with self._steps.step(Step.LEDGER_PREPARED):
                self._ledger.write(entry)
        files = LeftFiles.as_now(self._paths(plan))
        return Left(needs, edits, files, LeftFiles.as_now(self._usages(plan), is_tenants=True))

    def are_as_left(self, left: Left) -> bool:
        """Whether `make` would make all as it is. What a tenant has damaged of his own is mended."""
        if not left.is_so(self._base):
            return False
        for path in left.tenants.paths:
            self._directories.make_usage(Path(path))
        return True

    def remove(self, uid: ClaimUID) -> None:
        """Everything of a claim, the ledger's entry last."""
        with self._steps.step(Step.REMOVE_CDI):
            self._store.remove(uid)
        with self._steps.step(Step.REMOVE_GRANTS):
            self._directories.remove(uid)
        with self._steps.step(Step.REMOVE_LEDGER):
            self._ledger.erase(uid)

    def are_made(self, plan: Plan, library: InstalledLibrary | None) -> bool:
        """Whether all is as `make` would make it."""
        uid = plan.claim.uid
        metadata = self._metadata.of(plan)
        return (
            self._store.read(uid) == self.document(plan, library, metadata).to_json()
            and self._directories.are_made(uid, plan.grants)
            and self._metadata.are_written(uid, metadata)
            and self._has_driver_files(plan)
        )

    def document(
        self, plan: Plan, library: InstalledLibrary | None, metadata: Iterable[RequestMetadata] = ()
    ) -> Spec:
        return self._document(plan, library, DriverNeeds.of(plan).edits(self._base), metadata)

    def _document(
        self,
        plan: Plan,
        library: InstalledLibrary | None,
        edits: DriverEdits,
        metadata: Iterable[RequestMetadata] = (),
    ) -> Spec:
        return cdi_document(
            plan,
            native=edits.native,
            library=library,
            covered=edits.covered,
            directories=self._directories,
            metadata={file.request: self._metadata.mount(plan.claim.uid, file) for file in metadata},
        )

    def _has_driver_files(self, plan: Plan) -> bool:
        """Whether our document of the driver is as it should be, where containers may have its id."""
        if plan.files is DriverFiles.TOOLKIT:
            return True
        return self._driver_store.read(CDI_DRIVER_FILES) == driver_document(self._base.common()).to_json()

    def _write_driver_files(self, common: ContainerEdits) -> None:
        """Unless our document of the driver was left with these edits, and is as it was left."""
        path = str(self._driver_store.path(CDI_DRIVER_FILES))
        left = self._driver_left
        if left is not None and left[0] is common and left[1].are_so():
            return
        document = driver_document(common)
        if self._driver_store.read(CDI_DRIVER_FILES) != document.to_json():
            self._driver_store.write(CDI_DRIVER_FILES, document)
        self._driver_left = (common, LeftFiles.as_now([path]))

    def _paths(self, plan: Plan) -> Iterator[str]:
        """All of a claim, but what tenants write."""
        uid = plan.claim.uid
        yield str(self._ledger.path(uid))
        yield str(self._store.path(uid))
        if plan.files is not DriverFiles.TOOLKIT:
            yield str(self._driver_store.path(CDI_DRIVER_FILES))
        yield from self._directories.paths(uid, plan.grants)
        yield from self._metadata.paths(uid, plan)

    def _usages(self, plan: Plan) -> Iterator[str]:
        for grant in plan.grants:
            if grant.limits is not None:
                yield str(self._directories.directory(plan.claim.uid, grant.name) / USAGE)

    def read_document(self, uid: ClaimUID) -> bytes | None:
        """A claim's CDI document as it is now."""
        return self._store.read(uid)
