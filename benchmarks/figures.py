"""What a benchmark leaves behind: figures with their spread and goals, and the JSON file they are kept in.

Pure but for `save_report` and `load_report`; knows nothing of how anything is measured.
"""

import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec


class Verdict(StrEnum):
    """Say what a figure has reached."""

    GOAL = "goal"
    """What the project wants to reach."""
    LIMIT = "limit"
    """What a release must keep, but not the goal."""
    MISSED = "missed"
    NONE = ""
    """The figure has neither: it is there for comparison."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what a figure is measured against: texts such as "<= 1.05", empty for nothing."""

    goal: str = ""
    limit: str = ""


NO_TARGET = Target()


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """Hold one figure: the median of `n` measurements, and the smallest and largest of them."""

    figure: str
    workload: str
    value: float
    unit: str
    n: int
    min: float
    max: float
    goal: str = ""
    limit: str = ""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """Describe a row of the benchmark table.

    Attributes:
        id: short name of the question, such as "B1".
        name: module that measures it.
        title: the question.
        method: how it is measured, in sentences.
        remarks: what the figures mean, and why those that miss a goal do.
    """

    id: str
    name: str
    title: str
    method: str
    remarks: str = ""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Hold a curve for a plot: points (x, y) and the label they are shown with."""

    label: str
    points: list[tuple[float, float]]


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one plot shows.

    Attributes:
        name: file name without ending.
        title: heading.
        x_label, y_label: what the axes show, with units.
        series: the curves.
        marks: vertical lines: (x, text).
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: list[Series]
    marks: list[tuple[float, str]] = []


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Hold what one run of one row found, and where."""

    id: str
    name: str
    title: str
    method: str
    remarks: str = ""
    at: str
    """Date and time of the run, UTC."""
    versions: dict[str, str]
    machine: dict[str, str]
    figures: list[Figure]
    charts: list[Chart] = []
    quick: bool = False
    """Measured only to see that the benchmark works."""


def make_figure(
    figure: str, workload: str, values: Sequence[float], unit: str, target: Target = NO_TARGET
) -> Figure:
    """Return the median of `values` with its spread. Raise ValueError if there are none."""
    if not values:
        raise ValueError(f"{figure!r} of {workload!r} was never measured")
    return Figure(
        figure=figure,
        workload=workload,
        value=statistics.median(values),
        unit=unit,
        n=len(values),
        min=min(values),
        max=max(values),
        goal=target.goal,
        limit=target.limit,
    )


def compute_ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return ours / theirs, turn by turn: neighbours in time saw the same machine.

    Raises:
        ValueError: there are not as many of both.
    """
    return [our / their for our, their in zip(ours, theirs, strict=True)]


def is_within(value: float, bound: str) -> bool:
    """Tell whether `value` keeps a bound "<= X" or ">= X". Raise ValueError for any other text."""
    match bound.split():
        case ["<=", text]:
            return value <= float(text)
        case [">=", text]:
            return value >= float(text)
    raise ValueError(f"{bound!r} is no bound; write '<= X' or '>= X'")


def judge(figure: Figure) -> Verdict:
    """Return what the figure's median has reached."""
    if figure.goal and is_within(figure.value, figure.goal):
        return Verdict.GOAL
    if figure.limit and is_within(figure.value, figure.limit):
        return Verdict.LIMIT
    return Verdict.MISSED if figure.goal or figure.limit else Verdict.NONE


def format_value(value: float, unit: str) -> str:
    """Return a number with three significant digits, or three decimals for ratios: what the spread allows."""
    if unit == "ratio":
        return f"{value:.3f}"
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:.0f}"
    if magnitude >= 10:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 else f"{value:.3f}"


def in_seconds(figure: Figure) -> Figure:
    """Return a figure in milliseconds or seconds in seconds. Raise ValueError for any other unit."""
    factors = {"s": 1.0, "ms": 1e-3}
    if figure.unit not in factors:
        raise ValueError(f"{figure.figure!r} is measured in {figure.unit}, which is no time")
    factor = factors[figure.unit]
    return msgspec.structs.replace(
        figure, value=figure.value * factor, min=figure.min * factor, max=figure.max * factor, unit="s"
    )


def save_report(report: Report, path: Path) -> None:
    """Write the report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")


def load_report(path: Path) -> Report:
    """Read a report that `save_report` wrote. Raise msgspec.DecodeError if it is none."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def find_figures(reports: Iterable[Report], figure: str) -> list[Figure]:
    """Return the figures of that name, in the reports' order."""
    return [found for report in reports for found in report.figures if found.figure == figure]
