"""Packages of Debian releases and machines other than this one, unpacked and not installed.

They come from the mirror that this machine's own apt uses, checked against Debian's keys, and are kept in the
cache (tests/cluster/cache.py). A mirror that has the release no more, or a machine without apt, is an
UnavailableError with the reason.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.cluster import cache

KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
OLD = "bullseye"
"""Its glibc (2.31) has libdl and libpthread apart from libc, as all before 2.34."""
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class UnavailableError(Exception):
    """Can't be had on this machine."""


def output(*words: str, directory: Path | None = None) -> str:
    try:
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, timeout=300, check=False)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(str(error)) from error
    if done.returncode != 0:
        raise UnavailableError(f"{words[0]}: {done.stderr.strip()[-500:]}")
    return done.stdout


def mirror() -> str:
    """The address that this machine's apt has Debian from."""
    listed = output("apt-get", "indextargets", "--format", "$(ORIGIN) $(COMPONENT) $(CODENAME) $(REPO_URI)")
    for line in listed.splitlines():
        origin, component, codename, address = line.split()
        if (origin, component) == ("Debian", "main") and codename.isalpha():
            return address
    raise UnavailableError("no Debian release is among the sources of apt")


def unpacked(package: str, machine: str, release: str = OLD) -> Path:
    """The directory that stands for / where this package's files are."""
    architecture = MACHINES[machine]

    def build(directory: Path) -> None:
        for name in ("lists/partial", "archives/partial", "root"):
            (directory / name).mkdir(parents=True)
        sources = directory / "sources.list"
        sources.write_text(f"deb [signed-by={KEYS}] {mirror()} {release} main\n")
        options = {
            "APT::Architecture": architecture,
            "APT::Architectures::": architecture,
            "APT::Sandbox::User": "root",
            "Dir::Etc::sourcelist": str(sources),
            "Dir::Etc::sourceparts": "-",
            "Dir::State::lists": str(directory / "lists"),
            "Dir::State::status": "/dev/null",
            "Dir::Cache": str(directory),
        }
        apt = [
            "apt-get",
            "-qq",
            *(word for name, value in options.items() for word in ("-o", f"{name}={value}")),
        ]
        output(*apt, "update")
        output(*apt, "download", package, directory=directory)
        (archive,) = directory.glob("*.deb")
        output("dpkg-deb", "-x", str(archive), str(directory / "root"))
        archive.unlink()
        shutil.rmtree(directory / "lists")

    return cache.entry(f"debian-{package}", cache.key(release, architecture), build) / "root"


def emulator() -> Path:
    """Runs programs of aarch64 on x86_64."""
    if found := shutil.which("qemu-aarch64-static"):
        return Path(found)
    return unpacked("qemu-user-static", "x86_64", "bookworm") / "usr" / "bin" / "qemu-aarch64-static"
