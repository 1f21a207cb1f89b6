"""What reads a job that is measured: over a real store and real files, while nothing runs."""

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from elastane.cli import profile_run
from elastane.cli.home import Home
from elastane.cli.output import Output
from elastane.cli.profile_run import Finding, Reader
from elastane.core.profiling import fingerprint_model
from elastane.core.view import encode
from elastane.jobs.registry import NewJob, create_job
from elastane.model.errors import ProfileMismatchError, StoreError
from elastane.model.profile import AllocationPoint, MeasuredProfile
from elastane.model.records import JobInfo, JobKeys, Launch, ModelSignature, ProfilePlan, Spec
from elastane.observe.events import EventLog
from elastane.observe.metrics import MetricsLog, MetricsRecord
from elastane.store.base import Put
from elastane.store.open import open_store

DEADLINE_S = 60.0
PLAN = ProfilePlan(allocations=(2, 1), steps=5)
SIGNATURE = ModelSignature(virtual_workers=8, entries=(("weight", "float32 [2]"),))
POINT = AllocationPoint(
    workers=4,
    samples_per_s=10.0,
    efficiency=1.0,
    steps=5,
    samples_per_step=8,
    step_time_s=0.8,
    step_time_low_s=0.7,
    step_time_high_s=0.9,
    rss_bytes=1,
)
BASE = MeasuredProfile(
    elastane="0.1.0",
    name="digits",
    script="digits.py",
    made_at="2026-11-30 12:00:00 UTC",
    model=fingerprint_model(SIGNATURE),
    virtual_workers=8,
    device_type="NVIDIA H200",
    machine="x86_64",
    skipped_steps=3,
    points=(POINT,),
)


class Supervisor:
    """Stand in for what runs the agent."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.orders = 0

    def end_at_once(self) -> None:
        self.orders += 1
        self.ended.set()


class World:
    """A job in a home, as its workers would fill it with events and metrics."""

    def __init__(self, folder: Path) -> None:
        script = folder / "train.py"
        script.write_text("x = 1\n")
        self.home = Home(path=folder / "home")
        self.home.path.mkdir()
        self.finding = Finding(script=script, arguments=(), plan=PLAN, launch=Launch())
        new = NewJob(name="profile", script=str(script), spec=Spec(wanted=2, minimum=2))
        with open_store(self.home.store_url) as store:
            self.info: JobInfo = create_job(store, self.home.path, new)
        self.supervisor = Supervisor()
        self.events = EventLog(Path(self.info.directory), "w1")
        self.metrics = MetricsLog(Path(self.info.directory))

    def read(self, base: MeasuredProfile | None = None, home: Home | None = None) -> Reader:
        finding = Finding(script=self.finding.script, arguments=(), plan=PLAN, launch=Launch(), base=base)
        reader = Reader(
            home or self.home,
            self.info,
            finding,
            self.supervisor,  # type: ignore[arg-type]
            Output(as_json=False),
        )
        reader.start()
        return reader

    def tell_signature(self, signature: ModelSignature = SIGNATURE) -> None:
        with open_store(self.home.store_url) as store:
            store.transact(puts=[Put(key=JobKeys(self.info.job).signature, value=encode(signature))])

    def tell_memory(self, worker: str, generation: int, device_type: str = "cpu") -> None:
        self.events.append(
            "memory_measured",
            worker=worker,
            generation=generation,
            workers=2,
            rss_bytes=100,
            device_bytes=None,
            device_type=device_type,
        )

    def tell_steps(self, generation: int, workers: int, first: int) -> None:
        for step in range(first, first + 5):
            record = MetricsRecord(
                step=step,
                epoch=0,
                at_s=0.0,
                generation=generation,
                workers=workers,
                step_time_s=0.1,
                samples=8,
            )
            self.metrics.append(record)
        self.metrics.flush()
        self.events.append(
            "allocation_measured",
            worker="w1",
            generation=generation,
            workers=workers,
            first_step=first,
            last_step=first + 4,
            reason="",
        )

    def close(self) -> None:
        self.events.close()
        self.metrics.close()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.close()


def test_the_job_is_ended_when_all_sizes_are_told_and_each_is_said_once(
    job: World, capsys: pytest.CaptureFixture[str]
) -> None:
    reader = job.read()
    for worker in ("w1", "w2"):
        job.tell_memory(worker, 1)
    job.tell_steps(1, 2, 0)
    job.tell_memory("w1", 2)
    job.tell_steps(2, 1, 10)
    assert job.supervisor.ended.wait(DEADLINE_S)
    reader.finish()
    assert (reader.told_all, reader.interrupted, reader.error, job.supervisor.orders) == (
        True,
        False,
        None,
        1,
    )
    assert [allocation.steps.workers for allocation in reader.complete_allocations()] == [2, 1]
    assert capsys.readouterr().err == (
        "2 workers: 80 samples/s, 100 ms a step\n1 worker: 80 samples/s, 100 ms a step\n"
    )


def test_a_size_of_which_something_was_lost_does_not_keep_the_job_running(
    job: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profile_run, "PATIENCE_S", 0.0)
    reader = job.read()
    job.tell_memory("w1", 1)  # and w2 was killed before it could tell
    job.tell_steps(1, 2, 0)
    job.tell_memory("w1", 2)
    job.tell_steps(2, 1, 10)
    assert job.supervisor.ended.wait(DEADLINE_S)
    reader.finish()
    assert (reader.told_all, reader.gave_up, reader.error, job.supervisor.orders) == (False, True, None, 1)
    assert [allocation.steps.workers for allocation in reader.complete_allocations()] == [1]


def test_what_is_told_at_the_very_end_is_read_too(job: World) -> None:
    reader = job.read()
    job.tell_memory("w1", 2)
    job.tell_steps(2, 1, 10)
    reader.finish()
    assert [allocation.steps.workers for allocation in reader.complete_allocations()] == [1]
    assert not reader.told_all
    assert not reader.gave_up


def test_a_signal_ends_the_job_at_once(job: World) -> None:
    reader = job.read()
    reader.interrupt()
    reader.finish()
    assert (reader.interrupted, job.supervisor.orders) == (True, 1)


@pytest.mark.parametrize(
    ("changes", "device_type", "message"),
    [
        ({"entries": ()}, "NVIDIA H200", "belongs to another model or optimizer"),
        ({"virtual_workers": 4}, "NVIDIA H200", "has 8 virtual workers, this job 4"),
        ({}, "cpu", "was taken on NVIDIA H200, this machine has cpu; write another file with --out"),
    ],
)
def test_figures_that_cannot_be_added_to_a_profile_end_the_job(
    job: World, changes: dict[str, object], device_type: str, message: str
) -> None:
    reader = job.read(BASE)
    job.tell_memory("w1", 1, device_type)
    job.tell_signature(msgspec.structs.replace(SIGNATURE, **changes))
    assert job.supervisor.ended.wait(DEADLINE_S)
    reader.finish()
    assert isinstance(reader.error, ProfileMismatchError)
    assert message in str(reader.error)


def test_figures_of_the_same_model_and_device_may_be_added(job: World) -> None:
    reader = job.read(msgspec.structs.replace(BASE, device_type="cpu"))
    job.tell_signature()
    for worker in ("w1", "w2"):
        job.tell_memory(worker, 1)
    job.tell_steps(1, 2, 0)
    job.tell_memory("w1", 2)
    job.tell_steps(2, 1, 10)
    assert job.supervisor.ended.wait(DEADLINE_S)
    reader.finish()
    assert (reader.told_all, reader.error) == (True, None)


def test_a_store_that_cannot_be_read_ends_the_job(job: World, tmp_path: Path) -> None:
    reader = job.read(home=Home(path=tmp_path / "nowhere"))
    assert job.supervisor.ended.wait(DEADLINE_S)
    reader.finish()
    assert isinstance(reader.error, StoreError | OSError)
