"""Reports as tables: for a terminal, and in Markdown."""

from collections.abc import Iterable, Sequence

from rich.table import Table

from benchmarks.figures import Figure, Report, Verdict, format_value, judge

COLUMNS = ("figure", "workload", "median", "min .. max", "n", "goal", "limit", "reached")
_STYLES = {Verdict.GOAL: "green", Verdict.LIMIT: "yellow", Verdict.MISSED: "red", Verdict.NONE: ""}


def make_cells(figure: Figure) -> tuple[str, ...]:
    """Return a figure's cells, in the order of `COLUMNS`."""
    unit = "" if figure.unit == "ratio" else f" {figure.unit}"
    low, high = (format_value(value, figure.unit) for value in (figure.min, figure.max))
    return (
        figure.figure,
        figure.workload,
        f"{format_value(figure.value, figure.unit)}{unit}",
        f"{low} .. {high}",
        str(figure.n),
        figure.goal,
        figure.limit,
        judge(figure).value,
    )


def make_rich_table(report: Report) -> Table:
    """Return the report for a terminal; what was reached is coloured."""
    table = Table(title=f"{report.id}  {report.title}")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("figure", "workload", "reached") else "right")
    for figure in report.figures:
        table.add_row(*make_cells(figure), style=_STYLES[judge(figure)])
    return table


def make_markdown_table(figures: Iterable[Figure]) -> str:
    """Return the figures as a Markdown table."""
    rows = [COLUMNS, *(make_cells(figure) for figure in figures)]
    return "\n".join([_line(rows[0]), _line(["---"] * len(COLUMNS)), *map(_line, rows[1:])])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
