"""Elastic jobs under batch policies: no sample is lost or doubled, and numbers of workers decide the bits."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from itertools import chain
from pathlib import Path

import pytest
from agent_world import DEADLINE_S, World, nothing_left_behind
from elastic_world import REAL_ENTRY, wait_for_step

from elastane.agent.settings import AgentSettings, WorkerSettings
from elastane.jobs.registry import reopen_job
from elastane.jobs.requests import read_picture, request_leave, request_scale, request_stop
from elastane.model.errors import ConfigError
from elastane.model.ids import WorkerId
from elastane.model.records import JobPhase, JobStatus, Spec
from elastane.observe.metrics import MetricsRecord, read_metrics
from elastane.store.open import open_store

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).parent / "policy_script.py"
SAMPLES = 211
FIXED = "FixedGlobal(20)"
CAPPED = "CappedLocal(local=5, max_global=13, lr_rule='linear', lr_batch=5)"


def begin_job(folder: Path, policy: str, *flags: str, workers: int = 1) -> World:
    """Start a job that trains slowly until it is told to hurry."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = ("--policy", policy, "--samples", str(SAMPLES), "--marks", str(folder), *flags)
    return World.begin(
        folder,
        SCRIPT.read_text(),
        Spec(wanted=workers),
        AgentSettings(),
        arguments=arguments,
        slots=8,
        **REAL_ENTRY,
    )


def resume_job(folder: Path, stopped: World, workers: int) -> World:
    with open_store(f"sqlite://{folder}/store.db") as store:
        reopen_job(store, stopped.info.job, Spec(wanted=workers))
    world = World.attach(folder, stopped.info, AgentSettings(workers=WorkerSettings()), slots=8, **REAL_ENTRY)
    world.thread.start()
    return world


def end_job(job: World, folder: Path) -> tuple[list[MetricsRecord], str]:
    """Let the job hurry; return its steps and the one digest that all of its workers came to."""
    (folder / "go").touch()
    status = job.end()
    directory = Path(job.info.directory)
    logs = "".join(path.read_text() for path in sorted((directory / "logs").glob("w*.log")))
    assert isinstance(status, JobStatus)
    assert status.phase is JobPhase.FINISHED, (status, logs)
    (digest,) = set(re.findall(r"^digest (\S+)$", logs, re.MULTILINE))
    return read_metrics(directory), digest


def replay(
    folder: Path, policy: str, steps: list[MetricsRecord], *more: str
) -> tuple[list[MetricsRecord], str]:
    """Train in one process with the numbers of workers that a run had."""
    folder.mkdir()
    counts = json.dumps([step.workers for step in steps])
    flags = ("--policy", policy, "--samples", str(SAMPLES), "--epochs", str(steps[-1].epoch + 1), *more)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *flags, "--replay", counts],
        env={**os.environ, "ELASTANE_METRICS": str(folder), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (digest,) = re.findall(r"^digest (\S+)$", done.stdout, re.MULTILINE)
    return read_metrics(folder), digest


def numbers_of(steps: list[MetricsRecord]) -> list[tuple[object, ...]]:
    return [(s.step, s.epoch, s.samples, s.lr_scale, sorted(s.values.items()), s.shards) for s in steps]


def check_samples(folder: Path, steps: list[MetricsRecord]) -> None:
    """Check that the committed parts of every epoch are the data set, each sample once."""
    lines = chain.from_iterable(path.read_text().splitlines() for path in folder.glob("parts-*"))
    parts = [json.loads(line) for line in lines]
    committed = {(step.generation, step.step) for step in steps}
    trained: dict[int, Counter[int]] = {}
    for generation, step, epoch, indices in parts:
        if (generation, step) in committed:
            trained.setdefault(epoch, Counter()).update(indices)
    assert set(trained) == {step.epoch for step in steps}
    assert all(counts == Counter(range(SAMPLES)) for counts in trained.values())
    assert sum(step.samples for step in steps) == SAMPLES * len(trained)


def kill(job: World, worker: WorkerId) -> None:
    os.kill(read_picture(job.store, job.info.job).view.members[worker].pid, signal.SIGKILL)
    job.wait_event("worker_exited", worker=worker, code=-signal.SIGKILL)


@pytest.mark.parametrize(
    ("policy", "flags"),
    [
        (FIXED, ()),
        (CAPPED, ()),
        (FIXED, ("--shards", "found")),
        (CAPPED, ("--shards", "told", "--num-workers", "1")),
    ],
)
def test_over_joins_leaves_and_a_kill_every_sample_is_trained_once_and_counts_decide_the_bits(
    tmp_path: Path, policy: str, flags: tuple[str, ...]
) -> None:
    folder = tmp_path / "job"
    with nothing_left_behind():
        job = begin_job(folder, policy, *flags)
        wait_for_step(job, 5)
        request_scale(job.store, job.info.job, 3)
        job.wait_event("switched", workers=3)
        victim = job.wait_event("joined", count=3).fields["worker"]
        wait_for_step(job, len(read_metrics(Path(job.info.directory))) + 5)
        kill(job, victim)
        job.wait_event("switched", mode="recovery")
        job.wait_event("joined", count=4)  # the replacement
        first = job.events("joined")[0].fields["worker"]
        request_leave(job.store, job.info.job, first)  # with vrank 0, and probably the leader
        job.wait_event("left", worker=first)
        request_scale(job.store, job.info.job, 1)
        job.wait_event("switched", workers=1, mode="planned")
        steps, digest = end_job(job, folder)
    check_samples(folder, steps)
    assert {step.workers for step in steps} >= {1, 2, 3}
    played, replayed_digest = replay(tmp_path / "replay", policy, steps, *flags)
    assert numbers_of(steps) == numbers_of(played)
    assert digest == replayed_digest


def test_workers_that_die_while_all_tell_what_they_found_of_shards_cost_no_sample(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    places = ["look_ahead 1", "learn 2", "look_ahead 3", "learn 4"]
    flags = ("--shards", "found", "--deaths", json.dumps(places))
    with nothing_left_behind():
        job = begin_job(folder, "FixedGlobal(8)", *flags, workers=3)
        job.wait_event("worker_exited", count=len(places), code=-signal.SIGKILL)
        steps, digest = end_job(job, folder)
    check_samples(folder, steps)
    played, replayed_digest = replay(tmp_path / "replay", "FixedGlobal(8)", steps, "--shards", "found")
    assert numbers_of(steps) == numbers_of(played)
    assert digest == replayed_digest


def test_the_batch_follows_the_policy_in_every_step(tmp_path: Path) -> None:
    sizes: dict[str, dict[int, set[tuple[int, float]]]] = {}
    for policy in (FIXED, CAPPED):
        folder = tmp_path / policy.partition("(")[0]
        with nothing_left_behind():
            job = begin_job(folder, policy, "--epochs", "12", "--num-workers", "1", workers=2)
            job.wait_event("joined", count=2)
            wait_for_step(job, 4)
            request_scale(job.store, job.info.job, 4)
            job.wait_event("switched", workers=4)
            steps, _ = end_job(job, folder)
        check_samples(folder, steps)
        ends = {step.epoch: step.step for step in steps}
        full = [step for step in steps if step.step != ends[step.epoch]]
        sizes[policy] = {
            workers: {(step.samples, step.lr_scale) for step in full if step.workers == workers}
            for workers in (2, 4)
        }
    assert sizes == {FIXED: {2: {(20, 1.0)}, 4: {(20, 1.0)}}, CAPPED: {2: {(10, 2.0)}, 4: {(13, 2.6)}}}


def test_a_stopped_job_goes_on_at_the_same_sample_with_another_number_of_workers(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with nothing_left_behind():
        job = begin_job(folder, CAPPED, workers=3)
        job.wait_event("joined", count=3)
        wait_for_step(job, 20)
        request_stop(job.store, job.info.job)
        stopped = job.end()
        assert isinstance(stopped, JobStatus)
        assert stopped.phase is JobPhase.STOPPED
        again = resume_job(folder, job, workers=2)
        wait_for_step(again, len(read_metrics(Path(job.info.directory))) + 20)
        steps, digest = end_job(again, folder)
    check_samples(folder, steps)
    played, replayed_digest = replay(tmp_path / "replay", CAPPED, steps)
    assert numbers_of(steps) == numbers_of(played)
    assert digest == replayed_digest


def test_more_workers_than_samples_in_a_step_are_refused_with_the_legal_range(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    with nothing_left_behind():
        job = begin_job(folder, "FixedGlobal(2)", "--epochs", "3")
        job.wait_event("joined")
        with pytest.raises(
            ConfigError, match=r"3 workers asked for; a number in 1\.\.2 is possible \(FixedGlo"
        ):
            request_scale(job.store, job.info.job, 3)
        end_job(job, folder)
        greedy = begin_job(tmp_path / "greedy", "FixedGlobal(2)", workers=3)
        status = greedy.end()
        assert isinstance(status, JobStatus)
        assert status.phase is JobPhase.FAILED
        assert "ask for 1 to 2 workers" in status.message
