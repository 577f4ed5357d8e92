"""tests/bench/prepare-claims: how long the kubelet waits for the node agent, and for a Go driver beside it.

Both drivers run on nodes of their own against one real API server (etcd and kube-apiserver, nothing else), in
a Pod's circumstances: a service account's token, state on disk, CDI documents on a tmpfs. The peer is
kubernetes-sigs/dra-example-driver with its client limits raised; PEER_DRA_EXAMPLE names the binary. Like our
agent it says in the claim's status which devices it has prepared (--gpu-device-status; --peer-bare leaves
that out). Calls go over the real sockets, one connection per driver, and the drivers take turns, so that
whatever else runs on the machine disturbs both alike. Our cards are fake.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from tests.bench.figures import Figure, documents, percentile, table
from tests.bench.side import Refused, Side
from tests.cluster import binaries
from tests.cluster.errors import ClusterError
from tests.cluster.progress import say
from tests.conformance import drivers
from tests.conformance.control_plane import ControlPlane
from tests.integration.dra_driver.kubelet import WireClaim

TOGETHER, AT_ONCE = 8, 50
HELD = (10, 150, 1000)
PEER_HOLDS = 150  # more take it minutes
RESIDENT_WITH = 200
QUIET, SETTLED = 5.0, 180.0  # seconds without a write that count as idle, and that it may take until then
WITHOUT_PEER = (
    f"{drivers.PEER} is not set, so nothing is compared: build cmd/dra-example-kubeletplugin of"
    " github.com/kubernetes-sigs/dra-example-driver and name the binary in it"
)
Times = dict[str, list[float]]  # side → seconds


@dataclass
class Bench:
    """`sides`: ours, and the peer where there is one."""

    sides: dict[str, Side]
    rounds: int
    figures: list[Figure] = field(default_factory=list)

    def turns(self) -> Iterator[list[tuple[str, Side]]]:
        """The sides, in an order that alternates."""
        both = list(self.sides.items())
        while True:
            yield both
            yield both[::-1]

    def timed(self, rounds: int, do: Callable[[Side, int], float]) -> Times:
        """What `do` took in each round, which it is given the number of."""
        times: Times = {name: [] for name in self.sides}
        for number, turn in zip(range(rounds), self.turns(), strict=False):
            for name, side in turn:
                times[name].append(do(side, number))
        return times

    def add(self, name: str, times: Times, percent: int = 50, ratio: float | None = None) -> None:
        """A percentile of times as a figure in milliseconds."""
        found = {side: 1000 * percentile(values, percent) for side, values in times.items()}
        self.figures.append(Figure(name, "ms", found["ours"], found.get("peer"), ratio))

    # --- what is measured

    def start(self, rounds: int) -> None:
        """Of the process until it is registered; leaves it running."""
        times: Times = {name: [] for name in self.sides}
        for number, turn in zip(range(rounds), self.turns(), strict=False):
            for name, side in turn:
                times[name].append(side.start())
                if number < rounds - 1:
                    side.stop()
        ours, peer = percentile(times["ours"], 50), times.get("peer")
        self.figures.append(
            Figure("start to registered", "s", ours, percentile(peer, 50) if peer else None, most=1.5)
        )

    def one_by_one(self) -> None:
        claims = {side: side.claims(self.rounds) for side in self.sides.values()}
        first: Times = {name: [] for name in self.sides}
        again: Times = {name: [] for name in self.sides}
        gone: Times = {name: [] for name in self.sides}
        for number, turn in zip(range(self.rounds), self.turns(), strict=False):
            for name, side in turn:
                wire = claims[side][number]
                first[name].append(side.prepare(wire))
                again[name].append(side.prepare(wire))
                gone[name].append(side.unprepare(wire))
        self.add("prepare one claim, p50", first, 50, 0.5)
        self.add("prepare one claim, p99", first, 99, 0.5)
        self.add("prepare again, p50", again, 50, 0.7)
        self.add("unprepare, p50", gone, 50, 0.7)
        self.add("unprepare, p99", gone, 99)

    def together(self) -> None:
        rounds = max(2, self.rounds // 6)
        claims = {side: side.claims(TOGETHER) for side in self.sides.values()}

        def one(side: Side, _number: int) -> float:
            took = side.prepare(*claims[side])
            side.unprepare(*claims[side])
            return took

        self.add(f"{TOGETHER} claims in one call, p50", self.timed(rounds, one), 50, 0.25)

    def at_once(self) -> None:
        rounds = max(2, self.rounds // 20)
        claims = {side: side.claims(AT_ONCE) for side in self.sides.values()}

        def one(side: Side, _number: int) -> float:
            took = side.prepare_each(claims[side])
            side.unprepare(*claims[side])
            return took

        self.add(f"{AT_ONCE} prepares at once, all done", self.timed(rounds, one), 50, 0.5)

    def held(self) -> None:
        """The same with more and more claims prepared, and the memory that they take."""
        held: dict[str, int] = dict.fromkeys(self.sides, 0)
        alone: dict[str, float] = {}
        rounds = max(2, self.rounds // 4)
        for count in sorted({*HELD, RESIDENT_WITH}):
            taking_part = {
                name: side for name, side in self.sides.items() if name == "ours" or count <= PEER_HOLDS
            }
            if count == RESIDENT_WITH:
                taking_part = self.sides
            for name, side in taking_part.items():
                for part in _parts(side.claims(count - held[name]), AT_ONCE):
                    side.prepare(*part)
                held[name] = count
            if count == RESIDENT_WITH:
                resident = {name: side.resident() for name, side in self.sides.items()}
                self.figures.append(
                    Figure(f"memory, {count} claims", "MiB", resident["ours"], resident.get("peer"), most=60)
                )
                continue
            meanwhile = Bench(taking_part, rounds)
            meanwhile.one_by_one()
            for found in (meanwhile.figures[0], meanwhile.figures[3]):
                first = alone.setdefault(found.name, found.ours)
                what = f"{found.name.removesuffix(', p50')}, {count} held"
                note = f"{found.ours / first:.2f} of ours with {HELD[0]}" if count != HELD[0] else ""
                self.figures.append(Figure(what, "ms", found.ours, found.peer, note=note))

    def idle(self, seconds: float) -> None:
        """Writes to the API server while nothing is asked, once those are done that came of the claims."""
        deadline = time.monotonic() + SETTLED
        last, since = -1, time.monotonic()
        while time.monotonic() - since < QUIET and time.monotonic() < deadline:
            written = sum(side.writes() for side in self.sides.values())
            if written != last:
                last, since = written, time.monotonic()
            time.sleep(0.5)
        before = {name: side.writes() for name, side in self.sides.items()}
        time.sleep(seconds)
        after = {name: side.writes() - before[name] for name, side in self.sides.items()}
        what = f"API writes, idle for {seconds:g} s"
        self.figures.append(Figure(what, "", after["ours"], after.get("peer"), most=0))


def _parts(claims: Sequence[WireClaim], size: int) -> Iterator[Sequence[WireClaim]]:
    for start in range(0, len(claims), size):
        yield claims[start : start + size]


def measure(version: str, rounds: int, idle: float, peer_flags: Sequence[str]) -> list[Figure]:
    """Everything, in the order in which it is shown. Raises ClusterError, Refused, OSError."""
    peer = drivers.peer(*peer_flags)
    if peer is None:
        say(WITHOUT_PEER)
    with ExitStack() as stack:
        plane = stack.enter_context(ControlPlane(version))
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tessera-")))
        kinds = {"ours": drivers.Tessera()} | ({"peer": peer} if peer else {})
        sides = {}
        for name, kind in kinds.items():
            sides[name] = Side(kind, plane, root)
            stack.callback(sides[name].end)
        bench = Bench(sides, rounds)
        steps: list[tuple[str, Callable[[], None]]] = [
            ("start", lambda: bench.start(6)),
            ("one claim", bench.one_by_one),
            (f"{TOGETHER} claims in one call", bench.together),
            (f"{AT_ONCE} at once", bench.at_once),
            (f"with {', '.join(map(str, HELD))} claims held", bench.held),
            (f"idle for {idle:g} s", lambda: bench.idle(idle)),
        ]
        for title, step in steps:
            say(title)
            step()
    return bench.figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/bench/prepare-claims", description=__doc__)
    parser.add_argument("--version", default=binaries.DEFAULT_VERSION, help="of Kubernetes (1.37)")
    parser.add_argument("--rounds", type=int, default=300, help="claims that are prepared one by one (300)")
    parser.add_argument("--idle", type=float, default=30.0, metavar="SECONDS", help="of watching writes (30)")
    parser.add_argument("--peer-bare", action="store_true", help="the peer writes no status.devices")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, with ratios and targets")
    options = parser.parse_args(arguments)
    try:
        flags = () if options.peer_bare else ("--gpu-device-status",)
        figures = measure(options.version, options.rounds, options.idle, flags)
    except (ClusterError, Refused, OSError) as error:
        print(f"prepare-claims: {error}", file=sys.stderr)
        return 1
    bare = ", the peer without status.devices" if options.peer_bare else ""
    title = f"Kubernetes {options.version}, {options.rounds} rounds{bare}"
    Console(width=110, highlight=False).print(table(title, figures))
    if options.json:
        options.json.write_text(json.dumps(documents(figures), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
