"""Tell what came of the demonstration: costs, verdict, and a file for machines."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.compare import Cost, Run
from elastane.cli.wording import format_duration


def say(console: Console, text: str, style: str = "") -> None:
    """Write a line as it is: the terminal may wrap it, a file must not."""
    console.print(Text(text, style=style), soft_wrap=True)


def render_costs(costs: Sequence[Cost], restart_s: float, step_s: float) -> RenderableType:
    """Return what each change cost beside what a stop and restart costs here."""
    table = Table(
        box=None,
        header_style="dim",
        padding=(0, 2, 0, 0),
        pad_edge=False,
        title_justify="left",
        title_style="bold",
    )
    for name in ("CHANGE", "STEP", "STOP TIME", "JOIN LATENCY", "STOP AND RESTART"):
        table.add_column(name, justify="left" if name == "CHANGE" else "right")
    for cost in costs:
        table.add_row(
            cost.what,
            "" if cost.step is None else str(cost.step),
            "" if cost.stop_s is None else format_duration(cost.stop_s),
            "" if cost.join_s is None else format_duration(cost.join_s),
            f"at least {format_duration(restart_s)}",
        )
    note = Text(
        f"A step takes {format_duration(step_s)} here. Stop and restart: the cold start of the same script "
        "on this machine until its first step is done; saving and loading a checkpoint would come on top.",
        style="dim",
    )
    return Group(table, note)


def tell_verdict(console: Console, elastic: Run, plain: Run, differences: Sequence[str]) -> None:
    """Say whether both runs are equal."""
    loss = repr(elastic.records[-1].values["loss"])
    if not differences:
        say(console, f"state sha256 {elastic.digest}  elastic", "bold")
        say(console, f"state sha256 {plain.digest}  undisturbed", "bold")
        equal = f"state and loss curve, every bit of all {len(elastic.records):,} steps (last loss {loss})"
        say(console, f"EQUAL: {equal}", "bold green")
        return
    say(console, "NOT EQUAL:", "bold red")
    for difference in differences:
        say(console, difference)


def save_result(
    path: Path, digests: Sequence[str], differences: Sequence[str], costs: Sequence[Cost]
) -> None:
    """Write what was found as JSON."""
    result = {"digests": digests, "differences": differences, "costs": costs}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
