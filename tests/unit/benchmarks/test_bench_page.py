"""The page and the tables that it is made of, and the plots."""

from pathlib import Path

from benchmarks import steady_state, store_latency
from benchmarks.figures import Chart, Figure, Report, Series, Target, make_figure, save_report
from benchmarks.page import make_page
from benchmarks.plots import draw_chart, draw_durations
from benchmarks.run import draw_plots, load_reports, write_page
from benchmarks.tables import make_cells, make_markdown_table, make_rich_table

STOP = make_figure("stop, 1 -> 2", "digits", [3.0, 4.0, 9.0], "ms", Target(goal="<= 5"))
RATIO_TARGET = Target(goal="<= 1.03", limit="<= 1.05")
RATIO = make_figure("step time / DDP", "digits", [1.02, 1.04, 1.1], "ratio", RATIO_TARGET)
CHART = Chart(
    name="timeline-digits",
    title="digits grows",
    x_label="s",
    y_label="ms",
    series=[Series(label="1 worker", points=[(0.0, 5.0), (1.0, 7.0)])],
    marks=[(0.5, "request")],
)


def report(name: str, *figures: Figure, **changes: object) -> Report:
    known: dict[str, object] = {
        "id": "B9",
        "title": "A question",
        "method": "Measured so.",
        "at": "2025-01-01 00:00 UTC",
        "versions": {"torch": "2.13.0"},
        "machine": {"cores": "2", "load": "0.1"},
    }
    return Report(**{**known, "name": name, "figures": list(figures), **changes})


def test_a_figure_has_a_cell_for_each_column() -> None:
    assert make_cells(STOP) == ("stop, 1 -> 2", "digits", "4.00 ms", "3.00 .. 9.00", "3", "<= 5", "", "goal")


def test_a_ratio_has_no_unit() -> None:
    assert make_cells(RATIO)[2:5] == ("1.040", "1.020 .. 1.100", "3")


def test_a_markdown_table_has_a_heading_and_a_line_for_each_figure() -> None:
    assert make_markdown_table([RATIO]).splitlines() == [
        "| figure | workload | median | min .. max | n | goal | limit | reached |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| step time / DDP | digits | 1.040 | 1.020 .. 1.100 | 3 | <= 1.03 | <= 1.05 | limit |",
    ]


def test_a_table_for_the_terminal_has_a_row_for_each_figure() -> None:
    table = make_rich_table(report("stop_time", STOP, RATIO))

    assert (table.row_count, table.title) == (2, "B9  A question")


def test_the_page_has_the_machine_and_a_section_for_each_row() -> None:
    page = make_page([report("stop_time", STOP, remarks="Why.")], {"stop_time": [("stop_time.png", "Stops")]})

    assert page.startswith("# Benchmarks\n")
    assert page.partition("## Machine and versions")[2].splitlines() == [
        "",
        "",
        "- Machine: cores 2",
        "- Versions: torch 2.13.0",
        "",
        "## B9: A question",
        "",
        "Measured so.",
        "",
        "`python -m benchmarks.stop_time`, 2025-01-01 00:00 UTC, load 0.1.",
        "",
        *make_markdown_table([STOP]).splitlines(),
        "",
        "Why.",
        "",
        "![Stops](benchmarks/stop_time.png)",
    ]


def test_the_page_says_so_if_a_row_was_measured_quickly() -> None:
    assert "--quick`: their figures" in make_page([report("a", STOP, quick=True)], {})
    assert "--quick`: their figures" not in make_page([report("a", STOP)], {})


def test_rows_measured_on_two_machines_name_both() -> None:
    other = report("b", STOP, machine={"cores": "64", "load": "0"})

    page = make_page([report("a", STOP), other], {})

    assert "- Machine: cores 2\n- Machine: cores 64\n- Versions" in page


def is_png(path: Path) -> bool:
    return path.read_bytes().startswith(b"\x89PNG")


def test_charts_and_durations_are_drawn(tmp_path: Path) -> None:
    negative = make_figure("stop, 2 -> 1", "digits", [-0.1], "s")

    draw_chart(CHART, tmp_path / "chart.png")
    draw_durations("Stops", [negative, STOP], tmp_path / "durations.png")

    assert is_png(tmp_path / "chart.png")
    assert is_png(tmp_path / "durations.png")


def test_a_report_has_a_plot_for_each_chart_and_one_for_its_durations(tmp_path: Path) -> None:
    drawn = draw_plots(report("stop_time", STOP, RATIO, charts=[CHART]), tmp_path)

    assert drawn == [("timeline-digits.png", "digits grows"), ("stop_time.png", "A question")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stop_time.png", "timeline-digits.png"]


def test_a_report_without_durations_has_no_plot_of_them(tmp_path: Path) -> None:
    assert draw_plots(report("steady_state", RATIO), tmp_path) == []


def test_the_page_and_its_plots_are_written_side_by_side(tmp_path: Path) -> None:
    write_page([report("stop_time", STOP)], tmp_path / "docs" / "benchmarks.md")

    page = (tmp_path / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert "![A question](benchmarks/stop_time.png)" in page
    assert is_png(tmp_path / "docs" / "benchmarks" / "stop_time.png")


def test_reports_are_read_in_the_order_of_the_page_and_told_in_the_words_of_today(tmp_path: Path) -> None:
    for name in ("store_latency", "steady_state", "unknown"):
        save_report(report(name, STOP, method="As it was said once."), tmp_path / f"{name}.json")

    reports = load_reports(tmp_path)

    assert [found.name for found in reports] == ["steady_state", "store_latency"]
    assert [found.method for found in reports] == [steady_state.ROW.method, store_latency.ROW.method]
