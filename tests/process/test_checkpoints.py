"""Checkpoints of whole elastic jobs: whoever dies, whoever loads them, every bit is that of one process."""

import os
import signal
from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import Outcome, begin_job, end_job, run_alone

from elastane.model.records import CheckpointPlan
from elastane.observe.metrics import read_metrics

pytestmark = pytest.mark.process

SIZE = ("--samples", "4011", "--epochs", "2")
EVERY_20 = CheckpointPlan(every_steps=20, every_s=None)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_alone(tmp_path_factory.mktemp("alone"), *SIZE)


def begin_patient(folder: Path, *, workers: int, plan: CheckpointPlan = EVERY_20, **more: object) -> World:
    """Start a job that trains slowly until it is told to hurry."""
    marks = folder / "marks"
    marks.mkdir()
    return begin_job(folder / "job", *SIZE, "--marks", str(marks), workers=workers, checkpoints=plan, **more)


def hurry(folder: Path) -> None:
    (folder / "marks" / "go").touch()


def kill_all(job: World) -> None:
    """Kill all workers of a job at once, as a power cut does."""
    view = job.picture().view
    for member in view.members.values():
        os.kill(member.pid, signal.SIGKILL)


def steps_in_metrics(job: World) -> list[int]:
    return [record.step for record in read_metrics(Path(job.info.directory))]


@pytest.mark.parametrize("workers", [1, 3])
def test_a_job_of_which_everybody_is_killed_goes_on_from_its_newest_checkpoint(
    tmp_path: Path, alone: Outcome, workers: int
) -> None:
    with nothing_left_behind():
        job = begin_patient(tmp_path, workers=workers)
        job.wait_event("checkpoint_saved", count=2)
        kill_all(job)
        restored = job.wait_event("restored")
        hurry(tmp_path)
        assert end_job(job) == alone
    saved = [e.fields["step"] for e in job.events("checkpoint_saved")]
    assert restored.fields["step"] in saved
    assert steps_in_metrics(job) == list(range(len(alone.curve)))
    assert job.events("checkpoint_saved", step=restored.fields["step"])[0].fields["workers"] == workers
