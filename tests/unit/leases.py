"""A tenant's lease on a file: root in a container may take one on what is mounted there from the host."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def leased(path: Path, kind: int) -> Iterator[None]:
    """F_RDLCK: whoever opens the file for writing waits, F_WRLCK: whoever opens it at all."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # it is told that way, and does not mind
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, kind)
        except OSError as error:
            if error.errno == errno.EINVAL:
                pytest.skip("files have no leases here")
            raise
        yield
    finally:
        os.close(descriptor)
