"""Other ends than a kill: freezes, hangs, exceptions, no memory. The others go on, or the job says why."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_world import nothing_left_behind, wait_for
from elastic_world import Outcome
from kill_points import NEWCOMER
from kill_world import KillJob, run_quietly

from elastane.model.exits import EXIT_FENCED
from elastane.model.records import JobPhase

pytestmark = pytest.mark.process

STEPS = 1500
MEMORY_CONTROLLER = Path("/sys/fs/cgroup/memory")
MEMORY_BYTES = 64 << 20
KILLED = -9


def own_memory_group() -> Path | None:
    """Return the folder of this process's memory cgroup (version 1) if children can be made in it."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = MEMORY_CONTROLLER / path.lstrip("/")
        if "memory" in controllers.split(",") and os.access(folder, os.W_OK):
            return folder
    return None


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cgroup in which the kernel ends whoever asks for more than 64 MiB."""
    parent = own_memory_group()
    if parent is None:
        pytest.skip("no memory cgroup of version 1 can be made here")
    group = parent / f"elastane-test-{os.getpid()}"
    group.mkdir()
    (group / "memory.limit_in_bytes").write_text(str(MEMORY_BYTES))
    monkeypatch.setenv("KILL_TEST_CGROUP", str(group))
    yield group
    wait_for("the cgroup to be empty", lambda: not (group / "cgroup.procs").read_text())
    group.rmdir()


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run_quietly(tmp_path_factory.mktemp("alone"), STEPS)


def exit_code(job: KillJob, worker: str) -> int:
    """Wait for a worker's end and return its exit code."""
    code: int = job.world.wait_event("worker_exited", worker=worker).fields["code"]
    return code


def test_a_frozen_worker_that_wakes_up_ends_itself_and_is_not_missed(
    tmp_path: Path, expected: Outcome
) -> None:
    codes = []
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", STEPS)
        for victims in (
            {"leader": "exchange"},
            {"main": "update"},
            {"other": "committed"},
            {"other": "forward", NEWCOMER: "receiving"},
        ):
            job.settle()
            for worker in job.order(victims, "freeze"):
                job.await_generation_without(worker)
                job.wake(worker)
                codes.append(exit_code(job, worker))
        job.settle()
        assert job.finish() == expected
    # The agent ends who stays frozen; it may have been quicker than this test on a busy machine.
    assert set(codes) <= {EXIT_FENCED, KILLED}
    assert EXIT_FENCED in codes


def test_a_worker_that_hangs_in_native_code_is_left_behind_and_ended(
    tmp_path: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", STEPS)
        job.settle()
        (worker,) = job.order({"leader": "backward"}, "hang")
        job.await_generation_without(worker)
        job.settle()
        assert exit_code(job, worker) == KILLED
        assert job.finish() == expected


def test_a_worker_that_the_kernel_ends_for_want_of_memory_is_replaced(
    tmp_path: Path, small_memory: Path, expected: Outcome
) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path / "job", STEPS)
        job.settle()
        job.order({"other": "backward"}, "devour")
        job.settle()
        assert job.finish() == expected
    assert job.exits() == job.ended
    assert "oom_kill 1" in (small_memory / "memory.oom_control").read_text()


@pytest.mark.parametrize("place", ["fetch", "forward", "backward", "stepped", "update", "updated"])
def test_an_exception_in_one_worker_ends_the_job_with_its_traceback(tmp_path: Path, place: str) -> None:
    with nothing_left_behind():
        job = KillJob.begin(tmp_path, STEPS)
        job.settle()
        (worker,) = job.order({"other": place}, "raise")
        begun_s = time.monotonic()
        status = job.world.end()
    message = "ValueError: this worker fails as it was told"
    assert (status.phase, status.message, status.worker) == (JobPhase.FAILED, message, worker)
    assert status.earlier_generations == 1
    assert time.monotonic() - begun_s < 60.0
    (first,) = job.world.events("script_failed", first=True)
    assert (first.source, first.fields["ends_job"]) == (worker, True)
    assert "in fail" in first.fields["traceback"]
