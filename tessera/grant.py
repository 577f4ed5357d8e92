"""`tessera grant`: a grant's files as the agent writes them, for tests and for looking.

Exit status 0: done; 1: refused or not readable, with the reason on stderr.
"""

from __future__ import annotations

import enum
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dra_driver.claims.grants import LIMITS, USAGE
from interposer import abi
from kube.quantity import QuantityError, format_bytes, parse_quantity

app = typer.Typer(
    help="Write and show grants, as the node agent hands them to a container.", no_args_is_help=True
)

Directory = Annotated[Path, typer.Argument(help="The grant's directory: it holds `limits` and `usage`.")]


class PolicyName(enum.StrEnum):
    DEFAULT = "default"
    FORCE = "force"
    DISABLE = "disable"


def _fail(message: str) -> typer.Exit:
    typer.echo(f"Error: {message}", err=True)
    return typer.Exit(1)


def _bytes(option: str, text: str) -> int:
    """Bytes of a Kubernetes quantity; must be a whole number above 0."""
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        raise _fail(f"{option}: {error}") from error
    if value <= 0 or value.denominator != 1:
        raise _fail(f"{option} is {text}, expected whole bytes above 0, for instance 3000Mi")
    return int(value)


@app.command()
def write(
    directory: Directory,
    *,
    uuid: Annotated[
        str, typer.Option(help="The card's or MIG instance's UUID, as `nvidia-smi -L` prints it.")
    ],
    memory: Annotated[str, typer.Option(help="Memory limit, a Kubernetes quantity such as 3000Mi.")],
    cores: Annotated[int, typer.Option(min=0, help="Percent of the card's time; 0: not limited.")] = 0,
    policy: Annotated[PolicyName, typer.Option(help="What is enforced of the cores.")] = PolicyName.DEFAULT,
    priority: Annotated[int, typer.Option(min=0, max=1, help="0 goes before 1.")] = 1,
    claim: Annotated[str, typer.Option(help="UID of the ResourceClaim.")] = "",
    card_memory: Annotated[str, typer.Option(help="The card's own memory; the limit, where not given.")] = "",
    spill: Annotated[
        bool, typer.Option("--spill", help="Go on in managed memory where the card is full.")
    ] = False,
) -> None:
    """Write DIRECTORY/limits and DIRECTORY/usage; programs that have them mapped follow the new limits."""
    limit = _bytes("--memory", memory)
    limits = abi.Limits(
        uuid=uuid,
        claim=claim,
        memory_bytes=limit,
        card_memory_bytes=_bytes("--card-memory", card_memory) if card_memory else limit,
        guaranteed_cores=cores,
        effective_cores=cores,
        policy=abi.Policy[policy.name],
        priority=priority,
        spill=spill,
        caps=(),
    )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        abi.write_limits(directory / LIMITS, limits)
        abi.create_usage(directory / USAGE)
    except (abi.AbiError, OSError) as error:
        raise _fail(str(error)) from error


def _cores(percent: int) -> str:
    return f"{percent} %" if percent else "no cap"


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.3f} s"


def _limits_table(limits: abi.Limits, usage: abi.Usage) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    now = limits.cores_at(time.monotonic_ns())
    rows = [
        ("card", f"{limits.uuid}, {format_bytes(limits.card_memory_bytes)}"),
        ("claim", limits.claim or "none"),
        ("memory", f"{format_bytes(usage.memory_bytes)} of {format_bytes(limits.memory_bytes)}"),
        ("highest", format_bytes(usage.peak_memory_bytes)),
        ("cores", f"{_cores(now)} now, {_cores(limits.guaranteed_cores)} guaranteed"),
        ("policy", f"{limits.policy.name.lower()}, priority {limits.priority}"),
        ("full card", "goes on in managed memory" if limits.spill else "is out of memory"),
    ]
    for cap in limits.caps:
        memory = format_bytes(cap.memory_bytes) if cap.memory_bytes else "the grant's memory"
        rows.append((f"cap {cap.container}", f"{memory}, {_cores(cap.cores)}"))
    for name, text in rows:
        table.add_row(name, text)
    return table


def _process_table(usage: abi.Usage) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for heading in ("slot", "pid", "memory", "launches", "device time", "held back", "refused"):
        table.add_column(heading, justify="right")
    for process in usage.processes:
        held = process.memory_bytes + process.context_bytes + process.module_bytes
        table.add_row(
            str(process.slot),
            str(process.pid) if process.pid else "elsewhere",
            format_bytes(held),
            str(process.launches),
            _seconds(process.busy_ns),
            _seconds(process.waited_ns),
            str(process.refused),
        )
    return table


@app.command()
def show(directory: Directory) -> None:
    """Show a grant's limits, and its living processes with what they hold."""
    try:
        limits = abi.read_limits(directory / LIMITS)
        usage = abi.read_usage(directory / USAGE)
    except abi.AbiError as error:
        raise _fail(str(error)) from error
    console = Console(highlight=False, soft_wrap=True)
    console.print(_limits_table(limits, usage))
    if usage.processes:
        console.print()
        console.print(_process_table(usage))
