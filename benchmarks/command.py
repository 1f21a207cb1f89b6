"""The command line that all rows share: `python -m benchmarks.NAME --out FILE.json [--quick]`."""

import argparse
import datetime
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from benchmarks.figures import Chart, Figure, Report, Row, save_report
from benchmarks.machine import collect_versions, describe_machine
from benchmarks.tables import make_rich_table


@dataclass(frozen=True, kw_only=True)
class Findings:
    """Hold what a row has measured."""

    figures: list[Figure]
    charts: list[Chart] = field(default_factory=list)


Measure = Callable[[bool], Findings]
"""Measures a row; the argument tells whether only to see that it works."""


def measure_row(row: Row, measure: Measure, *, quick: bool) -> Report:
    """Measure and say where and when that was."""
    machine = describe_machine()
    began = datetime.datetime.now(datetime.UTC)
    findings = measure(quick)
    return Report(
        id=row.id,
        name=row.name,
        title=row.title,
        method=row.method,
        remarks=row.remarks,
        at=began.strftime("%Y-%m-%d %H:%M UTC"),
        versions=collect_versions(),
        machine=machine,
        figures=findings.figures,
        charts=findings.charts,
        quick=quick,
    )


def run_row(row: Row, measure: Measure) -> None:
    """Be the main function of a row's module."""
    parser = argparse.ArgumentParser(description=f"{row.title} {row.method}")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--quick", action="store_true", help="measure once, to see that it works")
    arguments = parser.parse_args()
    report = measure_row(row, measure, quick=arguments.quick)
    Console().print(make_rich_table(report))
    if arguments.out is not None:
        save_report(report, arguments.out)
