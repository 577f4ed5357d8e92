"""What is looked at once, at start: the ledger, what an earlier boot has left, the library.

Blocks; called in a thread, under the node's lock. A crash in here leaves nothing that the next start doesn't
find again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from cdi.store import Store
from dra_driver.claims import library
from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger import Ledger, Stored
from dra_driver.claims.selinux import Label
from dra_driver.conditions import Condition, Conditions
from dra_driver.names import ClaimUID
from dra_driver.node import Node
from interposer.abi import library_path, shim_paths

_log = logging.getLogger(__name__)


def take_stock(ledger: Ledger, directories: GrantDirectories, store: Store, conditions: Conditions) -> None:
    """Reads the ledger and removes what is left of an earlier boot. Raises OSError without a ledger."""
    loaded = ledger.load()
    earlier = set(loaded.earlier_boot)
    if loaded.is_other_boot:
        earlier |= directories.claims() | {ClaimUID(identity) for identity in store.identities()}
    problems = [not_counted(ledger.uncounted)] if ledger.uncounted else []
    for uid in earlier:
        try:
            store.remove(uid)
            directories.remove(uid)
            ledger.erase(uid)
        except OSError as error:
            problems.append(f"claim {uid} of an earlier boot can't be removed: {error}")
    if problems:
        conditions.fail(Condition.LEDGER, "; ".join(problems))
    else:
        dropped = f", {len(earlier)} of an earlier boot dropped" if earlier else ""
        conditions.hold(Condition.LEDGER, f"{len(ledger.entries)} claims at start{dropped}")
    store.sweep()


def not_counted(uncounted: Mapping[ClaimUID, Stored]) -> str:
    """What is to be said of entries that can't be read."""
    return "; ".join(
        f"{stored.path} can't be read ({stored.why}): what claim {uid} holds is not counted until it is made"
        " again from the API server, and no other claim is given what it may hold"
        for uid, stored in uncounted.items()
    )


def install_library(state_dir: Path, release: str, node: Node, conditions: Conditions, label: Label) -> None:
    """Puts this release's library where grants find it, and keeps it there as long as this process lives."""
    try:
        installed = library.install(library_path(), shim_paths(), release, state_dir, label)
        library.occupy(installed)
    except OSError as error:
        node.not_installed(f"the library can't be installed: {error}")
        conditions.fail(Condition.LIBRARY, f"the library can't be installed: {error}")
        return
    node.installed(installed)
    conditions.hold(Condition.LIBRARY, f"version {installed.version} is installed")


def tidy_library(state_dir: Path, node: Node, ledger: Ledger) -> None:
    """Removes the versions that nobody uses any more."""
    in_use = {entry.library for entry in ledger.entries.values() if entry.library}
    own = {node.library_version} if node.library_version else set()
    for version in library.remove_unused(state_dir, in_use | own):
        _log.info("library version %s, which no claim uses, is removed", version)
