"""A directory tree in which an NVIDIA driver is installed, and that somebody else sees under another name.

The agent's Pod has the host's driver root mounted at `mounted`; the container runtime, which resolves the
paths of a CDI document, sees the same tree at `host`. Paths are looked up through the one and written down as
the other. A link inside the tree, absolute ones included, means a place inside the tree: it never leads out
of it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_MAX_LINKS = 40  # as Linux itself


@dataclass(frozen=True)
class DriverRoot:
    """`host`: where the runtime sees the tree. `mounted`: where we see it."""

    host: PurePosixPath
    mounted: Path

    def resolve(self, inside: str | PurePosixPath) -> PurePosixPath | None:
        """The absolute path, seen from the tree's root, of what `inside` leads to; None where nothing is."""
        todo = list(reversed(PurePosixPath("/", inside).parts[1:]))
        done = PurePosixPath("/")
        links = 0
        while todo:
            part = todo.pop()
            if part == "..":
                done = done.parent
                continue
            here = self._at(done / part)
            if here.is_symlink():
                links += 1
                if links > _MAX_LINKS:
                    return None
                target = PurePosixPath(here.readlink())
                if target.is_absolute():
                    done = PurePosixPath("/")
                todo.extend(reversed([step for step in target.parts if step != "/"]))
                continue
            if not here.exists():
                return None
            done = done / part
        return done

    def local(self, inside: PurePosixPath) -> Path:
        """Where we see a path that `resolve` answered."""
        return self._at(inside)

    def on_host(self, inside: PurePosixPath) -> str:
        """Where the container runtime sees a path that `resolve` answered."""
        return str(self.host / inside.relative_to("/"))

    def inside(self, on_host: str | PurePosixPath) -> PurePosixPath | None:
        """The path below the root of what the runtime sees at `on_host`; None for a place outside of it."""
        path = PurePosixPath(on_host)
        return PurePosixPath("/") / path.relative_to(self.host) if path.is_relative_to(self.host) else None

    def _at(self, inside: PurePosixPath) -> Path:
        return self.mounted / inside.relative_to("/")


def stamp(path: str) -> tuple[int, int] | None:
    """Another one when a directory gets or loses an entry, or a file is another; None where nothing is."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a third of pathlib's time
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns
