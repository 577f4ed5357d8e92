"""The grant directories: `<run>/claims/<claim uid>/<grant>/{limits,usage}`, through the library's own ABI.

`limits` is ours (root, 0444), `usage` the tenant's (0666, in a directory that the tenant can't write). Files
that are there and valid are changed in place: containers have them mapped. Everything is safe to repeat.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from dra_driver.claims.plan import Grant
from dra_driver.claims.selinux import Label, leave
from dra_driver.names import ClaimUID
from interposer import abi

LIMITS = "limits"
USAGE = "usage"
METADATA = "metadata"  # no grant has this name: theirs start with the claim's UID


@dataclass(frozen=True)
class GrantDirectories:
    """All grants below one run directory (a tmpfs: a reboot empties it)."""

    run_dir: Path
    label: Label = leave

    def directory(self, uid: ClaimUID, grant: str) -> Path:
        """Where a grant's two files are."""
        return self._claim(uid) / grant

    def metadata(self, uid: ClaimUID) -> Path:
        """Where a claim's metadata files are (metadata.py); they go with its grants."""
        return self._claim(uid) / METADATA

    def make(self, uid: ClaimUID, grants: Iterable[Grant]) -> None:
        """Makes, or brings up to date, exactly the grants with limits. Raises OSError or abi.AbiError."""
        limited = {grant.name: grant.limits for grant in grants if grant.limits is not None}
        claim = self._claim(uid)
        for stale in _names(claim):
            if stale not in limited and stale != METADATA:
                shutil.rmtree(claim / stale)
        for name, limits in limited.items():
            directory = claim / name
            # Not through makedirs' mode: that is subject to the umask.
            os.makedirs(directory, exist_ok=True)  # noqa: PTH103 - half of pathlib's time
            for path in (claim, directory):
                os.chmod(path, 0o755)  # noqa: PTH101, S103 - others read, only root writes
            self.make_usage(directory / USAGE)
            abi.write_limits(directory / LIMITS, limits)
            self.label(directory / LIMITS)

    def make_usage(self, path: Path) -> None:
        """Makes the file, or mends what a tenant has damaged. Raises OSError or abi.AbiError."""
        abi.create_usage(path)
        self.label(path)

    def are_made(self, uid: ClaimUID, grants: Iterable[Grant]) -> bool:
        """Whether exactly the grants with limits are there, and can be read."""
        limited = {grant.name for grant in grants if grant.limits is not None}
        claim = self._claim(uid)
        try:
            there = {path.name for path in claim.iterdir()} if claim.is_dir() else set()
            if limited != there - {METADATA}:
                return False
            for name in limited:
                abi.read_limits(claim / name / LIMITS)
                abi.read_usage(claim / name / USAGE)
        except (OSError, abi.AbiError):
            return False
        return True

    def paths(self, uid: ClaimUID, grants: Iterable[Grant]) -> Iterator[str]:
        """All that is there of a claim with these grants, but what is the tenants'."""
        claim = str(self._claim(uid))
        yield claim
        for grant in grants:
            if grant.limits is not None:
                yield f"{claim}/{grant.name}"
                yield f"{claim}/{grant.name}/{LIMITS}"

    def claims(self) -> frozenset[ClaimUID]:
        """The claims that have a directory."""
        root = self.run_dir / "claims"
        return frozenset(ClaimUID(path.name) for path in root.glob("[!.]*"))

    def exists(self, uid: ClaimUID) -> bool:
        """Whether a claim has a directory."""
        return self._claim(uid).exists()

    def remove(self, uid: ClaimUID) -> bool:
        """Removes all grants of a claim; says whether there were any. Raises OSError."""
        try:
            shutil.rmtree(self._claim(uid))
        except FileNotFoundError:
            return False
        return True

    def read_usage(self, uid: ClaimUID, grant: str) -> abi.Usage:
        """Raises OSError or abi.AbiError."""
        return abi.read_usage(self.directory(uid, grant) / USAGE)

    def _claim(self, uid: ClaimUID) -> Path:
        return self.run_dir / "claims" / uid


def _names(directory: Path) -> list[str]:
    """Of what is in it; none where it is not there."""
    try:
        return os.listdir(directory)  # noqa: PTH208
    except (FileNotFoundError, NotADirectoryError):
        return []
