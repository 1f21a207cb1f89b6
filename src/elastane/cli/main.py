"""The `elastane` command: registers the commands; each lives in a module of its own."""

from __future__ import annotations

import typer

from elastane.cli.sim import sim

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, add_completion=False)


@app.callback()
def describe() -> None:
    """Elastic PyTorch training, and scheduling of shared clusters."""


app.command("sim")(sim)


def main() -> None:
    """Run the command line."""
    app()
