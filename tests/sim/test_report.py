"""Reports as files: complete, self-contained, the same for the same results, safe against odd names."""

from __future__ import annotations

import csv
import dataclasses
import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from sim_fakes import small_comparison, small_trace

from elastane.model.errors import ConfigError
from elastane.perf.overhead import PRESETS
from elastane.sim.compare import Failure
from elastane.sim.readers.rows import TraceRow
from elastane.sim.report import build_table, dump_json, render_html, save_report, say_headline
from elastane.sim.report.files import JOB_COLUMNS, name_file
from elastane.sim.report.plots import plot_jct, plot_sweep
from elastane.sim.report.style import colour_of, save_svg, styled
from elastane.sim.report.wording import say_details, say_overhead
from elastane.sim.request import SimRequest, prepare_request, run_request


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report")
    comparison = small_comparison(sweep=("load=1,2", "nodes=1,2"))
    save_report(comparison, path)
    return path


def test_a_report_is_a_page_json_plots_and_a_table_of_jobs_for_each_policy(folder: Path) -> None:
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    tables = {f"jobs-{policy}.csv" for policy in ("fifo", "srtf", "elastic-tiresias")}
    plots = ("allocation", "changes", "devices", "jct", "queue", "regimes", "sizes")
    expected = {
        "report.html",
        "report.json",
        ".elastane-report",
        *tables,
        *(f"plots/{name}.png" for name in plots),
    }
    assert {name for name in names if not name.endswith(".parquet")} == expected


def test_the_page_needs_nothing_from_anywhere(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    fetched = re.findall(r"""(?:src|href)=["']([^"']+)["']|url\(([^)]+)\)|@import""", page)
    targets = {first or second for first, second in fetched}
    assert all(target.startswith(("#", "data:")) for target in targets), targets
    assert "<script" not in page


def test_every_picture_in_the_page_is_well_formed(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    pictures = re.findall(r"<svg.*?</svg>", page, flags=re.DOTALL)
    assert len(pictures) == 7
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("viewBox")
        assert root.get("width") is None


def test_the_page_says_what_came_out_what_was_left_out_and_how_to_repeat_it(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    comparison = small_comparison(sweep=("load=1,2", "nodes=1,2"))
    for text in (
        "instead of",
        "7 &times; duration is negative",
        "line 9 (&#39;-1&#39;)",
        "a note",
        comparison.runs[0].result.digest[:32],
        "elastane sim --policy fifo",
        "speech &amp; text",
    ):
        assert text in page
    assert "speech & text" not in page


class _Nesting(HTMLParser):
    """Check that every tag that opens is closed in its turn."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """Take a tag that closes itself."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()


def test_the_tags_of_the_page_nest(folder: Path) -> None:
    nesting = _Nesting()
    nesting.feed((folder / "report.html").read_text())
    assert nesting.open == []


def test_numbers_and_their_units_stay_on_one_line(folder: Path) -> None:
    page = (folder / "report.html").read_text()
    headline = re.search(r"<h1>(.*?)</h1>", page)
    assert headline is not None
    assert headline.group(1).replace("\u00a0", " ") == say_headline(small_comparison())
    assert re.search(r"\d (%|min|h)", headline.group(1)) is None


def test_the_json_has_the_figures_of_every_policy_and_no_infinities(folder: Path) -> None:
    content = json.loads((folder / "report.json").read_text(), parse_constant=pytest.fail)
    comparison = small_comparison(sweep=("load=1,2", "nodes=1,2"))
    assert [entry["policy"] for entry in content["policies"]] == ["fifo", "srtf", "elastic-tiresias"]
    assert content["policies"][0]["metrics"] == comparison.runs[0].result.metrics.as_dict()
    assert content["policies"][0]["digest"] == comparison.runs[0].result.digest
    assert content["trace"]["left_out"] == [
        {"reason": "duration is negative", "count": 7, "examples": ["line 9 ('-1')"], "expected": False}
    ]
    assert len(content["sweep"]) == 12
    assert {(entry["load"], entry["nodes"]) for entry in content["sweep"]} == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_the_job_table_gives_every_job_with_its_numbers(folder: Path) -> None:
    with (folder / "jobs-fifo.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    jobs = small_comparison().runs[0].result.jobs
    assert list(rows[0]) == ["job_id", "tenant", "profile", *JOB_COLUMNS]
    assert [row["job_id"] for row in rows] == list(jobs.id)
    assert [float(row["jct_s"]) for row in rows] == pytest.approx(jobs.jct_s.tolist(), rel=1e-8)


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is optional")
def test_with_pyarrow_the_job_table_is_there_as_parquet_too(folder: Path) -> None:
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "jobs-fifo.parquet")
    jobs = small_comparison().runs[0].result.jobs
    assert table.column("finish_s").to_pylist() == jobs.finish_s.tolist()


def test_the_same_comparison_gives_the_same_page(tmp_path: Path) -> None:
    comparison = small_comparison()
    first = save_report(comparison, tmp_path / "a").read_bytes()
    assert save_report(comparison, tmp_path / "b").read_bytes() == first


def test_one_policy_alone_and_failures_make_a_page_too(tmp_path: Path) -> None:
    comparison = dataclasses.replace(
        small_comparison(policies=("fifo",)),
        failures=(Failure(policy="own.py", point=None, message="policy <own> failed"),),
        warnings=("mind the gap",),
    )
    page = save_report(comparison, tmp_path / "deep" / "er").read_text()
    assert "No result: policy &lt;own&gt; failed" in page
    assert "mind the gap" in page
    assert "Who gains" not in page


def test_a_sweep_of_one_axis_is_drawn_as_lines_over_its_values() -> None:
    comparison = small_comparison(sweep=("load=1,2,4",))
    policies = ["fifo", "srtf", "elastic-tiresias"]
    with styled():
        (axes,) = plot_sweep(comparison.axes[0], comparison.sweep, policies).axes
    drawn = {str(line.get_label()): line.get_xydata().tolist() for line in axes.lines}
    expected = {
        policy: [
            [run.point.values[0], run.metrics.jct_mean_s] for run in comparison.sweep if run.policy == policy
        ]
        for policy in policies
    }
    assert drawn == expected


def test_many_policies_keep_their_colours_apart() -> None:
    assert len({colour_of(place) for place in range(13)}) == 13


def test_a_folder_that_cannot_be_written_is_said_to_be_so(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ConfigError, match=r"cannot be written to .*Name another folder with --out"):
        save_report(small_comparison(), blocked / "report")


def test_a_new_report_removes_what_the_former_one_left_and_nothing_else(tmp_path: Path) -> None:
    save_report(small_comparison(), tmp_path)
    (tmp_path / "jobs-mine.csv").write_text("my own notes")
    save_report(small_comparison(policies=("fifo",)), tmp_path)
    tables = sorted(path.name for path in tmp_path.glob("jobs-*.csv"))
    assert tables == ["jobs-fifo.csv", "jobs-mine.csv"]
    assert not (tmp_path / "plots" / "changes.png").exists()


def test_a_policy_may_be_called_like_a_formula() -> None:
    runs = tuple(
        dataclasses.replace(run, policy=f"$\\frac{{{run.policy}$ <&>") for run in small_comparison().runs
    )
    with styled():
        picture = save_svg(plot_jct(runs))
    ET.fromstring(picture)
    assert "&lt;&amp;&gt;" in picture


def test_policy_names_make_harmless_file_names() -> None:
    assert name_file("tiresias:limits=500+10000") == "tiresias-limits-500-10000"
    assert name_file("../../etc/my policy.py:Sjf") == "etc-my-policy.py-Sjf"
    assert name_file("::") == "policy"


def test_the_headline_names_the_best_policy_that_needs_no_foresight() -> None:
    comparison = small_comparison()
    means = {run.policy: run.result.metrics.jct_mean_s for run in comparison.runs}
    assert comparison.best_real.policy == "elastic-tiresias"
    assert say_headline(comparison).startswith("Under elastic-tiresias the average job is done")
    assert "instead of" in say_headline(comparison)
    assert means["elastic-tiresias"] < means["fifo"]


def test_a_foresighted_winner_is_told_apart() -> None:
    comparison = small_comparison(policies=("fifo", "srtf"))
    details = " ".join(say_details(comparison))
    assert say_headline(comparison).startswith(
        "Of the policies that a real cluster could use, fifo does best"
    )
    assert "srtf does better still" in details
    assert "which no real cluster knows" in details


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("none", "none: changes and preemptions cost nothing."),
        ("pollux", "pollux: a job stops for 30 s at every change of its devices."),
        ("edl", "edl: devices that join idle for 40 s while the others train on"),
    ],
)
def test_costs_are_said_in_words(name: str, text: str) -> None:
    assert say_overhead(PRESETS[name]).startswith(text)


def test_the_narrow_table_fits_eighty_columns_without_cutting_anything() -> None:
    console = Console(width=80, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(build_table(small_comparison(), wide=False))
    text = console.export_text()
    assert "…" not in text
    assert "elastic-tiresias" in text
    assert "srtf *" in text


def test_infinities_are_null_in_json_and_words_in_the_page() -> None:
    at_once = small_trace(jobs=4)
    rows = tuple(TraceRow(**{**_fields(row), "submit_s": 0.0}) for row in at_once.rows)
    trace = dataclasses.replace(at_once, rows=rows)
    request = SimRequest(policies=("fifo",), cluster="1x8")
    comparison = run_request(request, trace, prepare_request(request, trace), lambda number, share: None)
    assert json.loads(dump_json(comparison), parse_constant=pytest.fail)["offered_load"] is None
    assert say_details(comparison)[0] == "All 4 jobs are submitted at once."


def _fields(row: TraceRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__struct_fields__}


def test_json_needs_no_files() -> None:
    assert json.loads(dump_json(small_comparison()))["cluster"]["devices"] == 8
    assert "<svg" not in render_html(small_comparison(), {})
