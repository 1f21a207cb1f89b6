"""Drills on real jobs: the report tells what happened, and the job comes to the result it would have had."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from agent_world import DEADLINE_S, nothing_left_behind, wait_for
from elastic_world import Outcome
from kill_world import KillJob, run_quietly

pytestmark = pytest.mark.process

STEPS = 1500
STEPS_AT_STAKE = 5


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_quietly(tmp_path_factory.mktemp("alone"), STEPS)


def begin_job(folder: Path, workers: int = 3) -> KillJob:
    job = KillJob.begin(folder, STEPS, workers=workers)
    job.settle()
    return job


@contextmanager
def drilling(job: KillJob, *flags: str) -> Iterator[subprocess.Popen[str]]:
    """Run the command on a job meanwhile."""
    command = [sys.executable, "-m", "elastane.cli.main", "chaos", "job", "--home", str(job.world.home)]
    with subprocess.Popen(
        [*command, "--json", *flags], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        yield process


def read_report(process: subprocess.Popen[str], code: int) -> dict[str, object]:
    out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, err
    report: dict[str, object] = json.loads(out)
    return report


def test_drills_tell_what_they_did_and_change_no_bit(tmp_path: Path, expected: Outcome) -> None:
    with nothing_left_behind():
        job = begin_job(tmp_path / "job")
        with drilling(job, "--kill-every", "1s", "--for", "3s", "--seed", "5") as process:
            kills = read_report(process, 0)
        job.settle()
        with drilling(job, "--freeze", "--for", "10m", "--kill-every", "1s", "--seed", "5") as process:
            frozen = str(job.world.wait_event("drill", harm="freeze").fields["worker"])
            process.send_signal(signal.SIGINT)
            freezes = read_report(process, 0)
        job.settle()
        assert job.finish() == expected
    drills = kills["drills"]
    assert isinstance(drills, list)
    assert (kills["harmless"], kills["seed"], kills["missing_steps"]) == (True, 5, 0)
    assert len(drills) + len(kills["spared"]) == 3  # type: ignore[arg-type]
    assert all(drill["next_commit_s"] > 0 and drill["steps_repeated"] <= 1 for drill in drills)
    assert {drill["worker"] for drill in drills} <= set(job.exits())
    assert freezes["harmless"] is True
    assert [drill["worker"] for drill in freezes["drills"]] == [frozen]  # type: ignore[attr-defined]
    assert job.exits().keys() == {*(drill["worker"] for drill in drills), frozen}


def test_the_last_worker_is_harmed_only_if_somebody_insists(tmp_path: Path, expected: Outcome) -> None:
    with nothing_left_behind():
        job = begin_job(tmp_path / "job", workers=1)
        wait_for("some steps", lambda: job.step() > STEPS_AT_STAKE)
        with drilling(job, "--for", "1s", "--kill-every", "1s") as process:
            refusal = read_report(process, 4)
        with drilling(job, "--for", "1s", "--kill-every", "1s", "--yes") as process:
            report = read_report(process, 1)
        job.settle()
        assert job.finish().digest == expected.digest  # begun anew: nothing but time was lost
    assert "alone holds the training state" in str(refusal["error"])
    assert report["harmless"] is False
    (drill,) = report["drills"]  # type: ignore[misc]
    assert drill["steps_repeated"] > STEPS_AT_STAKE
    assert f"{drill['steps_repeated']} committed steps were trained again" in drill["trouble"]
