"""Labels on the files that containers have mounted, on nodes with SELinux.

There a container's processes may open little of the host but what is labelled for containers. A library that
they can't read is no error to the loader, which goes on without it, and without limits. So our files get the
label that a runtime gives a volume which all containers share (`:z`). The NVIDIA driver's are where the
system has labelled them for everybody.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

ATTRIBUTE = "security.selinux"
FOR_CONTAINERS = b"system_u:object_r:container_file_t:s0"  # of no category: any container's

Label = Callable[[Path], None]
"""Makes a file one that containers can use. Raises OSError: without its label nobody should rely on it."""


def leave(_path: Path) -> None:
    """Where there is nothing to do."""


def label_for_containers(path: Path) -> None:
    """One that has its label is left alone, also where nothing can be written. Raises OSError."""
    with suppress(OSError):
        if os.getxattr(path, ATTRIBUTE).rstrip(b"\0") == FOR_CONTAINERS:
            return
    os.setxattr(path, ATTRIBUTE, FOR_CONTAINERS)


def label_of(sys_root: Path) -> Label:
    """The kernel makes this directory where SELinux is switched on, and only there."""
    return label_for_containers if (sys_root / "fs/selinux").is_dir() else leave
