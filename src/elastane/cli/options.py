"""The options and arguments that several commands share, and what they turn into."""

from pathlib import Path
from typing import Annotated

import typer

from elastane.cli.home import HOME_VARIABLE

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="Id of the job (its beginning is enough), or its name.")
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        metavar="DIR",
        help=f"Where jobs live [{HOME_VARIABLE}, or ~/.elastane].",
        show_default=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON with stable fields to standard output.")]
FollowOption = Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")]
WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until the change is made; tell its stop time and join latency.")
]
TimeoutOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.0, help="Longest time to wait.")
]
