"""Run all rows, and make the page and its plots: `python -m benchmarks.run --out FOLDER`.

With `--page-only` nothing is measured: the page is made from the reports that lie in the folder.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console

from benchmarks import (
    autoscaler,
    frozen_worker,
    join_latency,
    profile_cost,
    recovery_time,
    steady_state,
    stop_time,
    store_latency,
    straggler,
    timeline,
    transient_devices,
    virtual_worker_cost,
)
from benchmarks.command import measure_row
from benchmarks.figures import Report, in_seconds, load_report, save_report
from benchmarks.page import PLOTS_FOLDER, make_page
from benchmarks.plots import draw_chart, draw_durations
from benchmarks.processes import ROOT
from benchmarks.tables import make_rich_table

ROWS = (
    (steady_state.ROW, steady_state.measure),
    (stop_time.ROW, stop_time.measure),
    (join_latency.ROW, join_latency.measure),
    (recovery_time.ROW, recovery_time.measure),
    (frozen_worker.ROW, frozen_worker.measure),
    (profile_cost.ROW, profile_cost.measure),
    (straggler.ROW, straggler.measure),
    (transient_devices.ROW, transient_devices.measure),
    (virtual_worker_cost.ROW, virtual_worker_cost.measure),
    (autoscaler.ROW, autoscaler.measure),
    (timeline.ROW, timeline.measure),
    (store_latency.ROW, store_latency.measure),
)
PAGE = ROOT / "docs" / "benchmarks.md"
DRAWN = ("stop, ", "join, ", "SIGKILL to next step", "SIGSTOP to next step")
"""Beginnings of the names of figures that are durations a user waits for."""


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("bench-out"), help="folder for the JSON files")
    parser.add_argument("--quick", action="store_true", help="measure once, to see that it works")
    parser.add_argument("--page-only", action="store_true", help="measure nothing, make the page anew")
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write")
    parser.add_argument("--row", action="append", help="only this row; may be given several times")
    arguments = parser.parse_args()
    if not arguments.page_only:
        measure_rows(arguments.out, arguments.row, quick=arguments.quick)
    write_page(load_reports(arguments.out), arguments.page)


def load_reports(folder: Path) -> list[Report]:
    """Return the reports that lie in `folder`, in the order of the page, in today's words."""
    found = []
    for row, _ in ROWS:
        path = folder / f"{row.name}.json"
        if path.exists():
            words = {"title": row.title, "method": row.method, "remarks": row.remarks}
            found.append(msgspec.structs.replace(load_report(path), **words))
    return found


def measure_rows(folder: Path, names: Sequence[str] | None, *, quick: bool) -> None:
    """Measure the rows of these names, or all, and save each report as soon as it is there."""
    console = Console()
    for row, measure in ROWS:
        if names and row.name not in names:
            continue
        console.print(f"[bold]{row.id}[/bold] {row.title} ...")
        report = measure_row(row, measure, quick=quick)
        save_report(report, folder / f"{row.name}.json")
        console.print(make_rich_table(report))


def write_page(reports: Sequence[Report], page: Path) -> None:
    """Write the page and draw its plots beside it."""
    plots = {report.name: draw_plots(report, page.parent / PLOTS_FOLDER) for report in reports}
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(make_page(reports, plots), encoding="utf-8")


def draw_plots(report: Report, folder: Path) -> list[tuple[str, str]]:
    """Draw the plots of a report; return their file names and what they show."""
    drawn = []
    for chart in report.charts:
        draw_chart(chart, folder / f"{chart.name}.png")
        drawn.append((f"{chart.name}.png", chart.title))
    durations = [
        in_seconds(figure)
        for figure in report.figures
        if figure.figure.startswith(DRAWN) and figure.unit in ("ms", "s")
    ]
    if durations:
        draw_durations(report.title, durations, folder / f"{report.name}.png")
        drawn.append((f"{report.name}.png", report.title))
    return drawn


if __name__ == "__main__":
    main()
