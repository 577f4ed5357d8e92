"""What this node has handed out: one small file per claim, written ahead of the work.

    (nothing) → preparing → prepared → (nothing)

`preparing` is written before anything else is made for a claim, and a file goes only after everything else of
the claim has gone, so whatever exists on disk has an entry. A crash between any two steps leaves an entry
that the next Prepare or Unprepare of the claim takes up; nothing is ever answered from an entry alone.

File format: `{"version": 1, "sha256": …, "entry": {…}}`; the checksum is over the entry's bytes as they stand
in the file, so fields that a later release adds don't disturb it, and are ignored. A corrupt file is set
aside under another name until its claim is gone; a file of a newer version is left alone. Entries of an
earlier boot describe containers, /run and CDI directories that are gone: they are dropped.

Reads and `hold`/`release` work on memory, on the event loop; `write`, `erase` and `load` block on the disk.
"""

from __future__ import annotations

import enum
import hashlib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from cdi import durable
from dra_driver.capacity import NOTHING, Amounts
from dra_driver.names import ClaimUID, DeviceName

VERSION = 1
_SET_ASIDE = ".corrupt"
_NAME = re.compile(rb'"namespace":"([a-z0-9-]+)","name":"([a-z0-9.-]+)"')  # as `encode` writes them
_log = logging.getLogger(__name__)


class State(enum.Enum):
    """How far a claim has got."""

    PREPARING = "preparing"
    PREPARED = "prepared"


class GrantEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What teardown, the over-commit check and the metrics need of a grant; amounts are what it holds."""

    name: str
    request: str
    device: DeviceName
    uuid: str
    memory: int
    cores: int
    shares: int
    share_id: str | None = None
    limited: bool = False

    @property
    def held(self) -> Amounts:
        return Amounts(self.memory, self.cores, self.shares)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One claim. `library`: the installed library's version that its containers use, if any."""

    uid: ClaimUID
    namespace: str
    name: str
    boot_id: str
    state: State
    grants: tuple[GrantEntry, ...] = ()
    library: str | None = None


class _File(msgspec.Struct, frozen=True):
    version: int
    sha256: str
    entry: msgspec.Raw


class CorruptLedgerError(Exception):
    """A file that is not what was written."""


class NewerLedgerError(Exception):
    """A file that a newer release has written."""


@dataclass(frozen=True)
class Loaded:
    """What `load` found besides the entries of this boot. Each is told to people."""

    earlier_boot: tuple[Entry, ...] = ()
    set_aside: tuple[Path, ...] = ()
    newer: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Stored:
    """A claim's file in the directory; `entry` is None where it can't be read, or is of a newer release.

    `name`: namespace and name as a corrupt file seems to say; to be believed only if the claim of that name
    has the UID.
    """

    entry: Entry | None
    name: tuple[str, str] | None = None


class Ledger:
    """The entries of this boot."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        self.directory = directory
        self.boot_id = boot_id
        self._entries: dict[ClaimUID, Entry] = {}

    @property
    def entries(self) -> Mapping[ClaimUID, Entry]:
        return MappingProxyType(self._entries)

    def held_by_others(self, uid: ClaimUID) -> dict[DeviceName, Amounts]:
        """What claims other than this one hold of each device, prepared or about to be."""
        held: dict[DeviceName, Amounts] = {}
        for entry in self._entries.values():
            if entry.uid != uid:
                for grant in entry.grants:
                    held[grant.device] = held.get(grant.device, NOTHING) + grant.held
        return held

    def hold(self, entry: Entry) -> None:
        """Counts an entry before it is on disk: of two Prepares at once only one gets the last share."""
        self._entries[entry.uid] = entry

    def release(self, uid: ClaimUID) -> None:
        """Counts an entry no more."""
        self._entries.pop(uid, None)

    def write(self, entry: Entry) -> None:
        """Stores or replaces a claim's file. Raises OSError, and then the old one is still there."""
        durable.write(self._path(entry.uid), encode(entry))

    def erase(self, uid: ClaimUID) -> bool:
        """Removes a claim's file, and what was set aside; says whether there was a file."""
        path = self._path(uid)
        durable.remove(path.with_suffix(_SET_ASIDE))
        return durable.remove(path)

    def load(self) -> Loaded:
        """Reads the directory, which is made where it is not there. Raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.sweep(self.directory)
        earlier, set_aside, newer = [], [], []
        for path in sorted(self.directory.glob("*.json")):
            try:
                entry = decode(path.read_bytes(), path.stem)
            except NewerLedgerError as error:
                _log.error("%s: %s", path, error)
                newer.append(path)
            except CorruptLedgerError as error:
                _log.error("%s is set aside: %s", path, error)
                set_aside.append(path.replace(path.with_suffix(_SET_ASIDE)))
            else:
                if entry.boot_id == self.boot_id:
                    self._entries[entry.uid] = entry
                else:
                    earlier.append(entry)
        return Loaded(tuple(earlier), tuple(set_aside), tuple(newer))

    def stored(self, uid: ClaimUID) -> Stored | None:
        """What the directory has of a claim, None for nothing. Raises OSError."""
        for path in (self._path(uid), self._path(uid).with_suffix(_SET_ASIDE)):
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            try:
                return Stored(decode(content, uid))
            except CorruptLedgerError:
                return Stored(None, _name_in(content))
            except NewerLedgerError:
                return Stored(None)
        return None

    def all_stored(self) -> dict[ClaimUID, Stored]:
        """What the directory has: another agent writes there too, while one replaces the other."""
        files = (path for path in self.directory.glob("[!.]*") if path.suffix in (".json", _SET_ASIDE))
        found = {uid: self.stored(uid) for uid in {ClaimUID(path.stem) for path in files}}
        return {uid: stored for uid, stored in found.items() if stored is not None}

    def _path(self, uid: ClaimUID) -> Path:
        return self.directory / f"{uid}.json"


def _name_in(content: bytes) -> tuple[str, str] | None:
    found = _NAME.search(content)
    return (found[1].decode(), found[2].decode()) if found is not None else None


def encode(entry: Entry) -> bytes:
    """The file's content."""
    inner = msgspec.json.encode(entry)
    return msgspec.json.encode(_File(VERSION, hashlib.sha256(inner).hexdigest(), msgspec.Raw(inner)))


def decode(content: bytes, uid: str) -> Entry:
    """The entry of the claim that the file's name says. Raises CorruptLedgerError or NewerLedgerError."""
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.MsgspecError as error:
        raise CorruptLedgerError(f"not a ledger file: {error}") from error
    if file.version > VERSION:
        raise NewerLedgerError(
            f"version {file.version}, this release knows {VERSION}: claim {uid} is not counted until"
            " the kubelet asks for it again"
        )
    if hashlib.sha256(bytes(file.entry)).hexdigest() != file.sha256:
        raise CorruptLedgerError("the checksum does not fit the content")
    try:
        entry = msgspec.json.decode(file.entry, type=Entry)
    except msgspec.MsgspecError as error:
        raise CorruptLedgerError(f"it can't be understood: {error}") from error
    if entry.uid != uid:
        raise CorruptLedgerError(f"it is about claim {entry.uid}")
    return entry
