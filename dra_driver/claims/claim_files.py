"""All that is on disk of a claim: its entry in the ledger, its grants, its metadata, its CDI document.

Blocks; called in a thread, under the claim's lock and the node's. Each step is safe to repeat, and a crash
between two leaves an entry in the ledger, from which `make` or `remove` starts over. Raises OSError, AbiError
and DriverNotReadyError.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from cdi.model import Spec
from cdi.store import Store
from dra_driver.claims.base_edits import BaseEdits
from dra_driver.claims.document import cdi_document
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger import Ledger
from dra_driver.claims.ledger_file import Entry
from dra_driver.claims.library import InstalledLibrary
from dra_driver.claims.metadata import MetadataFiles, RequestMetadata
from dra_driver.claims.plan import Plan
from dra_driver.claims.steps import Step, Steps
from dra_driver.names import ClaimUID

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
        self._metadata = metadata
        self._steps = steps

    def make(self, plan: Plan, first: Entry, entry: Entry, library: InstalledLibrary | None) -> None:
        """In the order in which a crash does no harm. `first`: what the ledger says until all is done."""
        uid = plan.claim.uid
        with self._steps.step(Step.PLAN):
            metadata = self._metadata.of(plan)
            spec = self.document(plan, library, metadata)
        if not self._ledger.is_stored(uid, first):
            with self._steps.step(Step.LEDGER_PREPARING):
                self._ledger.write(first)
        with self._steps.step(Step.GRANTS):
            self._directories.make(uid, plan.grants)
            try:
                self._metadata.write(uid, metadata)
            except OSError as error:
                _log.warning("ResourceClaim %s: no metadata file for its containers: %s", plan.claim, error)
                spec = self.document(plan, library)
        with self._steps.step(Step.CDI):
            self._store.write(uid, spec)
        if not self._ledger.is_stored(uid, entry):
            with self._steps.step(Step.LEDGER_PREPARED):
                self._ledger.write(entry)

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
        )

    def document(
        self, plan: Plan, library: InstalledLibrary | None, metadata: Iterable[RequestMetadata] = ()
    ) -> Spec:
        shimmed = [grant.card for grant in plan.grants if grant.needs_shim]
        return cdi_document(
            plan,
            native=None if plan.toolkit else self._base.native(grant.card for grant in plan.grants),
            library=library,
            covered=self._base.covered(shimmed, toolkit=plan.toolkit) if shimmed else (),
            directories=self._directories,
            metadata={file.request: self._metadata.mount(plan.claim.uid, file) for file in metadata},
        )

    def read_document(self, uid: ClaimUID) -> bytes | None:
        """A claim's CDI document as it is now."""
        return self._store.read(uid)
