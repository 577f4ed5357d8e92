"""What the harness needs of the distribution: installed with the machine's own apt sources, only where it is
missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache
from tests.cluster.errors import MissingError
from tests.cluster.progress import step

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Need:
    """One thing the machine must have: a command on the system's path, or a header, or a file by its path."""

    package: str
    command: str = ""
    file: str = ""

    def met(self) -> bool:
        if self.command:
            return shutil.which(self.command, path=PATH) is not None
        return Path("/usr/include", self.file).exists()


RUN = (
    Need("util-linux", command="unshare"),
    Need("util-linux", command="nsenter"),
    Need("mount", command="mount"),
    Need("iproute2", command="ip"),
    Need("iptables", command="iptables"),
    Need("nftables", command="nft"),
    Need("conntrack", command="conntrack"),
    # Programs in the cluster's PATH come from the machine; runc is linked against the machine's libseccomp.
    Need("libseccomp-dev", file="seccomp.h"),
)
BUILD = (
    Need("gcc", command="gcc"),
    Need("libc6-dev", file="stdio.h"),
    Need("pkg-config", command="pkg-config"),
)
IMAGES = (
    Need("busybox-static", command="busybox"),
    Need("debootstrap", command="debootstrap"),
    Need("debian-archive-keyring", file="/usr/share/keyrings/debian-archive-keyring.gpg"),
)


def require(needs: tuple[Need, ...]) -> None:
    """Installs what is missing. Raises MissingError in one line where that can't be done."""
    if os.geteuid() != 0:
        raise MissingError("the test cluster needs root: namespaces, mounts and cgroups of its own")
    missing = sorted({need.package for need in needs if not need.met()})
    if not missing:
        return
    names = " ".join(missing)
    apt = shutil.which("apt-get", path=PATH)
    if apt is None:
        raise MissingError(f"please install (Debian's names): {names}; there is no apt-get here to do it")
    with cache.locked("apt"), step(f"installing {names} (apt)"):
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = [apt, "-qq", "install", "-y", "--no-install-recommends", *missing]
        for command in ([apt, "-qq", "update"], install):
            run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            # A foreign source that doesn't answer makes `update` fail, though Debian's own lists are there.
            if run.returncode != 0 and command is install:
                reason = (run.stderr.strip() or run.stdout.strip()).splitlines()[-1:]
                raise MissingError(f"apt can't install {names}: {' '.join(reason)}")
    still = sorted({need.package for need in needs if not need.met()})
    if still:
        raise MissingError(f"apt installed {' '.join(still)}, and still something of it isn't found")
