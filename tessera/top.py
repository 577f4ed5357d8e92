"""`tessera top`: what each limited grant of a node holds and computes just now, by its files alone.

Exit status 0: done; 1: the node's files can't be read, with the reason on stderr.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dra_driver.claims.grants import LIMITS, USAGE
from dra_driver.claims.ledger_file import name_in
from interposer import abi

_MIB = 1 << 20
_WIDE = 1000  # columns: for a program that reads it nothing is folded


@dataclass(frozen=True, order=True)
class GrantName:
    """`claim`: the ResourceClaim's UID; `grant`: what the grant's directory is called."""

    claim: str
    grant: str


@dataclass(frozen=True)
class Reading:
    """The two files of a grant."""

    limits: abi.Limits
    usage: abi.Usage


@dataclass(frozen=True)
class Look:
    """`at`: seconds of a steady clock; `unreadable`: why, of a grant that is there."""

    at: float
    readings: Mapping[GrantName, Reading]
    unreadable: Mapping[GrantName, str]


@dataclass(frozen=True)
class Row:
    """Memory in bytes; `cores` and `held_back` in percent of the time between two looks."""

    card: str
    name: GrantName
    memory: int
    limit: int
    cores: float
    asked: int
    held_back: float
    processes: int


def rows(before: Look, now: Look) -> list[Row]:
    """Of the grants of `now`, card by card. A process that `before` doesn't have has begun in between."""
    nanoseconds = (now.at - before.at) * 1e9
    found = []
    for name, reading in now.readings.items():
        was = before.readings.get(name)
        computed, waited = _done_between(was.usage.processes if was is not None else (), reading.usage)
        found.append(
            Row(
                card=reading.limits.uuid,
                name=name,
                memory=reading.usage.memory_bytes,
                limit=reading.limits.memory_bytes,
                cores=100 * computed / nanoseconds,
                asked=reading.limits.guaranteed_cores,
                held_back=100 * waited / nanoseconds,
                processes=len(reading.usage.processes),
            )
        )
    return sorted(found, key=lambda row: (row.card, row.name))


def _done_between(before: tuple[abi.Process, ...], now: abi.Usage) -> tuple[int, int]:
    """Nanoseconds that were computed, and that threads were held back."""
    known = {(process.slot, process.pid): process for process in before}
    computed = waited = 0
    for process in now.processes:
        was = known.get((process.slot, process.pid))
        if was is None or was.busy_ns > process.busy_ns:  # the slot is another's by now
            computed, waited = computed + process.busy_ns, waited + process.waited_ns
        else:
            computed += process.busy_ns - was.busy_ns
            waited += process.waited_ns - was.waited_ns
    return computed, waited


def look(run_dir: Path) -> Look:
    """Raises OSError where the directory of the claims can't be listed."""
    readings, unreadable = {}, {}
    for limits in _limits_files(run_dir):
        name = GrantName(limits.parent.parent.name, limits.parent.name)
        try:
            readings[name] = Reading(abi.read_limits(limits), abi.read_usage(limits.parent / USAGE))
        except abi.AbiError as error:
            if limits.parent.exists():  # else it was unprepared meanwhile
                unreadable[name] = str(error)
    return Look(time.monotonic(), readings, unreadable)


def _limits_files(run_dir: Path) -> list[Path]:
    claims = run_dir / "claims"
    return sorted(limits for claim in claims.iterdir() for limits in claim.glob(f"*/{LIMITS}"))


def table(found: list[Row], names: Mapping[str, str]) -> Table:
    """`names`: NAMESPACE/NAME by a claim's UID, as far as they are known."""
    made = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("CARD", "CLAIM", "SHARE"):
        made.add_column(heading, overflow="fold")
    for heading in ("MEMORY", "COMPUTE", "HELD BACK", "PROCESSES"):
        made.add_column(heading, justify="right", no_wrap=True)
    for row in found:
        asked = f" of {row.asked} %" if row.asked else " %"
        made.add_row(
            row.card,
            names.get(row.name.claim, row.name.claim),
            row.name.grant.removeprefix(f"{row.name.claim}-"),
            f"{row.memory / _MIB:.0f} of {row.limit / _MIB:.0f} MiB",
            f"{row.cores:.1f}{asked}",
            f"{row.held_back:.0f} %",
            str(row.processes),
        )
    return made


def _names(state_dir: Path, now: Look) -> dict[str, str]:
    found = {}
    for claim in {name.claim for name in (*now.readings, *now.unreadable)}:
        try:
            name = name_in((state_dir / "ledger" / f"{claim}.json").read_bytes())
        except OSError:
            continue  # its UID has to do
        if name is not None:
            found[claim] = "/".join(name)
    return found


def top_command(
    *,
    period: Annotated[float, typer.Option(min=0.1, help="Seconds from one look to the next.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one table, after one period, as where nobody watches.")
    ] = False,
    run_dir: Annotated[Path, typer.Option(help="The agent's --run-dir.")] = Path("/run/tessera"),
    state_dir: Annotated[Path, typer.Option(help="The agent's --state-dir.")] = Path("/var/lib/tessera"),
) -> None:
    """Show memory and compute of every limited share on this node, in an agent's Pod; Ctrl-C ends it."""
    console = Console(highlight=False)
    try:
        if once or not console.is_terminal:
            shown = _after(period, run_dir, state_dir, look(run_dir))[1]
            Console(highlight=False, width=_WIDE).print(shown)
            return
        with Live(console=console, auto_refresh=False, screen=True) as live:
            before = look(run_dir)
            while True:
                before, shown = _after(period, run_dir, state_dir, before)
                live.update(shown, refresh=True)
    except KeyboardInterrupt:
        return
    except OSError as error:
        where = error.filename or run_dir
        typer.echo(f"Error: {where}: {error.strerror}; an agent's Pod has it, or write --run-dir", err=True)
        raise typer.Exit(1) from error


def _after(period: float, run_dir: Path, state_dir: Path, before: Look) -> tuple[Look, Group]:
    time.sleep(period)
    now = look(run_dir)
    names = _names(state_dir, now)
    lines: list[RenderableType] = [
        Text(f"{names.get(name.claim, name.claim)} can't be read: {why}")
        for name, why in sorted(now.unreadable.items())
    ]
    if now.readings:
        lines.insert(0, table(rows(before, now), names))
    return now, Group(*lines or ("No share with limits is on this node.",))
