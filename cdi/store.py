"""The directory in which container runtimes look for CDI documents, and our files in it.

One file per id, named `<vendor>-<class>_<id>.json` as the specification asks of transient documents. The
directory is usually a tmpfs: after a reboot nothing is there, and whoever owns the ids writes them again; so
nothing is synced to disk. Other people's files are never touched. Every method is safe to repeat; a crash
inside one leaves the old state or the new one.
"""

from __future__ import annotations

from pathlib import Path

from cdi import durable
from cdi.model import Spec


class Store:
    """Documents of one kind (`vendor/class`) in one directory, which is made when it is first written to."""

    def __init__(self, directory: Path, kind: str) -> None:
        self.directory = directory
        self.kind = kind
        self._prefix = kind.replace("/", "-") + "_"

    def path(self, identity: str) -> Path:
        """Where the document of an id is; an id is a file name's part, so it has no slash."""
        if not identity or "/" in identity or identity.startswith("."):
            raise ValueError(f"{identity!r} can't be part of a file name")
        return self.directory / f"{self._prefix}{identity}.json"

    def write(self, identity: str, spec: Spec) -> Path:
        """Stores or replaces a document. Raises OSError, and then the old one is still there."""
        if spec.kind != self.kind:
            raise ValueError(f"a document of kind {spec.kind} in the store of {self.kind}")
        path = self.path(identity)
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        durable.write(path, spec.to_json(), survives_power_cut=False)
        return path

    def read(self, identity: str) -> bytes | None:
        """The stored document, None where there is none."""
        try:
            return self.path(identity).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, identity: str) -> bool:
        """Removes a document; says whether it was there."""
        return durable.remove(self.path(identity), survives_power_cut=False)

    def identities(self) -> frozenset[str]:
        """The ids of all our documents."""
        names = (path.name for path in self.directory.glob(f"{self._prefix}*.json"))
        return frozenset(name.removeprefix(self._prefix).removesuffix(".json") for name in names)

    def sweep(self) -> int:
        """Removes half-written files of a crash; to be called before the first write."""
        return durable.sweep(self.directory)
