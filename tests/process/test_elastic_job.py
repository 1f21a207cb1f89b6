"""Whole elastic jobs in real processes: whatever happens, every bit is that of `python train.py`."""

import contextlib
from pathlib import Path

import pytest
from agent_world import World, nothing_left_behind
from elastic_world import (
    Outcome,
    as_flag,
    begin_job,
    end_job,
    last_step,
    random_plan,
    run_alone,
    switches,
    wait_for_step,
)

from elastane.jobs.requests import request_leave, request_migrate, request_scale
from elastane.model.errors import JobStateError

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_alone(tmp_path_factory.mktemp("alone"))


def begin_patient_job(folder: Path, *flags: str, workers: int = 1) -> tuple[World, Outcome]:
    """Start a job that trains slowly until it is told to hurry, and return what it must come to."""
    size = ("--samples", "4011", "--epochs", "4", *flags)
    expected = run_alone(folder / "alone", *size)
    marks = folder / "marks"
    marks.mkdir()
    return begin_job(folder / "elastic", *size, "--marks", str(marks), workers=workers), expected


def check_reached(plan: list[int], job: World) -> None:
    """Check that all numbers of workers were reached in turn; joiners not ready together add more."""
    counts = iter(e.fields["workers"] for e in switches(job))
    assert all(wanted in counts for wanted in plan)


def go_and_end(job: World, folder: Path) -> Outcome:
    """Let a patient job hurry, and return what came of it."""
    (folder / "marks" / "go").touch()
    return end_job(job)


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_any_number_of_workers_gives_the_bits_of_one_process(
    tmp_path: Path, alone: Outcome, workers: int
) -> None:
    with nothing_left_behind():
        assert end_job(begin_job(tmp_path, workers=workers)) == alone


def test_data_loading_processes_change_nothing(tmp_path: Path, alone: Outcome) -> None:
    with nothing_left_behind():
        assert end_job(begin_job(tmp_path, "--num-workers", "2", "--plan", "[3, 1]", workers=2)) == alone


def test_twenty_random_changes_within_one_epoch_change_nothing(tmp_path: Path) -> None:
    size = ("--samples", "14011", "--epochs", "1")
    plan = random_plan(seed=11, changes=24, most=4)
    expected = run_alone(tmp_path / "alone", *size)
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, "--plan", as_flag(plan))
        assert end_job(job) == expected
    check_reached(plan, job)
    assert not job.events("link_broken")


def test_changes_across_epoch_borders_change_nothing(tmp_path: Path) -> None:
    size = ("--samples", "49", "--epochs", "300")  # three steps an epoch, the last with short batches
    plan = random_plan(seed=5, changes=12, most=4)
    expected = run_alone(tmp_path / "alone", *size)
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, "--plan", as_flag(plan), "--cover", "3")
        assert end_job(job) == expected
    check_reached(plan, job)
    assert {e.fields["step"] % 3 for e in switches(job)} == {0, 1, 2}


def test_changes_asked_for_before_the_first_step_and_at_the_last_steps_change_nothing(
    tmp_path: Path, alone: Outcome
) -> None:
    with nothing_left_behind():
        job = begin_job(tmp_path, workers=2)
        request_scale(job.store, job.info.job, 4)
        request_scale(job.store, job.info.job, 1)
        wait_for_step(job, 42)
        with contextlib.suppress(JobStateError):  # it may have ended meanwhile
            for workers in (3, 2, 4):
                request_scale(job.store, job.info.job, workers)
        assert end_job(job) == alone


def test_a_migration_moves_the_job_to_another_device_without_a_trace(tmp_path: Path) -> None:
    with nothing_left_behind():
        job, expected = begin_patient_job(tmp_path)
        first = job.wait_event("joined").fields["worker"]
        request_migrate(job.store, job.info.job, first, "cpu:5")
        job.wait_event("left", worker=first)
        assert go_and_end(job, tmp_path) == expected
    assert job.events("worker_starting")[-1].fields["device"] == "cpu:5"
    assert [e.fields["workers"] for e in switches(job)] == [1]


def test_the_leader_can_be_sent_away(tmp_path: Path) -> None:
    with nothing_left_behind():
        job, expected = begin_patient_job(tmp_path, workers=3)
        job.wait_event("joined", count=3)
        leader = job.wait_event("leader").source
        request_leave(job.store, job.info.job, leader)
        job.wait_event("left", worker=leader)
        job.wait_event("leader", count=2)
        request_scale(job.store, job.info.job, 3)
        job.wait_event("switched", workers=3, mode="planned")
        assert go_and_end(job, tmp_path) == expected


def test_workers_killed_in_the_middle_of_a_step_cost_no_bit(tmp_path: Path) -> None:
    size = ("--samples", "811", "--epochs", "4")
    expected = run_alone(tmp_path / "alone", *size)
    marks = tmp_path / "marks"
    marks.mkdir()
    flags = ("--deaths", "[0, 3, 1, 0]", "--marks", str(marks))
    with nothing_left_behind():
        job = begin_job(tmp_path / "elastic", *size, *flags, workers=3)
        assert end_job(job) == expected
    assert len(job.events("worker_exited", code=-9)) == 4


@pytest.mark.parametrize(("fault", "event"), [("crash", "script_failed"), ("differ", "script_failed")])
def test_a_joiner_that_fails_costs_the_others_nothing_but_a_log_line(
    tmp_path: Path, fault: str, event: str
) -> None:
    with nothing_left_behind():
        job, expected = begin_patient_job(tmp_path, "--joiner", fault)
        job.wait_event("joined")
        request_scale(job.store, job.info.job, 2)
        failed = job.wait_event(event)
        assert failed.fields["ends_job"] is False
        request_scale(job.store, job.info.job, 1)
        assert go_and_end(job, tmp_path) == expected
    assert switches(job) == []
    assert not job.events("link_broken")


@pytest.mark.parametrize("fault", ["hang", "slow"])
def test_nobody_waits_for_a_joiner_that_hangs_or_is_slow(tmp_path: Path, fault: str) -> None:
    with nothing_left_behind():
        job, expected = begin_patient_job(tmp_path, "--joiner", fault)
        job.wait_event("joined")
        request_scale(job.store, job.info.job, 2)
        joiner = job.wait_event("worker_started", count=2).fields["worker"]
        step = last_step(job)
        if fault == "slow":  # it sleeps for three seconds: the others take far more than five steps meanwhile
            assert job.wait_event("joined", worker=joiner).fields["step"] >= step + 5
        else:
            wait_for_step(job, step + 20)
            assert switches(job) == []
            request_scale(job.store, job.info.job, 1)
            job.wait_event("worker_exited", worker=joiner)
        assert go_and_end(job, tmp_path) == expected


def test_a_hundred_changes_leave_processes_threads_descriptors_and_the_store_as_they_were(
    tmp_path: Path,
) -> None:
    plan = [2, 1] * 50
    counts = tmp_path / "inventory"
    size = ("--samples", "72011", "--epochs", "1")  # on a slow machine a join takes many steps
    with nothing_left_behind():
        job = begin_job(tmp_path / "job", *size, "--plan", as_flag(plan), "--inventory", str(counts))
        end_job(job, patience=5)
    check_reached(plan, job)
    held = [tuple(map(int, line.split())) for line in counts.read_text().splitlines()]
    alone = held[::2]  # as a lone worker, before each scale-out
    threads, descriptors, memory_mb = zip(*alone, strict=True)
    # A thread may take a moment to go after its link was closed: a leak would stay.
    assert min(threads[-10:]) <= min(threads[1:11])
    assert min(descriptors[-10:]) <= min(descriptors[1:11])
    assert (
        memory_mb[-1] - memory_mb[5] < 20
    )  # what the allocators keep; a leaked link takes more in 50 rounds
    assert (tmp_path / "job" / "store.db").stat().st_size < 2 << 20
