"""What one file of the ledger holds, as bytes.

`{"version": 1, "sha256": …, "entry": {…}}`; the checksum is over the entry's bytes as they stand in the file,
so fields that a later release adds don't disturb it, and are ignored.

The version is raised only when an older release would misread the rest. Even then a file keeps `uid`,
`boot_id` and, of each grant, `device`, `memory`, `cores` and `shares`, under these names and with this
meaning: so a release that was gone back to still counts what a newer one has handed out. tests/unit has a
file of each version.
"""

from __future__ import annotations

import enum
import hashlib
import re

import msgspec

from dra_driver.cards.capacity import Amounts
from dra_driver.names import ClaimUID, DeviceName

VERSION = 1
_NAME = re.compile(rb'"namespace":"([a-z0-9-]+)","name":"([a-z0-9.-]+)"')  # as `encode` writes them


class State(enum.Enum):
    """How far a claim has got."""

    PREPARING = "preparing"
    PREPARED = "prepared"


_LONGEST_STATE = max(len(state.value) for state in State)


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
    toolkit: bool = False
    """Its containers have a second CDI id, of the NVIDIA toolkit's documents."""
    beside: bool = False
    """They have a second CDI id of our own, of the document of the driver's files."""
    shim: bool = False
    """The library also takes the place of the driver's libraries."""

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

    @property
    def amounts(self) -> frozenset[tuple[DeviceName, Amounts, str | None]]:
        """What it holds of what, whatever else is said about it."""
        return frozenset((grant.device, grant.held, grant.share_id) for grant in self.grants)


class CorruptLedgerError(Exception):
    """A file that is not what was written."""


class NewerLedgerError(Exception):
    """A file that a newer release has written. `entry`: what can be understood of it, if that is enough."""

    def __init__(self, version: int, entry: Entry | None) -> None:
        super().__init__(f"version {version} is of a newer release, this one knows {VERSION}")
        self.entry = entry


class _File(msgspec.Struct, frozen=True):
    version: int
    sha256: str
    entry: msgspec.Raw


class _NewerGrant(msgspec.Struct, frozen=True):
    device: DeviceName
    memory: int
    cores: int
    shares: int
    name: str = ""
    request: str = ""
    uuid: str = ""
    share_id: str | None = None
    limited: bool = False


class _NewerEntry(msgspec.Struct, frozen=True):
    uid: ClaimUID
    boot_id: str
    grants: tuple[_NewerGrant, ...]
    namespace: str = ""
    name: str = ""
    library: str | None = None


def encode(entry: Entry) -> bytes:
    """The file's content; as long in one state as in another, so that it can be changed where it lies."""
    inner = msgspec.json.encode(entry)
    outer = msgspec.json.encode(_File(VERSION, hashlib.sha256(inner).hexdigest(), msgspec.Raw(inner)))
    return outer + b" " * (_LONGEST_STATE - len(entry.state.value))


def decode(content: bytes, uid: str) -> Entry:
    """The entry of the claim that the file's name says. Raises CorruptLedgerError or NewerLedgerError."""
    try:
        file = msgspec.json.decode(content, type=_File)
    except msgspec.MsgspecError as error:
        raise CorruptLedgerError(f"not a ledger file: {error}") from error
    if file.version > VERSION:
        raise NewerLedgerError(file.version, _understood(file, uid))
    if not _is_as_written(file):
        raise CorruptLedgerError("the checksum does not fit the content")
    try:
        entry = msgspec.json.decode(file.entry, type=Entry)
    except msgspec.MsgspecError as error:
        raise CorruptLedgerError(f"it can't be understood: {error}") from error
    if entry.uid != uid:
        raise CorruptLedgerError(f"it is about claim {entry.uid}")
    return entry


def name_in(content: bytes) -> tuple[str, str] | None:
    """Namespace and name as a file that can't be read seems to say."""
    found = _NAME.search(content)
    return (found[1].decode(), found[2].decode()) if found is not None else None


def _is_as_written(file: _File) -> bool:
    return hashlib.sha256(bytes(file.entry)).hexdigest() == file.sha256


def _understood(file: _File, uid: str) -> Entry | None:
    try:
        newer = msgspec.json.decode(file.entry, type=_NewerEntry)
    except msgspec.MsgspecError:
        return None
    if newer.uid != uid or not _is_as_written(file):
        return None
    return Entry(
        uid=newer.uid,
        namespace=newer.namespace,
        name=newer.name,
        boot_id=newer.boot_id,
        state=State.PREPARED,
        grants=tuple(GrantEntry(**msgspec.structs.asdict(grant)) for grant in newer.grants),
        library=newer.library,
    )
