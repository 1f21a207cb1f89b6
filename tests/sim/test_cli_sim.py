"""`elastane sim` as people type it: what it prints, what it leaves, and how it refuses."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from elastane.cli.sim import sim
from elastane.cli.sim_session import EXIT_INTERRUPTED, EXIT_NO_ROOM, EXIT_SOME_FAILED, EXIT_UNUSABLE

TRACE = "job_id,submit_time,devices,duration,user\n" + "".join(
    f"{i},{i * 60},{1 + i % 4},{200 + 31 * (i % 7)},u{i % 3}\n" for i in range(40)
)


PROGRAM = "import sys; from elastane.cli.main import main; sys.exit(main())"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(TRACE)
    return path


def call(*words: object) -> Result:
    app = typer.Typer()
    app.command()(sim)
    return CliRunner().invoke(app, [*map(str, words)])


def refused(result: Result) -> str:
    """Return the message of a refusal; fail if it is not one, or came with a traceback."""
    assert result.exit_code == EXIT_UNUSABLE, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    return result.stderr


def test_a_comparison_prints_a_table_and_leaves_a_report(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    result = call(trace, "-p", "fifo", "-p", "srtf", "-c", "1x4", "-o", out, "-j", 1)
    assert result.exit_code == 0, result.output
    assert "mean JCT" in result.stdout
    assert "srtf *" in result.stdout
    assert f"Report: {out / 'report.html'}" in result.stdout
    assert "jobs.csv: 40 jobs (format csv)" in result.stderr
    assert (out / "report.html").stat().st_size > 10_000


def test_json_goes_to_standard_output_alone_and_leaves_nothing(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(trace, "-p", "fifo", "-c", "1x4", "--json")
    content = json.loads(result.stdout)
    assert [entry["policy"] for entry in content["policies"]] == ["fifo"]
    assert (result.stderr, sorted(path.name for path in tmp_path.iterdir())) == ("", ["jobs.csv"])


def test_a_seed_gives_the_same_fingerprint_twice_and_another_seed_another(trace: Path) -> None:
    def digest(seed: int) -> str:
        result = call(trace, "-p", "elastic-tiresias", "-c", "1x4", "--json", "--seed", seed)
        return str(json.loads(result.stdout)["policies"][0]["digest"])

    assert digest(1) == digest(1) != digest(2)


def test_left_out_rows_notes_and_warnings_are_printed(tmp_path: Path) -> None:
    path = tmp_path / "dirty.csv"
    path.write_text(TRACE + "x,5,1,-3,u\ny,7,99,10,u\n")
    result = call(path, "-p", "fifo", "-c", "4x64", "-o", tmp_path / "r", "-j", 1)
    assert "41 jobs (format csv), 1 row left out" in result.stderr
    text = " ".join(result.stdout.split())
    assert "left out: 1 x duration is negative (line 42 ('-3'))" in text
    assert "note: 2 row(s) were not in order of submission; sorted" in text or "sorted" in text
    assert "warning: The jobs ask for only" in text


def test_everything_that_can_be_named_is_listed() -> None:
    result = call("--list")
    assert result.exit_code == 0
    for name in ("elastic-tiresias", "slurm", "edl-stop-resume", "pcs-afs"):
        assert name in result.stdout


def test_a_failing_policy_leaves_the_others_and_exit_code_one(trace: Path, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(
        "class Odd:\n    name, clairvoyant = 'odd', False\n    def plan(self, v, now):\n        return None\n"
    )
    result = call(trace, "-p", "fifo", "-p", f"{own}:Odd", "-c", "1x4", "-o", tmp_path / "r", "-j", 1)
    assert result.exit_code == EXIT_SOME_FAILED
    assert "failed: AttributeError" in result.stderr
    assert "fifo" in result.stdout
    assert (tmp_path / "r" / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gone.csv", "-c", "1x4"), "there is no such file"),
        (("TRACE",), "how large is the cluster?"),
        (("TRACE", "-c", "big"), "write NODESxDEVICES"),
        (("TRACE", "-c", "1x4", "-p", "fofi"), "Did you mean 'fifo'?"),
        (("TRACE", "-c", "1x4", "-f", "excel"), "unknown trace format 'excel'"),
        (("TRACE", "-c", "1x4", "-f", "slurm"), "lacks column(s)"),
        (("TRACE", "-c", "1x4", "--overhead", "none at all"), "no overhead model is called"),
        (("TRACE", "-c", "1x4", "--days", "5"), "write FROM:TO"),
        (("TRACE", "-c", "1x4", "--days", "9:2"), "with 0 <= FROM < TO"),
        (("TRACE", "-c", "1x4", "--days", "a:b"), "is not understood"),
        (("TRACE", "-c", "1x4", "--days", "70:80"), "the trace covers days 0 to 0.0"),
        (("TRACE", "-c", "1x4", "--tenant", "eve"), "no job belongs to tenant 'eve'"),
        (("TRACE", "-c", "1x4", "--most-jobs", "9"), "more than 9 jobs"),
        (("TRACE", "-c", "1x4", "--load", "0"), "load is 0.0"),
        (("TRACE", "-c", "1x4", "--load", "nan"), "load is nan"),
        (("TRACE", "-c", "1x4", "--elastic-share", "7"), "elastic share is 7.0"),
        (("TRACE", "-c", "1x4", "--sweep", "load=1,2", "--load", "2"), "another flag fixes it"),
        (("TRACE", "-c", "1x4", "-j", "0"), "at least one process"),
        (("TRACE", "-c", "1x4", "-o", "TRACE"), "is a file; name a folder"),
        (("--format", "slurm"), "without a trace"),
    ],
)
def test_every_refusal_is_one_message_and_exit_code_two(
    trace: Path, words: tuple[str, ...], message: str
) -> None:
    result = call(*(trace if word == "TRACE" else word for word in words))
    assert message in refused(result)


def test_with_json_a_refusal_is_json_too(trace: Path) -> None:
    result = call(trace, "-c", "huge", "--json")
    error = json.loads(result.stdout)["error"]
    assert (result.exit_code, error["kind"], error["exit_code"], result.stderr) == (2, "usage", 2, "")
    assert "write NODESxDEVICES" in error["message"]


def test_a_folder_that_cannot_be_written_is_found_before_anything_runs(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    message = refused(call(trace, "-c", "1x4", "-o", tmp_path / "file" / "report"))
    assert "the report cannot be written to" in message
    assert "40 jobs" not in message


def test_a_cut_off_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv.gz"
    path.write_bytes(gzip.compress(TRACE.encode())[:-20])
    assert "the gzip archive is cut off" in refused(call(path, "-c", "1x4"))


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_under_standard_output_is_one_message(trace: Path, tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "sim", str(trace), "-p", "fifo", "-c", "1x4", "--json"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            check=False,
        )
    assert done.returncode == EXIT_NO_ROOM
    assert "the results cannot be printed: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_without_arguments_the_sample_runs_and_leaves_a_report(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "sim"], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Report: elastane-report/report.html" in done.stdout
    assert (tmp_path / "elastane-report" / "report.html").exists()


SLOW_POLICY = """
import time
class Slow:
    name, clairvoyant = "slow", False
    def plan(self, view, now):
        time.sleep(600)
"""


@pytest.mark.slow
def test_an_interrupt_ends_all_processes_at_once_without_a_report(trace: Path, tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW_POLICY)
    words = [trace, "-c", "1x4", "-j", "2", "-p", "slow.py:Slow", "-p", "fifo", "-o", "out"]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "sim", *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
    ) as running:
        assert running.stderr is not None
        assert "40 jobs" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        rest = running.stderr.read()
    assert running.returncode == EXIT_INTERRUPTED
    assert "interrupted; no report was written." in rest
    assert "Traceback" not in rest
    assert not (tmp_path / "out" / "report.html").exists()


def test_registering_the_command_loads_neither_numpy_nor_matplotlib() -> None:
    heavy = ("numpy", "matplotlib", "torch")
    script = f"import sys, elastane.cli.sim; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
