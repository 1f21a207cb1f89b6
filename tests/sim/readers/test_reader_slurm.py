"""Slurm histories as sacct really writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from elastane.model.errors import ConfigError
from elastane.sim.readers import read_trace
from elastane.sim.readers.rows import LeftOut, TraceRow
from elastane.sim.readers.slurm import SACCT_COMMAND, count_gres_gpus, count_tres_gpus

HEADER = "JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|State|NNodes|AllocTRES|ReqTRES"


def write(folder: Path, *lines: str) -> Path:
    path = folder / "history.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def job(
    job_id: str, tres: str, *, submit: str = "08:00:00", elapsed: str = "3600", state: str = "COMPLETED"
) -> str:
    return f"{job_id}|ada|vision|gpu|2026-03-02T{submit}|2026-03-02T10:00:00|y|{elapsed}|{state}|1|{tres}|"


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("billing=8,cpu=8,gres/gpu=2,mem=64G,node=1", 2),
        ("billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,node=1", 4),
        ("gres/gpu:a100=4,gres/gpu:v100=2", 6),
        ("cpu=8,gres/gpumem=40G,gres/gpuutil=90,mem=64G", 0),
        ("gres/shard=3", 0),
        ("", 0),
    ],
)
def test_tres_strings_give_the_number_of_gpus(tres: str, gpus: int) -> None:
    assert count_tres_gpus(tres) == gpus


@pytest.mark.parametrize(
    ("gres", "nodes", "gpus"),
    [
        ("gpu:2", 1, 2),
        ("gpu:tesla:4", 2, 8),
        ("gres:gpu:v100:1", 3, 3),
        ("gpu:a100:8(IDX:0-7)", 1, 8),
        ("craynetwork:1", 1, 0),
    ],
)
def test_older_gres_strings_count_per_node(gres: str, nodes: int, gpus: int) -> None:
    assert count_gres_gpus(gres, nodes) == gpus


def test_finished_jobs_become_rows_with_times_from_the_first_submission(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEADER,
        job("100", "cpu=8,gres/gpu=8", submit="09:00:00", elapsed="7200"),
        job("101", "cpu=1,gres/gpu:a100=1", submit="09:00:30", state="FAILED"),
        job("102_7", "gres/gpu=2", submit="09:01:00", state="CANCELLED by 1001"),
        job("103+0", "gres/gpu=4", submit="09:02:00", state="TIMEOUT"),
    )
    trace = read_trace(path)
    assert (trace.format, trace.origin, trace.left_out, trace.notes) == (
        "slurm",
        "2026-03-02 09:00:00",
        (),
        (),
    )
    assert trace.rows == tuple(
        TraceRow(
            line=line,
            job_id=job_id,
            submit_s=at,
            devices=n,
            duration_s=ran,
            tenant="vision",
            waited_s=3600.0 - at,
        )
        for line, job_id, at, n, ran in (
            (2, "100", 0.0, 8, 7200.0),
            (3, "101", 30.0, 1, 3600.0),
            (4, "102_7", 60.0, 2, 3600.0),
            (5, "103+0", 120.0, 4, 3600.0),
        )
    )


def test_everything_that_is_no_finished_gpu_job_is_left_out_with_its_reason(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEADER,
        job("1", "gres/gpu=1"),
        job("1.batch", "gres/gpu=1"),
        job("1.extern", "gres/gpu=1"),
        job("2", "cpu=64"),
        job("3", "gres/gpu=1", state="RUNNING"),
        job("4_[5-10%2]", "gres/gpu=1", state="CANCELLED by 0", elapsed="0"),
        job("5", "gres/gpu=1", state="CANCELLED by 0", elapsed="0"),
        job("6", "gres/gpu=1").replace("2026-03-02T08:00:00", "Unknown"),
        job("7", "gres/gpu=1") + "|half|a|line",
    )
    assert read_trace(path).left_out == (
        LeftOut(
            reason="a job step, part of a job that has its own row",
            count=2,
            examples=("line 3 ('1.batch')", "line 4 ('1.extern')"),
            expected=True,
        ),
        LeftOut(reason="the job used no GPU", count=1, examples=("line 5",), expected=True),
        LeftOut(
            reason="the job has not ended (state RUNNING)",
            count=1,
            examples=("line 6 ('3')",),
            expected=True,
        ),
        LeftOut(
            reason="array tasks that never started",
            count=1,
            examples=("line 7 ('4_[5-10%2]')",),
            expected=True,
        ),
        LeftOut(reason="the job never ran (elapsed 0 s)", count=1, examples=("line 8",), expected=True),
        LeftOut(reason="Submit is missing", count=1, examples=("line 9 ('Unknown')",)),
        LeftOut(reason="the line does not have 12 cells", count=1, examples=("line 10 ('15 cells')",)),
    )


def test_elapsed_clock_times_and_start_and_end_serve_as_well(tmp_path: Path) -> None:
    clock = write(tmp_path, "JobIDRaw|Submit|Elapsed|ReqTRES", "1|2026-03-02T08:00:00|1-00:00:10|gres/gpu=2")
    assert read_trace(clock).rows[0].duration_s == 86410.0
    ends = write(
        tmp_path,
        "JobIDRaw|Submit|Start|End|ReqTRES",
        "1|2026-03-02T08:00:00|2026-03-02T08:00:05|2026-03-02T08:01:05|gres/gpu=2",
    )
    assert read_trace(ends).rows[0].duration_s == 60.0


def test_a_row_without_any_length_or_id_is_a_fault(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|Submit|Elapsed|ReqTRES",
        "1|2026-03-02T08:00:00|01:00:00|gres/gpu=2",
        "|2026-03-02T08:00:00|01:00:00|gres/gpu=2",
        "3|2026-03-02T08:00:00||gres/gpu=2",
        "4|2026-03-02T08:00:00|forever|gres/gpu=2",
    )
    assert [(entry.reason, entry.expected) for entry in read_trace(path).left_out] == [
        ("JobID is missing", False),
        ("Elapsed is missing", False),
        ("Elapsed is not a time like 1-02:03:04", False),
    ]


def test_an_absurd_number_of_gpus_is_a_fault_and_not_a_crash(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        HEADER,
        job("1", "gres/gpu=1"),
        job("2", "gres/gpu=" + "9" * 400),
        job("3", "gres/gpu:a100=" + "9" * 5000),
        job("4", "gres/gpu=2", elapsed="9" * 5000),
    )
    assert [(entry.reason, entry.count) for entry in read_trace(path).left_out] == [
        ("gres/gpu is too large (wrong column?)", 2),
        ("ElapsedRaw is not finite", 1),
    ]


def test_gres_of_older_versions_is_counted_over_all_nodes(tmp_path: Path) -> None:
    path = write(
        tmp_path, "JobID|Submit|Elapsed|NNodes|AllocGRES", "1|2020-03-02T08:00:00|01:00:00|2|gpu:p100:4"
    )
    assert read_trace(path).rows[0].devices == 8


def test_the_trailing_bar_of_sacct_p_is_no_extra_cell(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "|", job("1", "gres/gpu=1") + "|")
    assert [row.job_id for row in read_trace(path).rows] == ["1"]


def test_headers_repeated_by_joined_exports_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, job("1", "gres/gpu=1"), HEADER, job("2", "gres/gpu=1"))
    trace = read_trace(path)
    assert (len(trace.rows), trace.left_out, trace.notes) == (
        2,
        (),
        ("1 repeated header line(s) passed over",),
    )


def test_a_lone_quote_in_a_name_does_not_swallow_the_following_lines(tmp_path: Path) -> None:
    lines = ["JobName|" + HEADER, '"train|' + job("1", "gres/gpu=1"), "x|" + job("2", "gres/gpu=1")]
    assert len(read_trace(write(tmp_path, *lines)).rows) == 2


def test_sacct_output_for_people_is_refused_with_the_right_command(tmp_path: Path) -> None:
    path = write(
        tmp_path, "JobID           JobName  Partition    Account  AllocCPUS", "1  train  gpu  vision  8"
    )
    with pytest.raises(ConfigError) as caught:
        read_trace(path)
    assert SACCT_COMMAND in str(caught.value)


def test_a_history_without_any_gpu_job_says_what_was_found(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER, job("1", "cpu=4"), job("2", "cpu=8"))
    with pytest.raises(
        ConfigError, match=r"no usable job in the file; 2 row\(s\) left out: 2 x the job used no GPU"
    ):
        read_trace(path)
