"""A worker's part in measuring its job, over a real store; posted work runs at once."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from elastane.core.view import encode
from elastane.jobs.requests import read_picture, request_scale
from elastane.model.errors import JobStateError, StoreBusyError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    ProfilePlan,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.metrics import MetricsRecord
from elastane.store.base import Put, Store
from elastane.store.open import open_store
from elastane.worker import profiling
from elastane.worker.calls import OUTAGE, Calls
from elastane.worker.profiling import Profiling, make_profiling

JOB = JobId("j")
KEYS = JobKeys(JOB)
PLAN = ProfilePlan(allocations=(4, 2, 1), steps=5, skipped_steps=3)


class Memory:
    """Stand in for the high-water marks of a process."""

    def __init__(self) -> None:
        self.restarts = 0

    def restart(self) -> None:
        self.restarts += 1

    def read_rss(self) -> int:
        return 100 * self.restarts

    def read_device(self) -> int | None:
        return None

    def name_device(self) -> str:
        return "cpu"


class Job:
    """Play the control of one worker of a job that takes every size it is asked for at once."""

    def __init__(self, store: Store, size: int = 4, *, main: bool = True) -> None:
        self.store = store
        self.context, self.events = self, self
        self.job, self.worker, self.device, self.profile = JOB, WorkerId("w0"), DeviceId("cpu:0"), PLAN
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.step = self.generation = 0
        self.main = main
        self.memory = Memory()
        self.profiling = Profiling(self, PLAN, self.memory)  # type: ignore[arg-type]
        self.calls = Calls()
        put(store, KEYS.spec, Spec(wanted=size, minimum=size))
        self.switch(size)

    def post(self, work: Callable[[Store], object]) -> None:
        self.calls.post(work)
        with suppress(*OUTAGE):  # tried again with the next one
            self.calls.answer(self.store)

    def append(self, kind: str, **fields: Any) -> None:
        self.logged.append((kind, fields))

    def switch(self, size: int) -> None:
        self.size = size
        self.generation += 1
        members = tuple(
            Member(worker=WorkerId(f"w{i}"), vranks=VrankRange(i, i + 1 if i < size - 1 else 8))
            for i in range(size)
        )
        topology = Topology(generation=self.generation, mode=Mode.PLANNED, members=members)
        put(self.store, KEYS.current, topology)
        for index in range(size):
            record = MemberRecord(
                worker=WorkerId(f"w{index}"),
                node=NodeId("n"),
                device=DeviceId(f"cpu:{index}"),
                pid=1,
                phase=WorkerPhase.TRAINING,
                generation=self.generation,
            )
            put(self.store, KEYS.member(record.worker), record)
        self.profiling.enter(topology, main=self.main)

    def train(self, steps: int) -> list[bool]:
        answers = []
        for _ in range(steps):
            record = MetricsRecord(
                step=self.step,
                epoch=0,
                at_s=0.0,
                generation=self.generation,
                workers=self.size,
                step_time_s=0.1,
                samples=8,
            )
            answers.append(self.profiling.observe(record))
            self.step += 1
        return answers

    @property
    def wanted(self) -> int:
        return read_picture(self.store, JOB).view.spec.wanted

    def told(self, kind: str) -> list[dict[str, Any]]:
        return [fields for told, fields in self.logged if told == kind]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(profiling, "ASK_EVERY_S", 0.0)
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, KEYS.signature, ModelSignature(virtual_workers=8, entries=()))
        put(opened, KEYS.status, JobStatus(phase=JobPhase.TRAINING))
        yield opened


def put(store: Store, key: str, record: Any) -> None:
    store.transact(puts=[Put(key=key, value=encode(record))])


def test_the_main_worker_tells_which_steps_count_and_asks_for_the_next_size(store: Store) -> None:
    job = Job(store)
    assert job.train(8) == [False] * 7 + [True]
    assert job.told("allocation_measured") == [
        {
            "worker": "w0",
            "generation": 1,
            "workers": 4,
            "first_step": 3,
            "last_step": 7,
            "reason": "next: 2 workers",
        }
    ]
    assert job.wanted == 2
    job.train(4)
    assert len(job.logged) == 2


def test_sizes_are_measured_one_after_another_until_the_smallest(store: Store) -> None:
    job = Job(store)
    for size in (4, 2, 1):
        assert job.size == size
        job.train(10)
        if job.wanted != size:
            job.switch(job.wanted)
    measured = [(f["workers"], f["first_step"], f["last_step"]) for f in job.told("allocation_measured")]
    assert measured == [(4, 3, 7), (2, 13, 17), (1, 23, 27)]
    assert job.told("allocation_measured")[-1]["reason"] == "the last one"
    assert job.wanted == 1


def test_every_member_tells_its_memory_at_the_same_step_and_only_the_main_one_asks(store: Store) -> None:
    job = Job(store, main=False)
    assert job.train(12).count(True) == 1
    assert job.told("memory_measured") == [
        {
            "worker": "w0",
            "generation": 1,
            "workers": 4,
            "rss_bytes": 100,
            "device_bytes": None,
            "device_type": "cpu",
        }
    ]
    assert (job.told("allocation_measured"), job.wanted) == ([], 4)


def test_memory_is_measured_anew_with_each_generation(store: Store) -> None:
    job = Job(store)
    job.train(8)
    job.switch(2)
    job.train(8)
    assert [fields["rss_bytes"] for fields in job.told("memory_measured")] == [100, 200]


def test_a_size_is_told_when_the_change_before_it_is_quite_over(store: Store) -> None:
    job = Job(store)
    late = MemberRecord(
        worker=WorkerId("w3"),
        node=NodeId("n"),
        device=DeviceId("cpu:3"),
        pid=1,
        phase=WorkerPhase.READY,
        generation=0,
    )
    put(store, KEYS.member(late.worker), late)
    job.train(10)
    assert (job.told("allocation_measured"), job.wanted) == ([], 4)
    put(store, KEYS.member(late.worker), MemberRecord(**{**vars_of(late), "generation": 1}))
    job.train(1)
    assert [f["last_step"] for f in job.told("allocation_measured")] == [7]
    assert job.wanted == 2


def test_a_size_that_was_not_told_before_a_loss_is_measured_anew(store: Store) -> None:
    job = Job(store)
    request_scale(store, JOB, 3)
    job.train(10)
    job.switch(4)
    request_scale(store, JOB, 4)
    job.train(7)
    assert job.told("allocation_measured") == []
    job.train(1)
    assert [(f["generation"], f["first_step"]) for f in job.told("allocation_measured")] == [(2, 13)]


def test_a_size_that_is_not_the_one_wanted_is_not_told_and_forgotten_with_its_generation(
    store: Store,
) -> None:
    job = Job(store)
    request_scale(store, JOB, 3)
    job.train(10)
    assert job.told("allocation_measured") == []
    job.switch(3)
    job.train(20)
    assert job.told("allocation_measured") == []


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize("error", [StoreBusyError("locked"), JobStateError("changed all the time")])
def test_a_request_for_the_next_size_that_failed_is_repeated_whether_it_took_effect_or_not(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: Exception, takes_effect: bool
) -> None:
    failures = [error]

    def request_then_fail(store: Store, job: JobId, amount: int) -> None:
        if takes_effect or not failures:
            request_scale(store, job, amount)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(profiling, "request_scale", request_then_fail)
    job = Job(store)
    job.train(8)
    assert (job.told("allocation_measured"), job.wanted) == ([], 2 if takes_effect else 4)
    job.train(3)
    assert [f["last_step"] for f in job.told("allocation_measured")] == [7]
    assert job.wanted == 2


def test_a_size_is_told_also_if_the_answer_to_the_request_comes_after_the_change(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures = [StoreBusyError("locked")]

    def request_then_fail(store: Store, job: JobId, amount: int) -> None:
        request_scale(store, job, amount)
        if failures:
            raise failures.pop()

    monkeypatch.setattr(profiling, "request_scale", request_then_fail)
    job = Job(store)
    job.train(8)
    job.switch(2)
    job.calls.answer(store)
    job.train(8)
    assert [(f["workers"], f["last_step"]) for f in job.told("allocation_measured")] == [(4, 7), (2, 15)]
    assert job.wanted == 1


def test_a_job_that_is_there_to_be_trained_is_not_measured(store: Store) -> None:
    job = Job(store)
    assert isinstance(make_profiling(job), Profiling)  # type: ignore[arg-type]
    job.profile = None
    assert make_profiling(job) is None  # type: ignore[arg-type]


def vars_of(record: MemberRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}
