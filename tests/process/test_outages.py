"""What is no death: a store that is away, a thread that hangs, half of the workers frozen, a link cut."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from agent_world import nothing_left_behind, wait_for
from elastic_world import Outcome
from kill_world import KillJob, run_quietly

from elastane.model.exits import EXIT_FENCED

pytestmark = pytest.mark.process

STEPS = 600


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_quietly(tmp_path_factory.mktemp("quiet"), STEPS)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep all others from writing to the store, as a writer does that is stopped in its transaction."""
    with closing(sqlite3.connect(folder / "store.db", isolation_level=None, timeout=60.0)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_a_store_that_is_away_for_less_than_the_lease_is_not_missed(
    tmp_path: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS, lease_s=20.0)
        job.settle()
        with locked(tmp_path):
            job.world.wait_event("store_trouble")
            step = job.step()
            wait_for("training to go on without the store", lambda: job.step() > step)
        job.world.wait_event("store_back")
        assert job.finish() == expected
    assert job.exits() == {}
    assert not job.world.events("switched", mode="recovery")


def test_workers_fence_themselves_when_the_store_is_away_for_longer_and_others_begin_anew(
    tmp_path: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS, workers=2)
        members = {str(m.worker) for m in job.settle().current.members}
        with locked(tmp_path):
            wait_for("all to fence themselves", lambda: _fenced(job) == members)
        job.world.wait_event("committed", mode="restore")
        job.settle()
        assert job.finish().digest == expected.digest
    assert job.exits() == dict.fromkeys(members, EXIT_FENCED)
    for worker in members:
        assert "the store has been out of reach" in job.world.log(worker)


def _fenced(job: KillJob) -> set[str]:
    return {e.fields["worker"] for e in job.world.events("fenced")}


def test_the_job_goes_on_without_a_worker_whose_training_thread_hangs(
    tmp_path: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS, step_timeout_s=5.0)
        job.settle()
        (hung,) = job.order({"other": "forward"}, "stall")
        dismissed = job.world.wait_event("dismissed")
        assert dismissed.fields["workers"] == [hung]
        assert "kept the others waiting for 5 s in step" in dismissed.fields["reason"]
        job.await_generation_without(hung)
        job.world.wait_event("worker_exited", worker=hung)
        job.settle()
        assert job.finish() == expected
    assert job.exits() == {hung: EXIT_FENCED}
    explained = [e for e in job.world.events("waiting") if e.fields["waits_for"] == [hung]]
    assert explained
    assert all(0 < e.fields["until_s"] <= 5.0 for e in explained)


def test_half_of_the_workers_frozen_for_longer_than_their_leases_cost_no_bit(
    tmp_path: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS, workers=4)
        view = job.settle()
        frozen = [m.worker for m in view.current.members[:2]]
        for worker in frozen:
            os.kill(view.members[worker].pid, signal.SIGSTOP)
        for worker in frozen:
            job.await_generation_without(worker)
        for worker in frozen:
            _wake(view.members[worker].pid)
            job.world.wait_event("worker_exited", worker=worker)
        job.settle()
        assert job.finish() == expected
    assert set(job.exits()) == set(frozen)
    assert set(job.exits().values()) <= {EXIT_FENCED, -signal.SIGKILL}


def _wake(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        return  # its agent was faster


def test_a_link_that_is_cut_one_way_without_a_sign_is_built_anew(tmp_path: Path, expected: Outcome) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS)
        members = job.settle().current.members
        job.order({"other": "exchanged"}, "mute")
        broken = job.world.wait_event("switched", mode="recovery")
        job.settle()
        assert job.finish() == expected
    assert job.exits() == {}
    assert broken.fields["workers"] == len(members)
    assert any("the link is cut" in e.fields["reason"] for e in job.world.events("link_broken"))
