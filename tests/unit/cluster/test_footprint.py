"""What is left of a cluster, where another one begins at that moment."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.cluster.footprint import Footprint
from tests.cluster.runs import Run

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


@contextmanager
def with_namespace_of_its_own() -> Iterator[int]:
    """The PID of a process that has one."""
    command = ["unshare", "--uts", "sh", "-c", "echo; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process.pid
        finally:
            process.kill()


def test_another_clusters_namespaces_are_not_taken_for_its_own(tmp_path: Path) -> None:
    """The kernel gives numbers of namespaces that are gone to the next ones."""
    with with_namespace_of_its_own() as pid:
        footprint = Footprint.of(Run("none", tmp_path / "tessera-none"), pid)
        assert any(f"(process {pid})" in trace for trace in footprint.left())
    with ExitStack() as others:
        for _ in range(20):
            others.enter_context(with_namespace_of_its_own())
        assert footprint.left() == []
