"""Figures: medians, ratios by turns, bounds and verdicts, and the file they are kept in."""

from pathlib import Path

import pytest
from benchmarks.figures import (
    Chart,
    Figure,
    Report,
    Series,
    Target,
    Verdict,
    compute_ratios,
    format_value,
    in_seconds,
    is_within,
    judge,
    load_report,
    make_figure,
    save_report,
)


def figure(value: float, **changes: object) -> Figure:
    known = {"figure": "f", "workload": "w", "unit": "ratio", "n": 1, "min": value, "max": value}
    return Figure(**{**known, "value": value, **changes})


def test_a_figure_is_the_median_with_the_smallest_and_the_largest() -> None:
    target = Target(goal="<= 2", limit="<= 3")

    found = make_figure("stop", "digits", [5.0, 1.0, 2.0], "ms", target)

    assert found == Figure(
        figure="stop",
        workload="digits",
        value=2.0,
        unit="ms",
        n=3,
        min=1.0,
        max=5.0,
        goal="<= 2",
        limit="<= 3",
    )


def test_a_figure_that_was_never_measured_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'stop' of 'digits' was never measured"):
        make_figure("stop", "digits", [], "ms")


def test_ratios_compare_neighbouring_turns() -> None:
    assert compute_ratios([2.0, 30.0], [1.0, 10.0]) == [2.0, 3.0]


def test_ratios_need_as_many_turns_of_both() -> None:
    with pytest.raises(ValueError, match="shorter"):
        compute_ratios([2.0, 3.0], [1.0])


@pytest.mark.parametrize(
    ("value", "bound", "kept"),
    [(1.0, "<= 1.00", True), (1.01, "<= 1.00", False), (0.99, ">= 0.99", True), (0.98, ">= 0.99", False)],
)
def test_a_bound_is_at_most_or_at_least(value: float, bound: str, kept: bool) -> None:
    assert is_within(value, bound) is kept


@pytest.mark.parametrize("bound", ["1.0", "< 1", "about 1", ""])
def test_any_other_bound_is_refused(bound: str) -> None:
    with pytest.raises(ValueError, match="is no bound"):
        is_within(1.0, bound)


@pytest.mark.parametrize(
    ("value", "goal", "limit", "verdict"),
    [
        (1.0, "<= 1.00", "<= 1.05", Verdict.GOAL),
        (1.02, "<= 1.00", "<= 1.05", Verdict.LIMIT),
        (1.06, "<= 1.00", "<= 1.05", Verdict.MISSED),
        (1.06, "<= 1.00", "", Verdict.MISSED),
        (1.06, "", "", Verdict.NONE),
    ],
)
def test_a_figure_reaches_its_goal_or_keeps_its_limit_or_misses_both(
    value: float, goal: str, limit: str, verdict: Verdict
) -> None:
    assert judge(figure(value, goal=goal, limit=limit)) is verdict


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.00449, "ratio", "1.004"),
        (1234.5, "ms", "1234"),
        (12.345, "ms", "12.3"),
        (1.2345, "s", "1.23"),
        (0.01234, "s", "0.012"),
        (-22.14, "ms", "-22.1"),
    ],
)
def test_numbers_show_what_the_spread_allows(value: float, unit: str, text: str) -> None:
    assert format_value(value, unit) == text


def test_times_are_turned_into_seconds() -> None:
    assert in_seconds(figure(20.0, unit="ms", min=10.0, max=30.0)) == figure(
        0.02, unit="s", min=0.01, max=0.03
    )
    assert in_seconds(figure(2.0, unit="s")) == figure(2.0, unit="s")


def test_what_is_no_time_is_not_turned_into_seconds() -> None:
    with pytest.raises(ValueError, match="measured in steps"):
        in_seconds(figure(2.0, unit="steps"))


def test_a_report_reads_back_as_it_was_saved(tmp_path: Path) -> None:
    report = Report(
        id="B1",
        name="steady_state",
        title="Step time",
        method="In turns.",
        at="2025-01-01 00:00 UTC",
        versions={"torch": "2.13.0"},
        machine={"cores": "2", "load": "0.1"},
        figures=[figure(1.0, goal="<= 1.05")],
        charts=[
            Chart(
                name="c",
                title="t",
                x_label="x",
                y_label="y",
                series=[Series(label="s", points=[(0.0, 1.0)])],
                marks=[(0.5, "request")],
            )
        ],
    )

    save_report(report, tmp_path / "new" / "report.json")

    assert load_report(tmp_path / "new" / "report.json") == report
