"""Checkpoints of whole elastic jobs: whoever dies, whoever loads them, every bit is that of one process."""

import os
import signal
from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import REAL_ENTRY, Outcome, begin_job, end_job, run_alone, wait_for_step

from elastane.agent.settings import AgentSettings, WorkerSettings
from elastane.jobs.registry import reopen_job
from elastane.model.records import CheckpointPlan, JobStatus, Recovery, Spec
from elastane.observe.metrics import read_metrics
from elastane.store.open import open_store

pytestmark = pytest.mark.process

SIZE = ("--samples", "4011", "--epochs", "2")
EVERY_20 = CheckpointPlan(every_steps=20, every_s=None)
SETTINGS = AgentSettings(workers=WorkerSettings(checkpoints=EVERY_20))


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


@pytest.mark.parametrize(("before", "after"), [(1, 3), (2, 1), (3, 2)])
def test_a_job_that_was_ended_at_once_is_resumed_from_its_newest_checkpoint_by_any_number_of_workers(
    tmp_path: Path, alone: Outcome, before: int, after: int
) -> None:
    with nothing_left_behind():
        job = begin_patient(tmp_path, workers=before)
        job.wait_event("checkpoint_saved", workers=before)
        job.agent.request_stop()
        job.agent.request_stop()
        status = job.end()
        assert isinstance(status, JobStatus)
        with open_store(f"sqlite://{job.home}/store.db") as store:
            reopen_job(store, job.info.job, Spec(wanted=after))
        again = World.attach(job.home, job.info, SETTINGS, slots=8, **REAL_ENTRY)
        again.thread.start()
        again.wait_event("restored")
        hurry(tmp_path)
        assert end_job(again) == alone
    assert steps_in_metrics(again) == list(range(len(alone.curve)))


def test_with_checkpoint_recovery_the_loss_of_one_sends_all_back(tmp_path: Path, alone: Outcome) -> None:
    with nothing_left_behind():
        job = begin_patient(tmp_path, workers=2, recovery=Recovery.CHECKPOINT)
        job.wait_event("checkpoint_saved", count=2)
        victim = next(iter(job.picture().view.members.values()))
        os.kill(victim.pid, signal.SIGKILL)
        restored = job.wait_event("restored")
        hurry(tmp_path)
        assert end_job(job) == alone
    assert restored.fields["step"] in [e.fields["step"] for e in job.events("checkpoint_saved")]
    assert steps_in_metrics(job) == list(range(len(alone.curve)))


def test_a_job_without_a_checkpoint_begins_again_at_the_first_step(tmp_path: Path, alone: Outcome) -> None:
    with nothing_left_behind():
        job = begin_patient(tmp_path, workers=2, plan=CheckpointPlan(every_s=None))
        wait_for_step(job, 10)
        kill_all(job)
        restored = job.wait_event("restored")
        hurry(tmp_path)
        assert end_job(job) == alone
    assert (restored.fields["step"], restored.fields["reason"]) == (0, "no checkpoint: from the beginning")
    assert steps_in_metrics(job) == list(range(len(alone.curve)))
