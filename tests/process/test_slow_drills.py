"""Drills that make a worker of a real job slow: it is, it is found and relieved, and no bit changes.

Each turn of a virtual worker sleeps until the test lets the job hurry: times that a busy machine does not
blur.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_world import DEADLINE_S, World, nothing_left_behind, wait_for
from elastic_world import begin_job, end_job, run_alone, wait_for_step

from elastane.observe.events import Event

pytestmark = pytest.mark.process

SIZE = ("--samples", "12016", "--epochs", "1", "--virtual-workers", "8")
"""300 steps of eight virtual workers, and a short one: a minute at least, unless the job may hurry."""
TIMES = 4.0


@contextmanager
def drilling(job: World, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command on a job meanwhile; its time is longer than the test may take."""
    command = [sys.executable, "-m", "elastane.cli.main", "chaos", "job", "--home", str(job.home), "--json"]
    with subprocess.Popen(
        [*command, "--for", "1h", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def begin_slow(folder: Path, marks: Path, stragglers: str) -> World:
    """Start a job of two workers that does not hurry, and wait until it trains."""
    job = begin_job(folder, *SIZE, "--marks", str(marks), workers=2, stragglers=stragglers)
    wait_for_step(job, 5)
    return job


def wait_after(job: World, earlier: Event, kind: str, **fields: object) -> Event:
    """Wait for an event that follows another."""

    def look() -> list[Event]:
        return [event for event in job.events(kind, **fields) if event.at_s > earlier.at_s]

    wait_for(f"{kind} {fields}", look)
    return look()[0]


def test_a_worker_that_is_made_slow_is_found_and_relieved_and_no_bit_changes(tmp_path: Path) -> None:
    expected = run_alone(tmp_path / "alone", *SIZE)
    with nothing_left_behind():
        job = begin_slow(tmp_path / "elastic", tmp_path, "rebalance")
        with drilling(job, "--slow", f"w2={TIMES:g}") as process:
            slowed = job.wait_event("slowed")
            found = wait_after(job, slowed, "straggler", action="rebalance")
            wait_after(job, found, "switched")
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=DEADLINE_S)
            assert process.returncode == 0, err
        job.wait_event("slowed_no_more")
        (tmp_path / "go").touch()
        assert end_job(job) == expected
    report = json.loads(out)
    assert (slowed.fields["worker"], slowed.fields["factor"]) == ("w2", TIMES)
    (one,) = report["slowed"]
    assert (report["passed"], report["missing_steps"], one["worker"], one["answer"]) == (
        True,
        0,
        "w2",
        "rebalance",
    )
    assert 0 < one["found_after"] <= one["answered_after"] <= one["steps"]
    pace = report["throughput"]
    # Of a step that takes 4 times as long a quarter is left; a busy machine may shift what is measured.
    assert pace["slow"] < pace["before"] / 2
    assert pace["slow"] < pace["afterwards"]


def test_nobody_stays_slow_when_the_command_is_killed(tmp_path: Path) -> None:
    with nothing_left_behind():
        job = begin_slow(tmp_path / "elastic", tmp_path, "off")
        with drilling(job, "--slow", f"1={TIMES:g}") as process:
            drill = job.wait_event("slowed", worker="w2").fields["drill"]
            process.kill()
            process.communicate(timeout=DEADLINE_S)
            ended = job.wait_event("slowed_no_more", worker="w2").fields
        (tmp_path / "go").touch()
        end_job(job)
    assert (ended["drill"], ended["reason"]) == (drill, "the drill is over")
