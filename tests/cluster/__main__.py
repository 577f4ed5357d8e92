"""The cluster as commands, `python -m tests.cluster up | down | …` (make cluster-up, make cluster-down)."""

from __future__ import annotations

import argparse
import sys

from tests.cluster import binaries, images, packages, runs, scripts
from tests.cluster.cluster import Cluster
from tests.cluster.errors import ClusterError
from tests.cluster.progress import say, step


def main(arguments: list[str]) -> int:
    options = _parse(arguments)
    try:
        if options.command == "up":
            return up(options)
        if options.command == "down":
            return down()
        if options.command == "status":
            return status()
        if options.command == "prepare":
            prepare()
        elif options.command == "binaries":
            for name, path in sorted(binaries.obtain(options.version).programs.items()):
                print(f"{name}\t{path}")
        else:
            for image in [*images.plain(), *images.project()]:
                print(image.name, sum(layer.size for layer in image.layers), sep="\t")
    except ClusterError as error:
        print(f"tessera: {error}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up_parser = commands.add_parser("up", help="start a cluster and leave it running")
    up_parser.add_argument("--nodes", type=int, default=1)
    up_parser.add_argument("--no-chart", action="store_true", help="don't install Tessera")
    up_parser.add_argument(
        "--plain", action="store_true", help="no fake cards and no images of the project either"
    )
    binaries_parser = commands.add_parser("binaries", help="build (or find) every program, print where it is")
    for parser_with_version in (up_parser, binaries_parser):
        parser_with_version.add_argument(
            "--version", default=binaries.DEFAULT_VERSION, help="1.37, 1.36.3, …"
        )
    commands.add_parser("down", help="end the running cluster")
    commands.add_parser("status", help="say what runs")
    commands.add_parser("prepare", help="build all that the tests need; a C compiler too")
    commands.add_parser("images", help="build every image, print names and bytes")
    return parser.parse_args(arguments)


def up(options: argparse.Namespace) -> int:
    with Cluster(options.version, options.nodes, project=not options.plain, keep=True) as cluster:
        if not (options.no_chart or options.plain):
            with step("installing the chart"):
                cluster.install_chart()
    say("it stays up until make cluster-down")
    say(".cluster/kubectl get nodes         an administrator's kubectl")
    say(".cluster/node [N] COMMAND…         a command in a node's namespaces")
    return 0


def prepare() -> None:
    """What is slow shows its progress here, and not in the middle of a test that captures it."""
    packages.require(packages.BUILD)
    for version in binaries.tested():
        binaries.obtain(version)
    binaries.cert_manager()
    binaries.kueue()
    images.plain()
    images.project()


def down() -> int:
    if not runs.CURRENT.is_symlink():
        say("no cluster is running")
        runs.sweep()
        return 0
    run, process = runs.load(runs.CURRENT.resolve())
    runs.end(run, process)
    scripts.remove()
    say(f"the cluster has ended; its logs are in {run.logs}")
    return 0


def status() -> int:
    """Exit status 0 where a cluster runs, 3 where none does."""
    found = runs.current()
    if found is None:
        print("no cluster is running")
        return 3
    print(f"run {found[0].id}, supervisor {found[1].pid}, logs {found[0].logs}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
