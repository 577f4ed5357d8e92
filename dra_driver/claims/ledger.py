"""What this node has handed out: one small file per claim, written ahead of the work.

    (nothing) → preparing → prepared → (nothing)

`preparing` is written before anything else is made for a claim, and a file goes only after everything else of
the claim has gone, so whatever exists on disk has an entry. A crash between any two steps leaves an entry
that the next Prepare or Unprepare of the claim takes up; nothing is ever answered from an entry alone.

Files are renamed into place, so a process that dies leaves the old one or the new one. They are not synced:
a power cut can tear them, but it also ends the boot whose containers, /run and CDI directory the entries are
about. So that a torn file can be told from damage, `<state>/boot_id` says which boot the directory is of. It
is synced before the first entry of a boot is written; what another boot has left is dropped unread.

While one agent replaces another both write here, each under the node's lock (see node_lock.py); `catch_up`
brings memory to what the directory says. An entry that can't be read is of a claim that may well run: its
file stays, under another name where it is corrupt, and the claim is `uncounted` until it is made again. A
newer release's file is counted as far as it can be understood, and never written over by what it is equal to.

`catch_up` is called while nobody works on a claim. Else reads and `hold`/`release` are the event loop's;
`write`, `erase` and `load` block on the disk and are about one claim, or at start.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from cdi import durable
from dra_driver.cards.capacity import NOTHING, Amounts
from dra_driver.claims.ledger_file import CorruptLedgerError, Entry, NewerLedgerError, decode, encode, name_in
from dra_driver.names import ClaimUID, DeviceName

_SET_ASIDE = ".corrupt"
_DAMAGED = (errno.EIO, errno.EBADMSG, errno.EUCLEAN)  # it will not be read tomorrow either
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stored:
    """A claim's file. `entry` is None where it can't be read; `why` says why, or that it is newer.

    `name`: namespace and name as a file that can't be read seems to say; to be believed only if the claim of
    that name has the UID.
    """

    path: Path
    entry: Entry | None
    why: str = ""
    name: tuple[str, str] | None = None
    is_newer: bool = False


@dataclass(frozen=True)
class Loaded:
    """What `load` found besides the entries of this boot."""

    earlier_boot: tuple[ClaimUID, ...] = ()
    is_other_boot: bool = False


@dataclass(frozen=True)
class _Stamp:
    """Another one after each write of the file, whoever writes."""

    inode: int
    changed_ns: int
    size: int


@dataclass(frozen=True)
class _Seen:
    """The directory at one moment. `read`: what is different from what was known; `lost`: files that are not
    there any more, `gone`: claims of which nothing is.
    """

    stamps: dict[ClaimUID, _Stamp]
    read: dict[ClaimUID, Stored]
    lost: tuple[ClaimUID, ...]
    gone: tuple[ClaimUID, ...]


class Ledger:
    """The entries of this boot. `has_files`: whether anything but its entry is there of a claim; blocks."""

    def __init__(
        self,
        directory: Path,
        boot_id: str,
        *,
        has_files: Callable[[ClaimUID], bool] = lambda _uid: False,
    ) -> None:
        self.directory = directory
        self.boot_id = boot_id
        self._boot_file = directory.with_name("boot_id")
        self._has_files = has_files
        self._entries: dict[ClaimUID, Entry] = {}
        self._stored: dict[ClaimUID, Stored] = {}
        self._unreadable: dict[ClaimUID, Stored] = {}
        self._totals: dict[DeviceName, Amounts] = {}
        self._stamps: dict[ClaimUID, _Stamp] = {}
        self._left: _Stamp | None = None
        self._is_loaded = self._is_marked = False

    @property
    def entries(self) -> Mapping[ClaimUID, Entry]:
        return MappingProxyType(self._entries)

    @property
    def stored(self) -> Mapping[ClaimUID, Stored]:
        """What the directory has, as of the last look and what we wrote since."""
        return MappingProxyType(self._stored)

    @property
    def unreadable(self) -> Mapping[ClaimUID, Stored]:
        """Those of `stored` that say nothing."""
        return MappingProxyType(self._unreadable)

    @property
    def uncounted(self) -> dict[ClaimUID, Stored]:
        """Files of claims that hold nobody knows what: neither the file nor memory says it."""
        unreadable = self._unreadable.copy()  # threads write it
        return {uid: stored for uid, stored in unreadable.items() if uid not in self._entries}

    def is_stored(self, uid: ClaimUID, entry: Entry) -> bool:
        """Whether the claim's file says just this."""
        stored = self._stored.get(uid)
        return stored is not None and stored.entry == entry

    def has_lost(self, uid: ClaimUID) -> bool:
        """Whether the rest of a claim is there, and its entry is not. Blocks on the disk."""
        return uid not in self._entries and uid not in self._stored and self._has_files(uid)

    def held_by_others(self, uid: ClaimUID) -> dict[DeviceName, Amounts]:
        """What claims other than this one hold of each device, prepared or about to be."""
        held = dict(self._totals)
        entry = self._entries.get(uid)
        for grant in entry.grants if entry is not None else ():
            held[grant.device] = _less(held[grant.device], grant.held)
        return {device: amounts for device, amounts in held.items() if amounts != NOTHING}

    def hold(self, entry: Entry) -> None:
        """Counts an entry before it is on disk: of two Prepares at once only one gets the last share."""
        self.release(entry.uid)
        self._entries[entry.uid] = entry
        for grant in entry.grants:
            self._totals[grant.device] = self._totals.get(grant.device, NOTHING) + grant.held

    def release(self, uid: ClaimUID) -> None:
        """Counts an entry no more."""
        entry = self._entries.pop(uid, None)
        for grant in entry.grants if entry is not None else ():
            self._totals[grant.device] = _less(self._totals[grant.device], grant.held)

    def write(self, entry: Entry) -> None:
        """Stores or replaces a claim's file. Raises OSError, and then the old one is still there."""
        if not self._is_marked:
            self._mark()
        path = self.path(entry.uid)
        if not self._finish(path, entry):
            durable.write(path, encode(entry), survives_power_cut=False)
        self._stored[entry.uid] = Stored(path, entry)
        self._stamps[entry.uid] = _stamp(path)
        self._unreadable.pop(entry.uid, None)

    def _finish(self, path: Path, entry: Entry) -> bool:
        """Whether only the state had to be changed, and that is done."""
        stored = self._stored.get(entry.uid)
        if stored is None or stored.path != path or stored.entry is None or stored.is_newer:
            return False
        if msgspec.structs.replace(stored.entry, state=entry.state) != entry:
            return False
        try:
            return durable.overwrite(path, encode(entry))
        except FileNotFoundError:
            return False

    def erase(self, uid: ClaimUID) -> bool:
        """Removes a claim's file, and what was set aside; says whether there was a file."""
        path = self.path(uid)
        durable.remove(path.with_suffix(_SET_ASIDE), survives_power_cut=False)
        was_there = durable.remove(path, survives_power_cut=False)
        self._stored.pop(uid, None)
        self._unreadable.pop(uid, None)
        return was_there

    def load(self) -> Loaded:
        """Reads the directory, which is made where it is not there. Raises OSError."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        durable.sweep(self.directory)
        marked = self._marked_boot()
        self._is_marked = marked == self.boot_id
        is_other_boot = marked is not None and not self._is_marked
        earlier = []
        for uid, paths in self._files().items():
            stored = self._read(uid, paths)
            if is_other_boot or self._is_earlier(stored):
                earlier.append(uid)
            elif stored is not None:
                self._learn(uid, self._set_aside(stored))
        self._is_loaded = True
        return Loaded(tuple(earlier), is_other_boot)

    # --- the directory, which others write to as well -------------------------------------------------------

    def is_current(self) -> bool:
        """Whether the directory is as we left it, as far as one look at it can tell."""
        return self._left is not None and self._left == self._directory_stamp()

    def leave(self) -> None:
        """Remembers how we leave the directory."""
        self._left = self._directory_stamp()

    async def catch_up(self) -> None:
        """Counts what the directory has now. Raises OSError. Costs a look at each file."""
        if self._is_loaded:
            self._apply(await asyncio.to_thread(self._look))

    def _look(self) -> _Seen:
        files = self._files()
        stamps = {uid: _stamp(next(iter(paths.values()))) for uid, paths in files.items()}
        read = {
            uid: stored
            for uid, paths in files.items()
            if stamps[uid] != self._stamps.get(uid) and (stored := self._read(uid, paths)) is not None
        }
        lost = tuple(uid for uid in self._entries.keys() | self._stored.keys() if uid not in files)
        # An agent removes the entry last: where the rest of its claim is there, no agent has removed it.
        return _Seen(stamps, read, lost, tuple(uid for uid in lost if not self._has_files(uid)))

    def _apply(self, seen: _Seen) -> None:
        for uid, stored in seen.read.items():
            self._learn(uid, stored)
        for uid in seen.lost:
            self._stored.pop(uid, None)
            self._unreadable.pop(uid, None)
        for uid in seen.gone:
            self.release(uid)
        self._stamps = seen.stamps

    def _learn(self, uid: ClaimUID, stored: Stored) -> None:
        self._stored[uid] = stored
        self._unreadable.pop(uid, None)
        if stored.entry is None:
            self._unreadable[uid] = stored
        elif not self._is_earlier(stored):
            self.hold(stored.entry)

    def _files(self) -> dict[ClaimUID, dict[str, Path]]:
        """UID → suffix → path, the one that counts first."""
        found: dict[ClaimUID, dict[str, Path]] = {}
        for suffix in (".json", _SET_ASIDE):
            for path in self.directory.glob(f"[!.]*{suffix}"):
                found.setdefault(ClaimUID(path.stem), {})[suffix] = path
        return found

    def _read(self, uid: ClaimUID, paths: Mapping[str, Path]) -> Stored | None:
        for path in paths.values():
            try:
                content = path.read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno not in _DAMAGED:
                    raise
                return Stored(path, None, f"the disk says: {error.strerror}")
            try:
                return Stored(path, decode(content, uid))
            except CorruptLedgerError as error:
                return Stored(path, None, str(error), name_in(content))
            except NewerLedgerError as error:
                return Stored(path, error.entry, str(error), name_in(content), is_newer=True)
        return None

    def _set_aside(self, stored: Stored) -> Stored:
        """Another name, so that nothing takes it for an entry; on a disk that is full it keeps its own."""
        if stored.entry is not None:
            return stored
        path = stored.path
        if not stored.is_newer:
            with suppress(OSError):
                path = stored.path.replace(stored.path.with_suffix(_SET_ASIDE))
        _log.error("%s can't be counted: %s", path, stored.why)
        return Stored(path, None, stored.why, stored.name, stored.is_newer)

    def _is_earlier(self, stored: Stored | None) -> bool:
        return stored is not None and stored.entry is not None and stored.entry.boot_id != self.boot_id

    def _marked_boot(self) -> str | None:
        try:
            return self._boot_file.read_text(errors="replace").strip()
        except FileNotFoundError:
            return None

    def _mark(self) -> None:
        durable.write(self._boot_file, f"{self.boot_id}\n".encode())
        self._is_marked = True

    def _directory_stamp(self) -> _Stamp | None:
        try:
            return _stamp(self.directory)
        except OSError:
            return None

    def path(self, uid: ClaimUID) -> Path:
        """Of a claim's file."""
        return self.directory / f"{uid}.json"


def _stamp(path: Path) -> _Stamp:
    found = path.stat()
    return _Stamp(found.st_ino, found.st_mtime_ns, found.st_size)


def _less(amounts: Amounts, taken: Amounts) -> Amounts:
    return Amounts(amounts.memory - taken.memory, amounts.cores - taken.cores, amounts.shares - taken.shares)
