"""tests/bench/process-starts: milliseconds until so many processes that start together have all come to a
context, and the processor's time that each of them takes, with the ratios to a bare run.

The fake driver makes a context in no time, a real one takes 100 ms and more: both are shown. Bare and limited
runs alternate; the best counts. On a busy machine the processor's time tells more.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.integration.interposer.bench import FAKE, MI, Bench

SOURCE = Path(__file__).with_name("process_starts.c")
CONTEXTS = {"context at once": "0", "context in 100 ms": "100000"}
MEASURES = {"until all have started": 1, "processor, each": 3}
"""What the program prints, and with how many digits it is shown."""

Figures = dict[str, dict[str, dict[str, float]]]
"""Milliseconds by context, measure, and kind of run."""


def build(directory: Path) -> Path:
    program = directory / "process-starts"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-O2"]
    subprocess.run([*compiler, str(SOURCE), "-o", str(program), f"-L{FAKE}", "-lcuda"], check=True)
    return program


def measure(processes: int, rounds: int) -> Figures:
    """The best of `rounds` runs, bare and with a share."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        for place, (what, microseconds) in enumerate(CONTEXTS.items()):
            best: dict[str, dict[str, float]] = {measure: {} for measure in MEASURES}
            benches = {}
            for kind in ("bare", "share"):
                directory = Path(name) / f"{kind}-{place}"
                directory.mkdir()
                driver = {"context_us": microseconds, "context": "100Mi"}
                benches[kind] = Bench(directory, preload=kind == "share", driver=driver)
                benches[kind].grant(memory=20000 * MI, cores=50)
            for _ in range(rounds):
                for kind, bench in benches.items():
                    result = bench.run(program, str(processes), timeout=300)
                    if result.returncode != 0:
                        raise SystemExit(f"process-starts: {kind}: {result.stderr}")
                    for measured, value in zip(best.values(), result.stdout.split(), strict=True):
                        measured[kind] = min(measured.get(kind, float("inf")), float(value))
            figures[what] = best
    return figures


def table(figures: Figures, processes: int) -> Table:
    shown = Table(
        title=f"{processes} processes that start together, in ms",
        title_justify="left",
        box=None,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for header in ("DRIVER", "TIME", "BARE", "WITH A SHARE", "RATIO"):
        shown.add_column(header, justify="left" if header in ("DRIVER", "TIME") else "right")
    for what, measures in figures.items():
        for name, digits in MEASURES.items():
            each = measures[name]
            ratio = each["share"] / each["bare"]
            shown.add_row(
                what, name, f"{each['bare']:.{digits}f}", f"{each['share']:.{digits}f}", f"{ratio:.2f}"
            )
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/bench/process-starts", description=__doc__)
    parser.add_argument("--processes", type=int, default=32, help="that start together (32)")
    parser.add_argument("--rounds", type=int, default=10, help="runs of each kind (10)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, in milliseconds")
    options = parser.parse_args(arguments)
    figures = measure(options.processes, options.rounds)
    Console(width=110).print(table(figures, options.processes))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
