"""`tessera`, the command for people; also `kubectl tessera`."""

from __future__ import annotations

import typer

from tessera import grant
from tessera.convert import convert_command
from tessera.top import top_command

app = typer.Typer(
    name="tessera",
    help="Look at and prepare GPU shares.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("convert")(convert_command)
app.command("top")(top_command)
app.add_typer(grant.app, name="grant")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
