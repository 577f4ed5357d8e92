"""Scripts to look around in a cluster that stays up: `.cluster/kubectl`, `.cluster/helm`, `.cluster/node`.

`.cluster/current` names the run they belong to. Each says so where that cluster has ended.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster import configuration, runs
from tests.cluster.node import Node, driver_environment

PROGRAMS = ("kubectl", "helm")
NODE = "node"


def write(run: runs.Run, nodes: Sequence[Node], environment: Mapping[str, str]) -> None:
    """Writes all of them; `environment` holds what kubectl and helm need (KUBE…, HELM_…)."""
    runs.CURRENT.unlink(missing_ok=True)
    runs.CURRENT.symlink_to(run.directory.relative_to(runs.FOLDER))
    binaries = nodes[0].binaries
    pids = [node.namespaces.pid for node in nodes]
    wanted = {key: value for key, value in environment.items() if key.startswith(("KUBE", "HELM_"))}
    exports = "\n".join(f"export {key}={shlex.quote(value)}" for key, value in wanted.items())
    for name in PROGRAMS:
        program = shlex.quote(str(binaries[name]))
        enter = f'exec nsenter --target={pids[0]} --net -- {program} "$@"'
        _write(name, f"{_guard(pids[0], run)}\n{exports}\n{enter}\n")
    variables = driver_environment(binaries.search_path)
    driver = "\n".join(f"export {key}={shlex.quote(value)}" for key, value in variables.items())
    cases = "\n".join(f"  {index}) pid={pid} ;;" for index, pid in enumerate(pids))
    node = f"""{_guard(pids[0], run)}
node=0
case "${{1:-}}" in [0-9]) node=$1; shift ;; esac
case $node in
{cases}
  *) echo "there is no node $node" >&2; exit 1 ;;
esac
[ $# -gt 0 ] || set -- bash
{driver}
export CONTAINERD_ADDRESS={configuration.CONTAINERD_SOCKET} CONTAINERD_NAMESPACE=k8s.io
exec nsenter --target=$pid --mount --pid --net --uts -- "$@"
"""
    _write(NODE, node)


def remove() -> None:
    for name in (*PROGRAMS, NODE):
        (runs.FOLDER / name).unlink(missing_ok=True)
    runs.CURRENT.unlink(missing_ok=True)


def _guard(pid: int, run: runs.Run) -> str:
    started = runs.Process.of(pid).started
    # Field 22 of stat is the start time: the number may be another process's by now.
    check = f"""[ "$(sed 's/.*) //' /proc/{pid}/stat 2>/dev/null | cut -d' ' -f20)" = {started} ]"""
    return f"""#!/bin/sh
# Written for run {run.id} of the test cluster.
{check} || {{ echo "the cluster has ended; make cluster-up starts one" >&2; exit 1; }}"""


def _write(name: str, text: str) -> None:
    path: Path = runs.FOLDER / name
    path.write_text(text)
    path.chmod(0o755)
