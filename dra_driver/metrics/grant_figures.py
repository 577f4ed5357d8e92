"""What each claim may use and uses of its cards: gauges for Prometheus, read when somebody asks.

Usage files are read in the scraper's thread; 1000 of them take some 80 ms. A file that can't be read leaves
its series out and harms no other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dra_driver.claims.grants import GrantDirectories
from dra_driver.claims.ledger_file import Entry, GrantEntry
from dra_driver.metrics.exposition import Table
from interposer.abi import AbiError

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class GrantUse:
    """One grant of a claim; `used`: bytes, None where nobody knows."""

    entry: Entry
    grant: GrantEntry
    used: int | None


def uses(entries: Iterable[Entry], directories: GrantDirectories) -> Iterator[GrantUse]:
    """Of all grants; where no library limits them, nobody counts. Blocks."""
    for entry in entries:
        for grant in entry.grants:
            yield GrantUse(entry, grant, _used(entry, grant, directories) if grant.limited else None)


def tables(found: Iterable[GrantUse]) -> tuple[Table, ...]:
    """Two shares of one card in one claim are one series: the claim's."""
    limits: dict[tuple[str, ...], float] = {}
    cores: dict[tuple[str, ...], float] = {}
    used: dict[tuple[str, ...], float] = {}
    for one in found:
        if not one.grant.limited:
            continue
        key = (one.entry.name, one.entry.namespace, one.grant.uuid)
        limits[key] = limits.get(key, 0) + one.grant.memory
        cores[key] = cores.get(key, 0) + one.grant.cores
        if one.used is not None:
            used[key] = used.get(key, 0) + one.used
    labels = ("claim", "namespace", "uuid")
    return (
        Table(
            "tessera_grant_memory_limit_bytes", "Memory a claim may use of a card.", labels, limits.items()
        ),
        Table(
            "tessera_grant_cores_limit",
            "Percent of a card's compute that a claim is guaranteed; 0: what is left over.",
            labels,
            cores.items(),
        ),
        Table("tessera_grant_memory_used_bytes", "Memory a claim uses of a card.", labels, used.items()),
    )


def _used(entry: Entry, grant: GrantEntry, directories: GrantDirectories) -> int | None:
    try:
        return directories.read_usage(entry.uid, grant.name).memory_bytes
    except (OSError, AbiError) as error:
        _log.debug("usage of %s: %s", grant.name, error)
        return None
