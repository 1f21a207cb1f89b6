"""`elastane autoscale`: what the autoscaler of a job measured, what it decided and why, and a picture of it.

What is told is computed in `observe/autoscaling.py`. This module loads numpy, and matplotlib for a picture:
it is loaded when the command is called.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.exits import Exit
from elastane.cli.folder import check_folder, describe_places, tell_others
from elastane.cli.groups import with_groups
from elastane.cli.options import Desk, JobArgument
from elastane.cli.wording import format_clock, format_count, format_duration
from elastane.core.autoscale_text import find_currency, parse_autoscale
from elastane.core.view import JobView
from elastane.jobs.registry import find_job, read_launch
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError, JobStateError
from elastane.observe.autoscaling import AutoscaleStory, SizeRow, tell_autoscale
from elastane.observe.events import read_events

PICTURES = (".png", ".svg")
SEARCHES = "it still searches"


def autoscale_job(
    job: JobArgument,
    *,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw it as well: FILE ends in .png or .svg."),
    ] = None,
    desk: Desk,
) -> int:
    """Show what a job's autoscaler measured, what it expects elsewhere, and what it decided when and why."""
    if plot is not None and plot.suffix not in PICTURES:
        raise ConfigError(f"--plot {plot}: a picture's name ends in {' or '.join(PICTURES)}")
    out = desk.output()
    with desk.open() as store:
        info = find_job(store, job)
        text = read_launch(store, info.job).autoscale
        view = read_picture(store, info.job).view
    folder = check_folder(info, desk.resolve(), view.agents, "decisions of the autoscaler")
    if not text:
        raise JobStateError(
            f"job {info.job} runs without an autoscaler: people choose its number of workers "
            "(`elastane scale`); begin one with `elastane run --autoscale max=8`"
        )
    story = tell_autoscale(list(read_events(folder)), parse_autoscale(text), count_parts(view))
    currency = find_currency(text)
    if plot is not None and story.rows:
        # Loaded here and not above: a table needs no matplotlib.
        from elastane.cli.autoscale_plot import save_picture  # noqa: PLC0415

        save_picture(story, f"{info.name}: --autoscale {text}", currency, plot)
        out.remark(f"drawn in {plot}")
    out.show(summarise(info.job, text, story), render_story(story, currency))
    tell_others(out, describe_places(info, view.agents, beside=folder), folder)
    return Exit.DONE


autoscale = with_groups(autoscale_job)
"""The command as the parser reads it."""


def count_parts(view: JobView) -> int:
    """Return into how many equal parts a step of the job is cut; 0 if into any number."""
    return 0 if view.batch else view.virtual_workers


def render_story(story: AutoscaleStory, currency: str) -> RenderableType:
    """Return one row for each size, then the decisions."""
    if not story.rows:
        return Text("nothing measured yet: the first decision comes some ten steps after the start")
    priced = any(row.cost is not None for row in story.rows)
    titles = ["WORKERS", "SAMPLES/S", "PREDICTED", "EFFICIENCY", "ENDS IN", "WORKER TIME"]
    titles += [f"WORTH {currency}", f"COST {currency}", "WORTH - COST"] if priced else []
    table = _make_table(*titles, "")
    for row in story.rows:
        table.add_row(*_make_cells(row, priced=priced), "kept" if row.chosen else "")
    decisions = _make_table("TIME", "STEP", "WORKERS", "WANTED", "WHY")
    for choice in story.choices:
        step = "" if choice.step is None else str(choice.step)
        clock = format_clock(choice.at_s)
        decisions.add_row(clock, step, str(choice.workers), str(choice.wanted), choice.reason)
    verdict = SEARCHES
    if story.settled is not None:
        verdict = f"{format_count(story.settled, 'worker')} {'is' if story.settled == 1 else 'are'} kept"
    return Group(table, Text(""), decisions, Text(verdict, style="green" if story.settled else "yellow"))


def summarise(job: str, text: str, story: AutoscaleStory) -> dict[str, Any]:
    """Return the story as data; times in seconds, money in the currency of the price."""
    return {
        "job": job,
        "autoscale": text,
        "settled": story.settled,
        "sizes": list(story.rows),
        "decisions": list(story.choices),
    }


def _make_cells(row: SizeRow, *, priced: bool) -> list[str]:
    cells = [
        str(row.workers),
        "" if row.measured is None else f"{row.measured:.4g}",
        f"{row.predicted:.4g}",
        "" if row.efficiency is None else f"{row.efficiency:.2f}",
        "" if row.ends_in_s is None else format_duration(row.ends_in_s),
        "" if row.worker_s is None else format_duration(row.worker_s),
    ]
    if not priced:
        return cells
    if row.worth is None or row.cost is None:
        return [*cells, "", "", ""]
    return [*cells, f"{row.worth:.4g}", f"{row.cost:.4g}", f"{row.worth - row.cost:.4g}"]


def _make_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        justify: Any = "left" if title in ("WHY", "TIME", "") else "right"
        table.add_column(title, no_wrap=title != "WHY", justify=justify, overflow="fold")
    return table
