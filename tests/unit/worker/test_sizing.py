"""The main worker's part of the autoscaler, over a real store; posted work runs at once."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from faulty_store import FaultyStore, Outage

from elastane.core.autoscale_text import parse_autoscale
from elastane.core.view import encode
from elastane.jobs.requests import read_picture
from elastane.model.errors import ConfigError
from elastane.model.ids import DeviceId, JobId, NodeId, WorkerId
from elastane.model.records import (
    AgentRecord,
    JobInfo,
    JobKeys,
    JobPhase,
    JobStatus,
    MemberRecord,
    ModelSignature,
    Spec,
    WorkerPhase,
)
from elastane.model.topology import Member, Mode, Topology, VrankRange
from elastane.observe.metrics import MetricsRecord
from elastane.store.base import Put, Store, TransactionResult
from elastane.store.open import open_store
from elastane.worker import sizing
from elastane.worker.calls import OUTAGE, Calls
from elastane.worker.sizing import Sizing, make_sizing

JOB = JobId("j")
KEYS = JobKeys(JOB)
N, DEVICES = 8, 6


class Desk:
    """Stand in for the control thread: run what is posted, after an outage again, and keep what is logged."""

    def __init__(self, store: Store, autoscale: str) -> None:
        self.store = store
        self.logged: list[dict[str, Any]] = []
        self.context, self.events = self, self
        self.job, self.autoscale = JOB, autoscale

    def post(self, work: Callable[[Store], object]) -> None:
        calls = Calls()
        done = calls.submit(work)
        while not done.done():
            with suppress(*OUTAGE):
                calls.answer(self.store)
        done.result()

    def append(self, kind: str, **fields: Any) -> None:
        assert kind == "autoscale"
        self.logged.append(fields)


class Job:
    """Play a job whose workers come and go as soon as they are asked for."""

    def __init__(self, store: Store, autoscale: str, speed: Callable[[int], float], size: int = 1) -> None:
        self.store = store
        self.desk = Desk(store, autoscale)
        self.remaining = 100_000
        self.sizing = Sizing(self.desk, parse_autoscale(autoscale), lambda: self.remaining)  # type: ignore[arg-type]
        self.speed = speed
        self.generation = 0
        put(store, KEYS.spec, Spec(wanted=size))
        self.switch(size)

    def switch(self, size: int) -> None:
        self.size = size
        self.generation += 1
        members = tuple(
            Member(worker=WorkerId(f"w{i}"), vranks=VrankRange(i, i + 1 if i < size - 1 else N))
            for i in range(size)
        )
        topology = Topology(generation=self.generation, mode=Mode.PLANNED, members=members, switch_step=0)
        put(self.store, KEYS.current, topology)
        for index in range(size):
            put(self.store, KEYS.member(WorkerId(f"w{index}")), self.record(index))
        self.sizing.enter(topology)

    def record(self, index: int) -> MemberRecord:
        return MemberRecord(
            worker=WorkerId(f"w{index}"),
            node=NodeId("n"),
            device=DeviceId(f"cpu:{index}"),
            pid=1,
            phase=WorkerPhase.TRAINING,
            generation=self.generation,
        )

    def train(self, steps: int = 11) -> int:
        """Train, switch to what is wanted by then, and return that."""
        for step in range(steps):
            record = MetricsRecord(
                step=step,
                epoch=0,
                at_s=0.0,
                generation=self.generation,
                workers=self.size,
                step_time_s=64 / self.speed(self.size),
                samples=64,
                values={},
            )
            self.sizing.observe(record)
        wanted = read_picture(self.store, JOB).view.spec.wanted
        if wanted != self.size:
            self.switch(wanted)
        return wanted


@pytest.fixture
def store() -> Iterator[Store]:
    with open_store(f"memory://{uuid.uuid4()}") as opened:
        put(opened, KEYS.signature, ModelSignature(virtual_workers=N, entries=()))
        put(opened, KEYS.status, JobStatus(phase=JobPhase.TRAINING))
        info = JobInfo(job=JOB, name="j", script="s", directory="d", created_at_s=time.time() - 100.0)
        put(opened, KEYS.info, info)
        devices = tuple(DeviceId(f"cpu:{i}") for i in range(DEVICES))
        put(opened, KEYS.agent(NodeId("n")), AgentRecord(node=NodeId("n"), pid=1, devices=devices))
        yield opened


def put(store: Store, key: str, record: object) -> None:
    store.transact(puts=[Put(key=key, value=encode(record))])


def test_workers_are_added_while_that_pays_and_each_decision_is_told(store: Store) -> None:
    job = Job(store, "max=8", lambda size: 100.0 * min(size, 3))
    assert [job.train() for _ in range(5)] == [2, 3, 4, 3, 3]
    assert [(line["workers"], line["wanted"], line["settled"]) for line in job.desk.logged] == [
        (1, 2, False),
        (2, 3, False),
        (3, 4, False),
        (4, 3, True),
        (3, 3, True),
    ]
    assert job.desk.logged[3]["samples_per_s"] == pytest.approx({"1": 100, "2": 200, "3": 300, "4": 300})
    assert job.desk.logged[3]["reason"] == "3 -> 4 workers did not pay: efficiency 0.00 not > 0.1; 3 is kept"


def test_there_are_no_more_workers_than_devices(store: Store) -> None:
    job = Job(store, "max=8,step=4", lambda size: 100.0 * size, size=4)
    assert [job.train() for _ in range(3)] == [DEVICES, DEVICES, DEVICES]


def test_the_first_step_of_a_generation_is_not_measured(store: Store) -> None:
    job = Job(store, "max=8", lambda size: 100.0 * size)
    assert job.train(steps=10) == 1
    assert job.train(steps=1) == 2


def test_workers_that_do_not_come_are_waited_for_and_then_done_without(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(sizing.time, "monotonic", lambda: clock[0])
    job = Job(store, "max=8", lambda size: 100.0 * size)
    monkeypatch.setattr(job, "switch", lambda size: None)
    assert [job.train(), job.train()] == [2, 2]
    clock[0] += sizing.PATIENCE_S
    job.train(10)
    assert job.train() == 1
    assert "no other number than 1 is possible" in [line["reason"] for line in job.desk.logged]


def test_nothing_is_asked_for_at_the_end_by_others_or_while_a_change_is_under_way(store: Store) -> None:
    job = Job(store, "max=8", lambda size: 100.0 * size)
    job.remaining = 0
    assert job.train() == 1
    job.remaining = 1
    put(store, KEYS.proposal, Topology(generation=9, mode=Mode.PLANNED, members=()))
    assert job.train() == 1
    job.sizing.enter(None)
    assert (job.train(), job.desk.logged) == (1, [])


def test_a_deadline_counts_from_when_the_job_was_made(store: Store) -> None:
    # 100 s have passed and 100,000 samples are left: 1,000 s more with 1 worker, 500 with 2, 333 with 3.
    text = "max=8,utility=deadline:620s:50usd,price=0.0001usd/s"
    job = Job(store, text, lambda size: 100.0 * size)
    assert [job.train() for _ in range(4)] == [2, 3, 2, 2]
    assert job.desk.logged[1]["reason"].startswith("1 -> 2 workers paid: worth 50 more")


class TroubledStore(FaultyStore):
    """A store in which each write fails once before it goes through, done (`lost`) or not."""

    def __init__(self, inner: Store, *, lost: bool) -> None:
        super().__init__(inner, Outage())
        self.lost, self.failed = lost, False

    def transact(self, *args: Any, **kwargs: Any) -> TransactionResult:
        self.failed = not self.failed
        if self.failed:
            self._outage.lost_answers = 1 if self.lost else 0
            self._outage.failing_calls = 0 if self.lost else 1
        return super().transact(*args, **kwargs)


@pytest.mark.parametrize("lost", [False, True])
def test_a_request_that_met_an_outage_is_made_again_and_its_decision_told_once(
    store: Store, *, lost: bool
) -> None:
    job = Job(store, "max=8", lambda size: 100.0 * min(size, 3))
    job.desk.store = TroubledStore(store, lost=lost)
    assert [job.train() for _ in range(5)] == [2, 3, 4, 3, 3]
    assert [line["wanted"] for line in job.desk.logged] == [2, 3, 4, 3, 3]
    assert job.desk.logged[3]["samples_per_s"] == pytest.approx({"1": 100, "2": 200, "3": 300, "4": 300})


@pytest.mark.parametrize("lost", [False, True])
def test_the_only_look_at_the_smallest_size_outlives_an_outage(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, lost: bool
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(sizing.time, "monotonic", lambda: clock[0])
    job = Job(store, "max=6,utility=linear:100h:1000usd,price=0usd/h", lambda size: 100.0 * size, size=4)
    job.remaining = 1_000_000
    assert [job.train() for _ in range(3)] == [5, 6, 6]
    clock[0] += 100_000.0
    job.desk.store = TroubledStore(store, lost=lost)
    assert [job.train() for _ in range(2)] == [1, 6]
    assert [(line["wanted"], line["settled"]) for line in job.desk.logged][-2:] == [(1, False), (6, True)]
    assert job.desk.logged[-1]["samples_per_s"] == pytest.approx({"1": 100, "4": 400, "5": 500, "6": 600})


def test_a_request_is_dropped_if_somebody_asks_for_something_else_during_an_outage(store: Store) -> None:
    class Overtaken(FaultyStore):
        """A store that is away until a person has asked for 5 workers."""

        def transact(self, *args: Any, **kwargs: Any) -> TransactionResult:
            put(store, KEYS.spec, Spec(wanted=5))
            self._outage.failing_calls = 1
            return super().transact(*args, **kwargs)

    job = Job(store, "max=8", lambda size: 100.0 * size)
    job.desk.store = Overtaken(store, Outage())
    assert job.train() == 5
    assert job.desk.logged == []


def test_whether_there_is_an_autoscaler_is_a_setting_that_must_fit_the_job(store: Store) -> None:
    assert make_sizing(Desk(store, ""), N, lambda: 0) is None  # type: ignore[arg-type]
    made = make_sizing(Desk(store, "max=99"), N, lambda: 0)  # type: ignore[arg-type]
    assert made is not None
    assert made._settings.maximum == N
    with pytest.raises(ConfigError, match="to keep 9 workers; the job has 8 virtual workers: lower min"):
        make_sizing(Desk(store, "min=9,max=99"), N, lambda: 0)  # type: ignore[arg-type]
