"""tests/bench/cuda-calls: nanoseconds that the library adds to a driver call, and the ratio to a bare run.

The driver is tests/fakegpu, whose calls cost almost nothing: the ratios exaggerate, the added nanoseconds
are what a real driver's call (microseconds) would see too. Bare and limited runs alternate; the best counts.
Calls come by each road that programs take, with the library preloaded and as a shim (where it is preloaded
too, as the agent does it). Memory is also looked at with 100 000 live blocks, and beside 1000 processes of
the same grant; these start one after the other, which takes a minute, most of it the fake driver's:
--no-crowds leaves that out.
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

ROADS = {"link": "linked", "dlsym": "by dlsym", "ask": "by cuGetProcAddress"}
BARE, PRELOAD = "bare", "memory limit"
KINDS = {  # cores, and whether the library stands in the driver's place
    BARE: (0, False),
    PRELOAD: (0, False),
    "and compute": (50, False),
    "shim: memory limit": (0, True),
    "shim: and compute": (50, True),
}
CROWDS = {"100 000 blocks": ("100000",), "1000 peers": ("0", "1000")}
OF_MEMORY = ("alloc+free", "async alloc+free", "cuMemGetInfo")

Figures = dict[str, float]


def build(directory: Path) -> Path:
    program = directory / "cuda-calls"
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", "-O2"]
    libraries = [f"-L{FAKE}", "-lcuda", "-ldl"]
    subprocess.run([*compiler, str(SOURCE), "-o", str(program), *libraries], check=True)
    return program


def benches(directory: Path) -> dict[str, Bench]:
    made = {}
    for number, (kind, (cores, shim)) in enumerate(KINDS.items()):
        (directory / str(number)).mkdir()
        made[kind] = Bench(directory / str(number), preload=kind != BARE, shim=shim)
        made[kind].grant(memory=MEMORY, cores=cores)
    return made


def measure(rounds: int, crowds: bool) -> dict[str, Figures]:
    """Nanoseconds per call by kind, best of `rounds` runs."""
    best: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as name:
        program, made = build(Path(name)), benches(Path(name))
        for _ in range(rounds):
            for road, said in ROADS.items():
                for kind, bench in made.items():
                    found: Figures = bench.answer(program, road)
                    keep_best(best, kind, {f"{call}, {said}": figure for call, figure in found.items()})
        for crowd, words in CROWDS.items() if crowds else ():
            for kind in (BARE, PRELOAD):
                found = answer_of(made[kind].run(program, "link", *words, timeout=600))
                keep_best(best, kind, {f"{call}, {crowd}": found[call] for call in OF_MEMORY})
    return best


def keep_best(best: dict[str, Figures], kind: str, found: Figures) -> None:
    kept = best.setdefault(kind, {})
    for call, figure in found.items():
        kept[call] = min(kept.get(call, figure), figure)


def table(figures: dict[str, Figures]) -> Table:
    limited = [kind for kind in figures if kind != BARE]
    shown = Table(
        title="ns per call, and what is added to it (ratio)",
        title_justify="left",
        box=None,
        header_style="bold",
        padding=(0, 2, 0, 0),
    )
    for header in ("call", BARE, *limited):
        shown.add_column(header.upper(), justify="left" if header == "call" else "right")
    for call, bare in sorted(figures[BARE].items()):
        added = [
            f"+{figures[k][call] - bare:.0f} ({figures[k][call] / bare:.2f})" if call in figures[k] else ""
            for k in limited
        ]
        shown.add_row(call, f"{bare:.0f}", *added)
    return shown


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/bench/cuda-calls", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind (5)")
    parser.add_argument("--no-crowds", action="store_true", help="not with many blocks and processes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, in nanoseconds")
    options = parser.parse_args(arguments)
    figures = measure(options.rounds, crowds=not options.no_crowds)
    Console(width=130).print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
