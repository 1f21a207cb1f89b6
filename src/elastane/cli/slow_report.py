"""Show what a drill with slow workers did to a job: for people, and the same as data for programs."""

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.slowing import SlowOrder
from elastane.cli.wording import format_count
from elastane.model.records import JobInfo
from elastane.observe.slowdowns import Pace, Slowed, SlowReport

FOUND_BY = {
    "streak": "slower than the median, step after step",
    "average": "weighted mean of throughput",
    "speeds": "measured speeds",
}
"""What the detectors look at, in few words."""
SPELLS = ("before", "slow", "answered", "afterwards")
"""Fields of `Pace`, in the order of time."""


def render_slow_report(report: SlowReport) -> RenderableType:
    """Return one row for each slow worker, the throughput of each spell, and the verdict."""
    parts: list[RenderableType] = []
    if report.slowed:
        table = _make_table("WORKER", "TIMES AS SLOW", "FOR", "FOUND", "BY", "ANSWER", "CHANGED")
        for one in report.slowed:
            table.add_row(*_make_row(one))
        parts.append(table)
    parts.append(_make_pace(report.pace))
    parts += [Text(f"{one.worker}: {one.reason}") for one in report.slowed if one.reason]
    parts.append(Text(_verdict(report), style="green" if report.passed else "bold red"))
    return Group(*parts)


def summarise_slow_report(info: JobInfo, report: SlowReport, order: SlowOrder) -> dict[str, Any]:
    """Return the report as data; times in seconds, throughput in samples per second."""
    return {
        "job": info.job,
        "harm": "slow" if order.slow else "contend",
        "processes": order.processes,
        "passed": report.passed,
        "steps": report.steps,
        "missing_steps": report.missing_steps,
        "trouble": report.trouble,
        "accused": report.accused,
        "throughput": {spell: getattr(report.pace, spell) for spell in SPELLS},
        "slowed": list(report.slowed),
    }


def describe_order(order: SlowOrder) -> str:
    """Say what is done, in few words."""
    whom = [f"{worker} {factor:g} times as slow" for worker, factor in order.slow.items()]
    busy = [f"{order.processes} busy process{'es' if order.processes > 1 else ''}"] if order.processes else []
    return ", ".join([*whom, *busy])


def _make_table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in titles:
        table.add_column(title, no_wrap=True)
    return table


def _make_row(one: Slowed) -> tuple[str, ...]:
    found = "not" if one.found_after is None else f"after {format_count(one.found_after, 'step')}"
    changed = "" if one.answered_after is None else f"after {format_count(one.answered_after, 'step')}"
    return (
        one.worker,
        f"{one.factor:g}",
        format_count(one.steps, "step"),
        found,
        FOUND_BY.get(one.found_by, one.found_by),
        one.answer or "none",
        changed,
    )


def _make_pace(pace: Pace) -> Table:
    table = _make_table("THROUGHPUT", *(spell.upper() for spell in SPELLS))
    rates = [getattr(pace, spell) for spell in SPELLS]
    table.add_row("samples/s", *("" if rate is None else f"{rate:.4g}" for rate in rates))
    before = pace.before
    if before:
        table.add_row("of before", *("" if rate is None else f"{rate / before:.0%}" for rate in rates))
    return table


def _verdict(report: SlowReport) -> str:
    accused = ", ".join(report.accused)
    told = f"; called slow without a drill: {accused}" if accused else ""
    if report.trouble:
        return f"not as it should be: {'; '.join(report.trouble)}{told}"
    told = told or "; nobody else was called slow"
    return f"every step is there, {report.steps} of them during the drill{told}"
