"""The command that tells what each worker's way into a job cost, and on what."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.exits import Exit
from elastane.cli.folder import check_folder, describe_places, tell_others
from elastane.cli.options import Desk, JobArgument
from elastane.cli.wording import format_bytes, format_count, format_duration
from elastane.jobs.registry import find_job
from elastane.jobs.requests import read_picture
from elastane.observe.events import read_events
from elastane.observe.joins import (
    JoinOutcome,
    JoinPhase,
    JoinReport,
    JoinSummary,
    compute_joins,
    summarise_joins,
)

TITLES = {phase: phase.value.replace("_", "-").upper() for phase in JoinPhase}
WIDE = 116
"""Columns that the whole table needs."""
OUTCOME_STYLES = {JoinOutcome.JOINED: "", JoinOutcome.UNDER_WAY: "yellow", JoinOutcome.GONE: "red"}


def joins(job: JobArgument, *, desk: Desk) -> int:
    """Show what each worker's join cost, phase by phase: from the request until it had a seat."""
    with desk.open() as store:
        info = find_job(store, job)
        agents = read_picture(store, info.job).agents
    out = desk.output()
    folder = check_folder(info, desk.resolve(), agents, "events")
    reports = compute_joins(read_events(folder))
    summary = summarise_joins(reports)
    rendered = render_joins(reports, summary, out.people.width)
    out.show({"job": info.job, "joins": reports, "summary": summary}, rendered)
    tell_others(out, describe_places(info, agents, beside=folder), folder)
    return Exit.DONE


def render_joins(reports: Sequence[JoinReport], summary: JoinSummary, width: int) -> RenderableType:
    """Return one row for each join, and a line about all of them.

    The phases have columns of their own if the terminal has room for them, else they share one.
    """
    if not reports:
        return Text("no worker has been asked for yet")
    wide = width >= WIDE
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("WORKER", "WHERE", "START"):
        table.add_column(title, no_wrap=True, overflow="fold")
    for title in (*(TITLES.values() if wide else ()), "TOTAL", "MOVED"):
        table.add_column(title, justify="right", no_wrap=True)
    if not wide:
        table.add_column("PHASES", overflow="fold")
    for report in reports:
        table.add_row(
            Text(report.worker),
            Text(report.device),
            report.start,
            *([_format_phase(report, phase) for phase in JoinPhase] if wide else ()),
            _format_total(report),
            format_bytes(report.moved_bytes) if report.moved_bytes else "",
            *(() if wide else [_list_phases(report)]),
        )
    return Group(table, Text(), Text(describe_summary(summary)))


def describe_summary(summary: JoinSummary) -> str:
    """Return the medians in one line."""
    kinds = (("warm", summary.warm), ("cold", summary.cold))
    starts = ", ".join(f"{count} {kind}" for kind, count in kinds if count)
    head = f"{format_count(summary.joined, 'join')}{f' ({starts})' if starts else ''}"
    if summary.latency_s is None:
        return head
    text = f"{head}: median {format_duration(summary.latency_s)}"
    costliest = summary.costliest
    if costliest is None:
        return text
    name = costliest.value.replace("_", "-")
    return f"{text}, most of it {name} ({format_duration(summary.phases[costliest])})"


def _format_total(report: JoinReport) -> Text:
    if report.latency_s is None:
        return Text(report.outcome.value, style=OUTCOME_STYLES[report.outcome])
    return Text(format_duration(report.latency_s), style="bold")


def _list_phases(report: JoinReport) -> str:
    return ", ".join(
        f"{TITLES[phase].lower()} {format_duration(seconds)}" for phase, seconds in report.phases.items()
    )


def _format_phase(report: JoinReport, phase: JoinPhase) -> str:
    seconds = report.phases.get(phase)
    return "" if seconds is None else format_duration(seconds)
