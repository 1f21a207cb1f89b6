"""Show what drills did to a job: a table and a verdict for people, the same as data for programs."""

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from elastane.cli.wording import format_count, format_duration
from elastane.core.drills import Harm
from elastane.model.records import JobInfo
from elastane.observe.drills import DrillReport, DrillResult


def render_report(report: DrillReport, spared: Sequence[str]) -> RenderableType:
    """Return one row for each drill and the verdict."""
    if not report.results:
        why = f": {spared[-1]}" if spared else ""
        return Text(f"nobody was harmed{why}")
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("#", "WORKER", "WAS", "AT STEP", "NEXT STEP", "REPEATED", "ALL BACK", "VERDICT"):
        table.add_column(title, no_wrap=title != "VERDICT", overflow="fold")
    for result in report.results:
        table.add_row(*_make_row(result))
    return Group(table, Text(_verdict(report, spared), style="green" if report.harmless else "bold red"))


def summarise_report(
    info: JobInfo, seed: int, harm: Harm, spared: Sequence[str], report: DrillReport
) -> dict[str, Any]:
    """Return the report as data; times in seconds."""
    return {
        "job": info.job,
        "seed": seed,
        "harm": harm.value,
        "harmless": report.harmless,
        "first_step": report.first_step,
        "last_step": report.last_step,
        "missing_steps": report.missing_steps,
        "trouble": report.trouble,
        "spared": list(spared),
        "drills": [_summarise(result) for result in report.results],
    }


def _summarise(result: DrillResult) -> dict[str, Any]:
    target = result.drill.target
    return {
        "number": result.drill.number,
        "at_s": result.drill.at_s,
        "worker": target.worker,
        "phase": target.phase,
        "leader": target.leader,
        "main": target.main,
        "changing": target.changing,
        "step": result.step,
        "part_of_step": result.part_of_step,
        "next_commit_s": result.next_commit_s,
        "steps_repeated": result.steps_repeated,
        "workers_back_s": result.workers_back_s,
        "also_lost": result.also_lost,
        "trouble": result.trouble,
    }


def _make_row(result: DrillResult) -> tuple[str, ...]:
    target = result.drill.target
    roles = [name for name, holds in (("leader", target.leader), ("main", target.main)) if holds]
    return (
        str(result.drill.number),
        target.worker,
        ", ".join([*roles, target.phase, *(["in a change"] if target.changing else [])]),
        _place(result),
        _duration(result.next_commit_s, "none"),
        str(result.steps_repeated),
        _duration(result.workers_back_s, "not yet"),
        "harmless" if result.harmless else "; ".join(result.trouble),
    )


def _place(result: DrillResult) -> str:
    if result.step is None:
        return ""
    part = result.part_of_step
    return str(result.step) if part is None or part > 1 else f"{result.step}, {part:.0%} done"


def _duration(seconds: float | None, otherwise: str) -> str:
    return otherwise if seconds is None else format_duration(seconds)


def _verdict(report: DrillReport, spared: Sequence[str]) -> str:
    skipped = (
        f"; {format_count(len(spared), 'drill')} left out, the last since {spared[-1]}" if spared else ""
    )
    if not report.harmless:
        troubled = [r for r in report.results if not r.harmless]
        what = [*report.trouble, *([f"{format_count(len(troubled), 'drill')} did harm"] if troubled else [])]
        return f"the job was harmed: {'; '.join(what)}{skipped}"
    waits = [r.next_commit_s for r in report.results if r.next_commit_s is not None]
    return (
        f"{format_count(len(report.results), 'drill')}, no harm: every step from {report.first_step} to "
        f"{report.last_step} is there; the longest wait for the next one was {format_duration(max(waits))}"
        f"{skipped}"
    )
