"""tests/bench/cuda-calls: nanoseconds that the library adds to a driver call, and the ratio to a bare run.

The driver is tests/fakegpu, whose calls cost almost nothing: the ratios exaggerate, the added nanoseconds
are what a real driver's call (microseconds) would see too. Bare and limited runs alternate; the best counts.
Memory is also looked at with 100 000 live blocks, and beside 1000 processes of the same grant; these start
one after the other, which takes a minute, most of it the fake driver's.
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

from tests.integration.interposer.bench import FAKE, MI, Bench, answer_of

SOURCE = Path(__file__).with_name("cuda_calls.c")
MEMORY = 3000 * MI

CROWDS = {"100 000 blocks": ("100000",), "1000 peers": ("0", "1000")}
OF_MEMORY = ("alloc+free", "async alloc+free", "cuMemGetInfo")

Figures = dict[str, float]


def build(directory: Path) -> Path:
    program = directory / "cuda-calls"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-O2"]
    subprocess.run([*compiler, str(SOURCE), "-o", str(program), f"-L{FAKE}", "-lcuda"], check=True)
    return program


def measure(rounds: int) -> dict[str, Figures]:
    """Nanoseconds per call, best of `rounds` runs: bare, with a memory limit, with a compute limit too."""
    best: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name))
        benches = {}
        for kind, cores in (("bare", 0), ("memory limit", 0), ("memory and compute limit", 50)):
            directory = Path(name) / kind
            directory.mkdir()
            benches[kind] = Bench(directory, preload=kind != "bare")
            benches[kind].grant(memory=MEMORY, cores=cores)
        for _ in range(rounds):
            for kind, bench in benches.items():
                found: Figures = bench.answer(program)
                keep_best(best, kind, found)
        for crowd, words in CROWDS.items():
            for kind in ("bare", "memory limit"):
                found = answer_of(benches[kind].run(program, *words, timeout=600))
                keep_best(best, kind, {f"{call}, {crowd}": found[call] for call in OF_MEMORY})
    return best


def keep_best(best: dict[str, Figures], kind: str, found: Figures) -> None:
    kept = best.setdefault(kind, {})
    for call, figure in found.items():
        kept[call] = min(kept.get(call, figure), figure)


def table(figures: dict[str, Figures]) -> Table:
    limited = [kind for kind in figures if kind != "bare"]
    shown = Table(
        title="ns per call", title_justify="left", box=None, header_style="bold", padding=(0, 2, 0, 0)
    )
    for header in ("CALL", "BARE", *(f"{kind}: added (ratio)".upper() for kind in limited)):
        shown.add_column(header, justify="left" if header == "CALL" else "right")
    for call, bare in figures["bare"].items():
        added = [
            f"+{figures[k][call] - bare:.0f} ({figures[k][call] / bare:.2f})" if call in figures[k] else ""
            for k in limited
        ]
        shown.add_row(call, f"{bare:.0f}", *added)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/bench/cuda-calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind (5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, in nanoseconds")
    options = parser.parse_args(arguments)
    figures = measure(options.rounds)
    Console(width=110).print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
